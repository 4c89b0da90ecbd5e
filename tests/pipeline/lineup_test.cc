// Stages on several streams take effect in the order in which they were added; where a declared
// dependency is left out they do not.
#include "weft/pipeline/lineup.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

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
        std::pair{StepPart::kGradDist, StepPart::kUpdateRows},
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

/// Writes down what a schedule issues.
class Listener final : public Issuer {
 public:
  explicit Listener(bool averages) : averages_(averages) {}

  void issue(const StageOf& stage, StreamRole on) override {
    EXPECT_EQ(stage.batch, 3);
    parts.push_back(stage.part);
    roles.push_back(on);
  }

  [[nodiscard]] bool averages_behind(std::int64_t /*batch*/) const override { return averages_; }

  std::vector<StepPart> parts;
  std::vector<StreamRole> roles;

 private:
  bool averages_;
};

TEST(Schedules, SyncIssuesEveryPartOnceInTheirOrder) {
  for (const bool averages : {false, true}) {
    Listener listener(averages);
    sync(listener, 3);
    std::vector<StepPart> expected;
    for (std::size_t i = 1; i < kStepParts; ++i) {  // the caller prepares
      if (averages || static_cast<StepPart>(i) != StepPart::kSyncReplicas) {
        expected.push_back(static_cast<StepPart>(i));
      }
    }
    EXPECT_EQ(listener.parts, expected);
  }
}

TEST(Schedules, AnEvaluationUpdatesNothing) {
  Listener listener(true);
  evaluation(listener, 3);
  for (const StepPart part : listener.parts) {
    EXPECT_FALSE(accesses_of(part).writes.contains(Resource::kRows)) << to_string(part);
    EXPECT_FALSE(accesses_of(part).writes.contains(Resource::kParameters)) << to_string(part);
  }
}

}  // namespace
}  // namespace weft::pipeline
