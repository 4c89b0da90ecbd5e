// The record of a step's parts: every part that ran is there, in order, inside the step.
#include <chrono>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/planner/place.h"
#include "weft/trace/recorder.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

/// Runs `steps` steps on one rank and gives the last one's record.
StepTimes times_of(const spec::Config& config, std::int64_t steps) {
  StepTimes times;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 1);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, 0, 1, plan.parts));
    Engine engine(config, plan, world, *device);
    data::Batch batch;
    for (std::int64_t step = 1; step <= steps; ++step) {
      ASSERT_TRUE(loader.next(batch));
      engine.train_step({.batch = batch, .step = step});
    }
    times = engine.times();
  });
  return times;
}

void expect_within(const StepTimes::Span& inner, const StepTimes::Span& outer) {
  EXPECT_LE(outer.begin, inner.begin);
  EXPECT_LT(inner.begin, inner.end);
  EXPECT_LE(inner.end, outer.end);
}

class Times : public testing::TestWithParam<const char*> {};

TEST_P(Times, PartsFollowEachOtherInsideTheStep) {
  const StepTimes times = times_of(make_job({GetParam()}), 2);
  StepTimes::Clock::time_point last = times.step.begin;
  for (std::size_t i = 0; i < kStepParts; ++i) {
    SCOPED_TRACE(to_string(static_cast<StepPart>(i)));
    if (static_cast<StepPart>(i) == StepPart::kSyncReplicas) {
      EXPECT_EQ(times.parts[i].seconds(), 0.0);  // there is one group
      continue;
    }
    expect_within(times.parts[i], times.step);
    if (static_cast<StepPart>(i) != StepPart::kReduce) {
      EXPECT_LE(last, times.parts[i].begin);
      last = times.parts[i].end;
    }
  }
  const StepTimes::Span gradients_to_weights{times.of(StepPart::kWeightGradients).end,
                                             times.of(StepPart::kUpdateDense).begin};
  expect_within(times.of(StepPart::kReduce), gradients_to_weights);
}

INSTANTIATE_TEST_SUITE_P(Overlap,
                         Times,
                         testing::Values("train.overlap=true", "train.overlap=false"),
                         [](const auto& param) {
                           return std::string(param.index == 0 ? "on" : "off");
                         });

/// Runs steps on two ranks, groups of one, whose averages begin 50 ms late; see(step, engine) on
/// rank 0 after each, and after the last average with the step behind the last one.
template <typename See>
void run_groups(const spec::Config& config,
                std::int64_t steps,
                trace::Recorder* recorder,
                const See& see) {
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 2);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 2});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), 2, plan.parts));
    EngineOptions options;
    options.delays = {{StepPart::kSyncReplicas, std::chrono::milliseconds(50)}};
    options.recorder = world.rank() == 0 ? recorder : nullptr;
    Engine engine(config, plan, world, *device, options);
    data::Batch batch;
    for (std::int64_t step = 1; step <= steps; ++step) {
      ASSERT_TRUE(loader.next(batch));
      engine.train_step({.batch = batch, .step = step});
      if (world.rank() == 0) {
        see(step, engine);
      }
    }
    engine.await_sync();
    if (world.rank() == 0) {
      see(steps + 1, engine);
    }
  });
}

TEST(TimesOfASync, AreInTheNextStepWhereItRunsBeside) {
  const spec::Config config = make_job({"mesh.groups=2"});
  StepTimes::Clock::time_point before;
  run_groups(config, 3, nullptr, [&](std::int64_t step, const Engine& engine) {
    const StepTimes& times = engine.times();
    const StepTimes::Span& sync = times.of(StepPart::kSyncReplicas);
    if (step == 1) {
      EXPECT_FALSE(times.sync_beside);
      EXPECT_EQ(sync.seconds(), 0.0);
      EXPECT_EQ(times.sync_wait.seconds(), 0.0);
    } else if (step <= 3) {
      EXPECT_TRUE(times.sync_beside);
      expect_within(sync, {before, times.of(StepPart::kLookup).begin});
      expect_within(times.sync_wait,
                    {times.of(StepPart::kLoad).end, times.of(StepPart::kLookup).begin});
      EXPECT_LE(sync.end, times.sync_wait.end);
    }
    before = times.of(StepPart::kUpdateRows).end;
  });
}

TEST(TimesOfASync, AreInTheStepWhereItRunsInLine) {
  run_groups(make_job({"mesh.groups=2", "train.overlap=false"}), 2, nullptr,
             [&](std::int64_t step, const Engine& engine) {
               const StepTimes& times = engine.times();
               EXPECT_FALSE(times.sync_beside) << step;
               EXPECT_EQ(times.sync_wait.seconds(), 0.0);
               expect_within(
                   times.of(StepPart::kSyncReplicas),
                   {times.of(StepPart::kUpdateRows).end, times.of(StepPart::kUpdateDense).begin});
             });
}

TEST(TraceOfASync, IsATrackOfItsOwnThatNamesSteps) {
  trace::Recorder recorder;
  recorder.start();
  run_groups(make_job({"mesh.groups=2", "mesh.sync_every=2"}), 5, &recorder,
             [](std::int64_t, const Engine&) {});
  recorder.stop();
  std::vector<std::int64_t> steps;
  std::int64_t exchanges = 0;
  for (const trace::Track& track : recorder.tracks()) {
    for (const trace::Span& span : track.spans()) {
      const bool is_sync = std::string_view(span.name) == "sync_replicas";
      EXPECT_TRUE(!is_sync || track.name() == "sync") << track.name();
      if (is_sync) {
        steps.push_back(span.number);
      }
      exchanges += track.name() == "sync" && span.collective >= 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4}));
  EXPECT_GE(exchanges, 4) << "rows to their owners and back, each time";
}

// A rank that is done before its average has begun still comes to it: the other one waits there.
TEST(EndOfAnEngine, ComesBehindAnAverageBesideTheLastStep) {
  const spec::Config config = make_job({"mesh.groups=2"});
  const spec::Plan plan = planner::make_plan(config, 2);
  const data::Vocabularies none;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), 2, plan.parts));
    data::Batch batch;
    ASSERT_TRUE(loader.next(batch));
    for (std::int64_t end = 0; end < 100; ++end) {
      Engine engine(config, plan, world, *device);
      engine.train_step({.batch = batch, .step = 1});
    }
  });
}

TEST(TimesOfASkippedStep, HasNoUpdates) {
  // The first step throws the weights out of range, so the second is not finite.
  const StepTimes times =
      times_of(make_job({"dense_optimizer.type=sgd", "dense_optimizer.learning_rate=1e30",
                         "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0",
                         "train.on_non_finite=skip"}),
               2);
  EXPECT_GT(times.of(StepPart::kForwardBackward).seconds(), 0.0);
  EXPECT_EQ(times.of(StepPart::kUpdateRows).seconds(), 0.0);
  EXPECT_EQ(times.of(StepPart::kUpdateDense).seconds(), 0.0);
}

TEST(StepBreakdown, AddsUpWhatPartsTook) {
  StepTimes times;
  const auto set = [&times](StepPart part, int ms) {
    times.parts[static_cast<std::size_t>(part)].end += std::chrono::milliseconds(ms);
  };
  set(StepPart::kExchangeIds, 10);
  set(StepPart::kGradDist, 20);
  set(StepPart::kLookup, 5);
  set(StepPart::kForwardBackward, 40);
  set(StepPart::kUpdateDense, 5);
  set(StepPart::kUpdateRows, 10);
  set(StepPart::kReduce, 1000);  // beside the others
  StepBreakdown sum;
  EXPECT_EQ(sum.text(), "data 0 exchange 0 lookup 0 dense 0 update 0 %");
  sum.add(times, 0.005, 0.100);
  sum.add(times, 0.005, 0.100);
  EXPECT_NEAR(sum.data, 0.010, 1e-12);
  EXPECT_NEAR(sum.exchange, 0.060, 1e-12);
  EXPECT_NEAR(sum.lookup, 0.010, 1e-12);
  EXPECT_NEAR(sum.dense, 0.090, 1e-12);
  EXPECT_NEAR(sum.update, 0.020, 1e-12);
  EXPECT_EQ(sum.text(), "data 5 exchange 30 lookup 5 dense 45 update 10 %");
}

TEST(StepBreakdown, CountsASyncAsFarAsAStepWaitsForIt) {
  using std::chrono::milliseconds;
  StepTimes times;
  times.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)].end += milliseconds(50);
  times.sync_wait.end += milliseconds(20);
  times.sync_beside = true;
  StepBreakdown beside;
  beside.add(times, 0.0, 0.100);
  EXPECT_NEAR(beside.exchange, 0.020, 1e-12);
  times.sync_wait = {};
  times.sync_beside = false;
  StepBreakdown in_line;
  in_line.add(times, 0.0, 0.100);
  EXPECT_NEAR(in_line.exchange, 0.050, 1e-12);
}

}  // namespace
}  // namespace weft::train
