// Stages on several streams take effect in the order in which they were added; where a declared
// dependency is left out they do not.
#include "weft/pipeline/lineup.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/pipeline/schedule.h"
#include "weft/pipeline/stage.h"
#include "weft/tensor/device.h"

namespace weft::pipeline {
namespace {

using std::chrono::milliseconds;

/// Two streams with threads of their own, and a device for them.
struct TwoStreams {
  std::unique_ptr<Device> device = make_device({.threads = 1});
  std::unique_ptr<Stream> first = device->make_stream({.name = "first"});
  std::unique_ptr<Stream> second = device->make_stream({.name = "second"});
};

Stage write_after(milliseconds delay, int& to, int value) {
  return [=, &to](Context&) {
    std::this_thread::sleep_for(delay);
    to = value;
  };
}

TEST(Stages, DeclareThatAnUpdateStandsBetweenItsLookupAndTheNext) {
  EXPECT_TRUE(accesses_of(StepPart::kLookup).reads.contains(Resource::kRows));
  EXPECT_TRUE(accesses_of(StepPart::kUpdateRows).writes.contains(Resource::kRows));
  EXPECT_TRUE(accesses_of(StepPart::kSyncReplicas).writes.contains(Resource::kRows));
  EXPECT_TRUE(accesses_of(StepPart::kForwardBackward).reads.contains(Resource::kParameters));
  EXPECT_TRUE(accesses_of(StepPart::kUpdateDense).writes.contains(Resource::kParameters));
}

TEST(Stages, OfIdsAndVectorsTouchNeitherRowsNorParameters) {
  for (const StepPart part : {StepPart::kExchangeCounts, StepPart::kExchangeIds,
                              StepPart::kCoalesce, StepPart::kGradDist, StepPart::kOutputDist}) {
    for (const Resource resource : {Resource::kRows, Resource::kParameters}) {
      EXPECT_FALSE(accesses_of(part).reads.contains(resource)) << to_string(part);
      EXPECT_FALSE(accesses_of(part).writes.contains(resource)) << to_string(part);
    }
  }
}

TEST(Lineup, AReaderWaitsForTheWriterOnAnotherStream) {
  TwoStreams streams;
  Lineup lineup(2);
  int rows = 0;
  int seen = -1;
  const Stage update = write_after(milliseconds(50), rows, 1);
  const Stage lookup = [&](Context&) { seen = rows; };
  lineup.add(*streams.first, update, {StepPart::kUpdateRows, 0});
  EXPECT_EQ(lineup.writer_of(Resource::kRows), streams.first.get());
  lineup.add(*streams.second, lookup, {StepPart::kLookup, 1});
  streams.second->synchronize();
  EXPECT_EQ(seen, 1);
}

TEST(Lineup, AWriterWaitsForTheReadersSinceTheWriterBefore) {
  TwoStreams streams;
  Lineup lineup(2);
  int rows = 1;
  int seen = -1;
  const Stage lookup = [&](Context&) {
    std::this_thread::sleep_for(milliseconds(50));
    seen = rows;
  };
  const Stage update = write_after(milliseconds(0), rows, 2);
  lineup.add(*streams.first, lookup, {StepPart::kLookup, 1});
  lineup.add(*streams.second, update, {StepPart::kSyncReplicas, 0});
  streams.second->synchronize();
  EXPECT_EQ(seen, 1);
}

TEST(Lineup, WhatIsOfABatchIsNotSharedWithAnother) {
  TwoStreams streams;
  Lineup lineup(2);
  std::atomic<int> first = 0;  // the stages are not ordered
  int seen = -1;
  const Stage late = [&](Context&) {
    std::this_thread::sleep_for(milliseconds(300));
    first = 1;
  };
  const Stage coalesce = [&](Context&) { seen = first; };
  lineup.add(*streams.first, late, {StepPart::kCoalesce, 0});
  lineup.add(*streams.second, coalesce, {StepPart::kCoalesce, 1});
  lineup.wait_for_batch(1);
  EXPECT_EQ(seen, 0) << "the second batch waited for the first";
  lineup.wait_for_batch(0);
  EXPECT_EQ(first, 1);
}

// Two stages that use one communicator run in the order of issue, whatever their streams.
TEST(Lineup, ACommunicatorIsUsedInTheOrderOfIssue) {
  for (const auto& [first, second] :
       {std::pair{StepPart::kExchangeCounts, StepPart::kExchangeIds},
        std::pair{StepPart::kOutputDist, StepPart::kGradDist},
        std::pair{StepPart::kUpdateRows, StepPart::kUpdateRows},
        std::pair{StepPart::kExchangeReport, StepPart::kExchangeReport}}) {
    TwoStreams streams;
    Lineup lineup(2);
    int used = 0;
    int seen = -1;
    const Stage late = write_after(milliseconds(50), used, 1);
    const Stage next = [&](Context&) { seen = used; };
    lineup.add(*streams.first, late, {first, 0});
    lineup.add(*streams.second, next, {second, 1});
    streams.second->synchronize();
    EXPECT_EQ(seen, 1) << to_string(first) << ", " << to_string(second);
  }
}

TEST(Lineup, ABatchIsWaitedForOnAllStreamsAlsoAfterAnError) {
  TwoStreams streams;
  Lineup lineup(1);
  int done = 0;
  const Stage broken = [](Context&) { fail(ErrorCode::kResource, "the disk is full"); };
  const Stage late = write_after(milliseconds(100), done, 1);
  lineup.add(*streams.first, broken, {StepPart::kCoalesce, 0});
  lineup.add(*streams.second, late, {StepPart::kLookup, 0});
  EXPECT_THROW(lineup.wait_for_batch(0), Error);
  EXPECT_EQ(done, 1) << "a stage of the batch was still running";
}

// The negative control: the order above comes from the declaration.
TEST(Lineup, WithADependencyLeftOutTheReaderDoesNotWait) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point";
#endif
  TwoStreams streams;
  Lineup lineup(2);
  lineup.leave_out({StepPart::kLookup, Resource::kRows});
  int rows = 0;
  int seen = -1;
  const Stage update = write_after(milliseconds(500), rows, 1);
  const Stage lookup = [&](Context&) { seen = rows; };
  lineup.add(*streams.first, update, {StepPart::kUpdateRows, 0});
  lineup.add(*streams.second, lookup, {StepPart::kLookup, 1});
  streams.second->synchronize();
  EXPECT_EQ(seen, 0);
  streams.first->synchronize();
}

TEST(Lineup, WorkOfTheJobComesBehindAllThatUsesItAndInFrontOfAllThatWill) {
  TwoStreams streams;
  Lineup lineup(2);
  std::vector<std::string> order;
  const Stage average = [&](Context&) {
    std::this_thread::sleep_for(milliseconds(50));
    order.emplace_back("average");
  };
  const Stage save = [&](Context&) {
    std::this_thread::sleep_for(milliseconds(50));
    order.emplace_back("save");
  };
  const Stage lookup = [&](Context&) { order.emplace_back("lookup"); };
  lineup.add(*streams.first, average, {StepPart::kSyncReplicas, 0});
  lineup.add_exclusive(*streams.second, save);
  lineup.add(*streams.first, lookup, {StepPart::kLookup, 1});
  lineup.wait_for_batch(1);
  EXPECT_EQ(order, (std::vector<std::string>{"average", "save", "lookup"}));
}

TEST(Lineup, WhoWaitsGetsWhatAStageThrew) {
  TwoStreams streams;
  Lineup lineup(2);
  const Stage broken = [](Context&) { fail(ErrorCode::kResource, "the disk is full"); };
  const Stage lookup = [](Context&) { ADD_FAILURE() << "ran behind a stage that failed"; };
  lineup.add(*streams.first, broken, {StepPart::kUpdateRows, 0});
  lineup.add(*streams.second, lookup, {StepPart::kLookup, 1});
  EXPECT_THROW(lineup.wait_for(Resource::kRows), Error);
  EXPECT_THROW(streams.second->synchronize(), Error);
  EXPECT_THROW(lineup.wait_for_batch(1), Error);
}

TEST(Lineup, MicroBatchesOfABatchDoNotWaitForEachOther) {
  TwoStreams streams;
  Lineup lineup(1, 2);
  std::atomic<int> first = 0;  // the stages are not ordered
  int seen = -1;
  int summed = -1;
  const Stage late = [&](Context&) {
    std::this_thread::sleep_for(milliseconds(300));
    first = 1;
  };
  const Stage lookup = [&](Context&) { seen = first; };
  const Stage update = [&](Context&) { summed = first; };
  lineup.add(*streams.first, late, {StepPart::kLookup, 0, 0});
  lineup.add(*streams.second, lookup, {StepPart::kLookup, 0, 1});
  lineup.add(*streams.second, update, {StepPart::kUpdateRows, 0});
  lineup.wait_for_batch(0);
  EXPECT_EQ(seen, 0) << "the second micro-batch waited for the first";
  EXPECT_EQ(summed, 1) << "a stage of the whole batch did not wait for all of them";
}

/// Writes down what a schedule issues.
class Listener final : public Issuer {
 public:
  struct Issued {
    StageOf stage;
    StreamRole role;
  };

  explicit Listener(bool averages,
                    std::int64_t cuts = 1,
                    std::int64_t lookahead = 1,
                    bool reads_disk = false)
      : averages_(averages), reads_disk_(reads_disk), cuts_(cuts), lookahead_(lookahead) {}

  void issue(const StageOf& stage, StreamRole on) override { issued.push_back({stage, on}); }

  [[nodiscard]] bool averages_behind(std::int64_t /*batch*/) const override { return averages_; }

  [[nodiscard]] bool reads_disk() const override { return reads_disk_; }

  [[nodiscard]] std::int64_t cuts() const override { return cuts_; }

  [[nodiscard]] std::int64_t lookahead() const override { return lookahead_; }

  [[nodiscard]] bool would_wait_for(const StageOf& stage) const override {
    return waits && waits(stage);
  }

  /// Stages of a batch, as "lookup 2".
  [[nodiscard]] std::vector<std::string> of(std::int64_t batch) const {
    std::vector<std::string> names;
    for (const Issued& one : issued) {
      if (one.stage.batch == batch) {
        names.push_back(fmt::format("{} {}", to_string(one.stage.part), one.stage.cut));
      }
    }
    return names;
  }

  /// Where among all stages one was issued; their number if it was not.
  [[nodiscard]] std::ptrdiff_t place(std::int64_t batch,
                                     StepPart part,
                                     std::int64_t cut = 0) const {
    const auto found = std::find_if(issued.begin(), issued.end(), [&](const Issued& one) {
      return one.stage.batch == batch && one.stage.part == part && one.stage.cut == cut;
    });
    return found - issued.begin();
  }

  std::vector<Issued> issued;
  std::function<bool(const StageOf&)> waits;

 private:
  bool averages_, reads_disk_;
  std::int64_t cuts_, lookahead_;
};

TEST(Schedules, SyncIssuesEveryPartOnceInTheirOrder) {
  for (const bool averages : {false, true}) {
    Listener listener(averages);
    schedule_called("sync").step(listener, 3, kNoBatch);
    std::vector<StepPart> parts;
    for (const Listener::Issued& one : listener.issued) {
      parts.push_back(one.stage.part);
    }
    std::vector<StepPart> expected;
    for (std::size_t i = 1; i < kStepParts; ++i) {  // the caller prepares
      if (averages || static_cast<StepPart>(i) != StepPart::kSyncReplicas) {
        expected.push_back(static_cast<StepPart>(i));
      }
    }
    EXPECT_EQ(parts, expected);
  }
}

/// Walks three steps; the second has a batch before it and one after it.
Listener three_steps(const Schedule& schedule,
                     std::int64_t cuts,
                     std::int64_t lookahead,
                     bool reads_disk = false) {
  Listener listener(false, schedule.cuts_batches ? cuts : 1, lookahead, reads_disk);
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    if (batch == 0 || !schedule.looks_ahead) {
      schedule.begin(listener, batch);
    }
    schedule.step(listener, batch, schedule.looks_ahead && batch < 2 ? batch + 1 : kNoBatch);
  }
  return listener;
}

TEST(Schedules, IssueEveryStageOfEveryMicroBatchOnce) {
  for (const Schedule& schedule : schedules()) {
    for (const std::int64_t lookahead : {1, 3, 9}) {
      const Listener listener = three_steps(schedule, 4, lookahead);
      std::vector<std::string> expected;
      for (std::size_t i = 1; i < kStepParts; ++i) {
        const auto part = static_cast<StepPart>(i);
        const std::int64_t times = is_of_cut(part) && schedule.cuts_batches ? 4 : 1;
        for (std::int64_t cut = 0; cut < times && part != StepPart::kSyncReplicas; ++cut) {
          expected.push_back(fmt::format("{} {}", to_string(part), cut));
        }
      }
      const std::int64_t last = schedule.cuts_batches ? 3 : 0;
      std::replace(expected.begin(), expected.end(), std::string("weight_gradients 0"),
                   fmt::format("weight_gradients {}", last));  // of all of them
      std::sort(expected.begin(), expected.end());
      for (std::int64_t batch = 0; batch < 3; ++batch) {
        std::vector<std::string> issued = listener.of(batch);
        std::sort(issued.begin(), issued.end());
        EXPECT_EQ(issued, expected) << schedule.name << ", lookahead " << lookahead;
      }
    }
  }
}

// A schedule is right if no stage of a batch comes before one that it depends on.
TEST(Schedules, IssueAStageBehindWhatItDependsOn) {
  for (std::size_t i = 0; i < 2 * schedules().size(); ++i) {
    const Schedule& schedule = schedules()[i / 2];
    const std::int64_t cuts = schedule.cuts_batches ? 4 : 1;
    const Listener listener = three_steps(schedule, 4, 2, i % 2 == 1);
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      const auto before = [&](StepPart first, StepPart second, std::int64_t cut_of_first = 0,
                              std::int64_t cut = 0) {
        EXPECT_LT(listener.place(batch, first, cut_of_first), listener.place(batch, second, cut))
            << schedule.name << ": " << to_string(first) << ", " << to_string(second);
      };
      before(StepPart::kExchangeCounts, StepPart::kExchangeIds);
      before(StepPart::kExchangeIds, StepPart::kFetch);
      before(StepPart::kExchangeIds, StepPart::kCoalesce);
      before(StepPart::kFetch, StepPart::kLookup);
      for (std::int64_t cut = 0; cut < cuts; ++cut) {
        before(StepPart::kLookup, StepPart::kOutputDist, cut, cut);
        before(StepPart::kOutputDist, StepPart::kForwardBackward, cut, cut);
        before(StepPart::kForwardBackward, StepPart::kGradDist, cut, cut);
        before(StepPart::kForwardBackward, StepPart::kWeightGradients, cut, cuts - 1);
        before(StepPart::kGradDist, StepPart::kUpdateRows, cut);
      }
      before(StepPart::kCoalesce, StepPart::kUpdateRows);
      before(StepPart::kWeightGradients, StepPart::kReduce, cuts - 1);
      before(StepPart::kWeightGradients, StepPart::kExchangeReport, cuts - 1);
      before(StepPart::kExchangeReport, StepPart::kUpdateRows);
      before(StepPart::kReduce, StepPart::kUpdateDense);
      if (batch > 0) {
        EXPECT_LT(listener.place(batch - 1, StepPart::kUpdateRows, 0),
                  listener.place(batch, StepPart::kLookup, 0))
            << schedule.name << ": a batch reads rows of before the step before";
        EXPECT_LT(listener.place(batch - 1, StepPart::kUpdateDense, 0),
                  listener.place(batch, StepPart::kForwardBackward, 0))
            << schedule.name;
      }
    }
  }
}

/// The compute of the second batch of four micro-batches.
std::vector<std::string> window(const Schedule& schedule,
                                const std::function<bool(const StageOf&)>& waits) {
  Listener listener(false, 4, 3);
  listener.waits = waits;
  schedule.begin(listener, 1);
  schedule.step(listener, 1, kNoBatch);
  std::vector<std::string> names;
  for (const Listener::Issued& one : listener.issued) {
    if (one.stage.part == StepPart::kForwardBackward) {
      names.push_back(fmt::format("model {}", one.stage.cut));
    } else if (one.stage.part == StepPart::kWeightGradients) {
      names.push_back(fmt::format("weights to {}", one.stage.cut));
    }
  }
  return names;
}

TEST(Schedules, WeightGradientsOfComputedMicroBatchesFillWaits) {
  using Names = std::vector<std::string>;
  for (const char* name : {"fwp", "nested"}) {
    const Schedule& schedule = schedule_called(name);
    EXPECT_EQ(window(schedule, {}),
              (Names{"model 0", "model 1", "model 2", "model 3", "weights to 3"}));
    EXPECT_EQ(window(schedule, [](const StageOf&) { return true; }),
              (Names{"model 0", "weights to 0", "model 1", "weights to 1", "model 2",
                     "weights to 2", "model 3", "weights to 3"}));
    int asked = 0;
    const auto once = [&](const StageOf& stage) { return stage.cut == 2 && ++asked == 1; };
    EXPECT_EQ(window(schedule, once),
              (Names{"model 0", "model 1", "weights to 0", "model 2", "model 3", "weights to 3"}));
    EXPECT_EQ(asked, 2) << "asked again after a stage that filled some of the wait";
  }
}

TEST(Lineup, KnowsWhatIsBeingWritten) {
  TwoStreams streams;
  Lineup lineup(1, 2);
  std::atomic<bool> may_end = false;
  const Stage slow = [&](Context&) {
    while (!may_end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  };
  const StageOf of_second{StepPart::kOutputDist, 0, 1};
  EXPECT_FALSE(lineup.is_being_written(Resource::kVectors, of_second)) << "nobody has";
  lineup.add(*streams.second, slow, of_second);
  EXPECT_TRUE(lineup.is_being_written(Resource::kVectors, of_second));
  EXPECT_FALSE(lineup.is_being_written(Resource::kVectors, {StepPart::kOutputDist, 0, 0}));
  may_end = true;
  lineup.wait_for_batch(0);
  EXPECT_FALSE(lineup.is_being_written(Resource::kVectors, of_second));
}

// A disk reads on while vectors are looked up.
TEST(Schedules, PrefetchFetchesTheNextRowsBeforeALookupWhereADiskIsRead) {
  for (const Schedule& schedule : schedules()) {
    for (const bool reads_disk : {false, true}) {
      const Listener listener = three_steps(schedule, 4, 2, reads_disk);
      EXPECT_EQ(listener.place(1, StepPart::kFetch) < listener.place(0, StepPart::kLookup),
                schedule.name == "prefetch" && reads_disk)
          << schedule.name;
    }
  }
}

TEST(Schedules, ThatLookAheadIssueTheNextIdsBesideTheCompute) {
  for (const Schedule& schedule : schedules()) {
    const Listener listener = three_steps(schedule, 4, 2);
    EXPECT_EQ(
        listener.place(1, StepPart::kExchangeIds) < listener.place(0, StepPart::kForwardBackward),
        schedule.looks_ahead)
        << schedule.name;
  }
}

TEST(Schedules, UseTheStreamsThatTheyName) {
  for (const Schedule& schedule : schedules()) {
    for (const Listener::Issued& one : three_steps(schedule, 4, 2).issued) {
      const bool is_named = std::find(schedule.streams.begin(), schedule.streams.end(), one.role) !=
                            schedule.streams.end();
      EXPECT_TRUE(is_named || one.role == StreamRole::kCompute || one.role == StreamRole::kDense)
          << schedule.name << ": " << to_string(one.stage.part);
    }
  }
}

TEST(Schedules, AnEvaluationUpdatesNothing) {
  Listener listener(true, 3);
  evaluation(listener, 3);
  for (const Listener::Issued& one : listener.issued) {
    const Accesses accesses = accesses_of(one.stage.part);
    EXPECT_FALSE(accesses.writes.contains(Resource::kRows)) << to_string(one.stage.part);
    EXPECT_FALSE(accesses.writes.contains(Resource::kParameters)) << to_string(one.stage.part);
  }
}

}  // namespace
}  // namespace weft::pipeline
