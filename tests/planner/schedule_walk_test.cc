// Steps of schedules by hand, against a closed form, and against the estimate of
// sync.
#include "weft/planner/schedule_walk.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "tests/topology/small_cluster.h"
#include "weft/base/at.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"

namespace weft::planner {
namespace {

using enum StepPart;
using spec::Sharding;

using Parts = std::initializer_list<std::pair<StepPart, double>>;

std::array<double, kStepParts> by_part(const Parts& parts) {
  std::array<double, kStepParts> seconds{};
  for (const auto& [part, value] : parts) {
    seconds[at(part)] = value;
  }
  return seconds;
}

/// Ranks that are alike, so one.
StageSeconds stages(const Parts& own, const Parts& exchanges) {
  return {.own = {by_part(own)}, .exchanges = by_part(exchanges)};
}

WalkCuts equal_cuts(std::int64_t count, std::int64_t lookahead = 3) {
  return {.shares = std::vector<double>(at(count), 1.0 / static_cast<double>(count)),
          .lookahead = lookahead};
}

double step_of(const StageSeconds& seconds, std::string_view schedule, const WalkCuts& cuts = {}) {
  return walked_step_s(seconds, pipeline::schedule_called(schedule), cuts);
}

/// Of a dense model that computes for a second, a third of it weights' gradients, and vectors and
/// gradients that travel for as long each: how much of `travels` no compute hides.
double exposed(double travels, std::string_view schedule, const WalkCuts& cuts) {
  const StageSeconds seconds =
      stages({{kForwardBackward, 2.0 / 3.0}, {kWeightGradients, 1.0 / 3.0}},
             {{kOutputDist, travels / 2.0}, {kGradDist, travels / 2.0}});
  return (step_of(seconds, schedule, cuts) - 1.0) / travels;
}

constexpr double kNear = 1e-12;

TEST(ScheduleWalk, SyncIsOneStageAfterTheOther) {
  const StageSeconds seconds =
      stages({{kExchangeCounts, 1},
              {kLookup, 2},
              {kForwardBackward, 3},
              {kCoalesce, 4},
              {kUpdateRows, 5},
              {kUpdateDense, 6}},
             {{kExchangeCounts, 10}, {kExchangeIds, 20}, {kOutputDist, 30}, {kGradDist, 40}});
  EXPECT_NEAR(step_of(seconds, "sync"), 121, kNear);
}

/// The all-reduce has the link while others leave it: 4 beside the sorting, 8 beside the rows.
TEST(ScheduleWalk, ADenseAllReduceTakesWhatIsLeftOfTheLink) {
  StageSeconds seconds =
      stages({{kForwardBackward, 3}, {kCoalesce, 4}, {kUpdateRows, 8}, {kUpdateDense, 1}},
             {{kExchangeReport, 2}, {kGradDist, 5}, {kReduce, 11}});
  EXPECT_NEAR(step_of(seconds, "sync"), 3 + 2 + 4 + 5 + 8 + 1, kNear);
  seconds.exchanges[at(kReduce)] = 14;
  EXPECT_NEAR(step_of(seconds, "sync"), 3 + 2 + 5 + 14 + 1, kNear);
  seconds.streams = Streams::kOne;
  EXPECT_NEAR(step_of(seconds, "sync"), 3 + 14 + 2 + 4 + 5 + 8 + 1, kNear);
}

TEST(ScheduleWalk, EveryStageButTheReductionAndFetchHasAHandOff) {
  StageSeconds seconds = stages({{kForwardBackward, 3}}, {});
  seconds.hand_off = 1.0;
  EXPECT_NEAR(step_of(seconds, "sync"), 3 + 12, kNear);
}

TEST(ScheduleWalk, ARankWaitsForTheOthersInExchangesAlone) {
  StageSeconds seconds = stages({{kLookup, 5}, {kForwardBackward, 1}}, {});
  seconds.own.push_back(by_part({{kLookup, 1}, {kForwardBackward, 7}}));
  EXPECT_NEAR(step_of(seconds, "sync"), 5 + 7, kNear);
  // Nobody waits between the update of rows and the next counts.
  seconds.own = {by_part({{kGradDist, 4}, {kUpdateRows, 1}}),
                 by_part({{kGradDist, 1}, {kUpdateRows, 3}})};
  seconds.exchanges[at(kUpdateRows)] = 2;
  EXPECT_NEAR(step_of(seconds, "sync"), 5 + 2, kNear);
}

/// Two streams: ids travel beside the model, as long as it takes.
TEST(ScheduleWalk, PrefetchHidesIdsBesideTheModel) {
  StageSeconds seconds = stages({{kForwardBackward, 5}}, {{kExchangeIds, 3}, {kOutputDist, 1}});
  EXPECT_NEAR(step_of(seconds, "sync"), 9, kNear);
  EXPECT_NEAR(step_of(seconds, "prefetch"), 6, kNear);
  seconds.exchanges[at(kExchangeIds)] = 8;
  EXPECT_NEAR(step_of(seconds, "prefetch"), 8 + 1, kNear) << "one link: vectors wait for ids";
}

TEST(ScheduleWalk, NothingIsComputedForFree) {
  const StageSeconds seconds =
      stages({{kForwardBackward, 5}, {kExchangeIds, 2}, {kCoalesce, 3}, {kExchangeCounts, 1}}, {});
  for (const pipeline::Schedule& schedule : pipeline::schedules()) {
    EXPECT_NEAR(walked_step_s(seconds, schedule), 11, kNear) << schedule.name;
  }
}

/// 1, 2 and 4 micro-batches on one link, vectors 1, the model 2, its weights 1, gradients 1.
TEST(ScheduleWalk, MicroBatchesByHand) {
  const StageSeconds seconds =
      stages({{kForwardBackward, 2}, {kWeightGradients, 1}}, {{kOutputDist, 1}, {kGradDist, 1}});
  EXPECT_NEAR(step_of(seconds, "sync"), 5, kNear);
  // The first vectors are exposed; the last gradients travel beside the weights'.
  EXPECT_NEAR(step_of(seconds, "fwp", equal_cuts(1)), 1 + 2 + 1, kNear);
  EXPECT_NEAR(step_of(seconds, "fwp", equal_cuts(2)), 0.5 + 2 + 1, kNear);
  EXPECT_NEAR(step_of(seconds, "fwp", equal_cuts(4)), 0.25 + 2 + 1, kNear);
  // An exchange that takes its time whatever its bytes: of four each begins behind another.
  StageSeconds starting = seconds;
  for (const StepPart part : {kOutputDist, kGradDist}) {
    starting.exchanges[at(part)] += 0.5;
    starting.starts[at(part)] = 0.5;
  }
  EXPECT_NEAR(step_of(starting, "fwp", equal_cuts(1)), 1.5 + 2 + 1.5, kNear);
  EXPECT_GT(step_of(starting, "fwp", equal_cuts(4)), 8 * 0.75 - kNear) << "eight exchanges";
}

TEST(ScheduleWalk, UnevenCutsHaveUnevenShares) {
  const StageSeconds seconds =
      stages({{kForwardBackward, 2}, {kWeightGradients, 1}}, {{kOutputDist, 1}, {kGradDist, 1}});
  EXPECT_NEAR(step_of(seconds, "fwp", {.shares = {0.125, 0.75, 0.125}, .lookahead = 3}),
              0.125 + 0.75 + 0.75 * 2 + 0.25 + 1 - 0.125, kNear)
      << "the weights' gradients of the first fill the wait for the second";
  EXPECT_NEAR(step_of(seconds, "fwp", {.shares = {0.0, 1.0}, .lookahead = 3}), 1 + 2 + 1, kNear)
      << "a micro-batch without parts";
}

TEST(ScheduleWalk, ExposesWhatTheClosedFormSays) {
  for (const double travels : {0.3, 0.5, 0.6}) {  // under two thirds of the compute
    for (const std::int64_t cuts : {1, 2, 4, 8}) {
      const double expected = std::max(1.0 / static_cast<double>(2 * cuts), 1.0 - 1.0 / travels);
      EXPECT_NEAR(exposed(travels, "nested", equal_cuts(cuts)), expected, 1e-9) << cuts;
      EXPECT_NEAR(exposed(travels, "fwp", equal_cuts(cuts)), expected, 1e-9) << cuts;
    }
  }
}

/// Beyond, the first two thirds of the compute hide too little: weights' gradients fill the waits.
TEST(ScheduleWalk, ExposesMoreWhereTheLinkIsSlow) {
  EXPECT_NEAR(exposed(0.9, "nested", equal_cuts(1)), 0.6296296296, 1e-9);
  EXPECT_NEAR(exposed(0.9, "nested", equal_cuts(4)), 0.125, 1e-9);
  EXPECT_NEAR(exposed(0.9, "nested", equal_cuts(8)), 0.0625, 1e-9);
  EXPECT_NEAR(exposed(1.5, "nested", equal_cuts(2)), 7.0 / 18.0, 1e-9)
      << "what fills a wait is longer than the wait";
  EXPECT_NEAR(exposed(1.5, "nested", equal_cuts(16)), 1.0 / 3.0, 1e-9);
}

/// Each of the sums that are taken apart costs its time, where there is a wait to fill.
TEST(ScheduleWalk, FillingAWaitCostsAJoin) {
  StageSeconds seconds = stages({{kForwardBackward, 2.0 / 3.0}, {kWeightGradients, 1.0 / 3.0}},
                                {{kOutputDist, 0.25}, {kGradDist, 0.25}});
  const double without = step_of(seconds, "nested", equal_cuts(4));
  seconds.join = 0.01;
  EXPECT_NEAR(step_of(seconds, "nested", equal_cuts(4)), without, kNear) << "no wait";
  seconds.exchanges[at(kOutputDist)] = seconds.exchanges[at(kGradDist)] = 0.45;
  const double filled = step_of(seconds, "nested", equal_cuts(8));
  seconds.join = 0.0;
  EXPECT_GT(filled, step_of(seconds, "nested", equal_cuts(8)));
  seconds.fills_waits = false;
  EXPECT_NEAR((step_of(seconds, "nested", equal_cuts(8)) - 1.0) / 0.9, 0.1643518519, 1e-9);
}

/// All but the gradients beside the weights'. Where these fill waits, they hide vectors too.
TEST(ScheduleWalk, LookingOneAheadHidesNothingInTheWindow) {
  StageSeconds seconds = stages({{kForwardBackward, 2.0 / 3.0}, {kWeightGradients, 1.0 / 3.0}},
                                {{kOutputDist, 0.25}, {kGradDist, 0.25}});
  seconds.fills_waits = false;
  for (const std::int64_t cuts : {1, 2, 4, 8}) {
    const double hidden = 1.0 / static_cast<double>(2 * cuts);
    EXPECT_NEAR((step_of(seconds, "nested", equal_cuts(cuts, 1)) - 1.0) / 0.5, 1.0 - hidden, 1e-9)
        << cuts;
    EXPECT_LE(exposed(0.5, "nested", equal_cuts(cuts, 1)), 0.5) << cuts;
  }
}

TEST(ScheduleWalk, AnAverageCountsByItsSteps) {
  StageSeconds seconds =
      stages({{kExchangeCounts, 2}, {kForwardBackward, 5}, {kUpdateDense, 1}, {kSyncReplicas, 1}},
             {{kSyncReplicas, 6}, {kExchangeIds, 1}});
  EXPECT_NEAR(step_of(seconds, "sync"), 9, kNear) << "there is none";
  // Beside the dense update and the next packing it has the link for 3.
  seconds.average_every = 1;
  EXPECT_NEAR(step_of(seconds, "sync"), 9 + 6 + 1 - 3, kNear);
  seconds.average_every = 4;
  EXPECT_NEAR(step_of(seconds, "sync"), 9 + 4.0 / 4.0, kNear);
}

spec::Config job(Sharding sharding, bool overlap, std::int64_t width) {
  spec::Config config = testing::make_config(
      {{.rows = 5000, .length = 3}, {.rows = 70'000, .length = 1}, {.rows = 800, .length = 7}});
  for (spec::Table& table : config.tables) {
    table.sharding = sharding;
  }
  config.model.top_mlp = {width};
  config.train.overlap = overlap;
  return config;
}

TEST(ScheduleWalk, SyncTakesWhatTheEstimateSays) {
  for (const Sharding sharding :
       {Sharding::kTableWise, Sharding::kRowWise, Sharding::kColumnWise, Sharding::kDataParallel}) {
    for (const auto& [overlap, width] : {std::pair(false, 32), {true, 32}, {true, 4000}}) {
      const spec::Config config = job(sharding, overlap, width);
      topology::Cluster cluster = topology::small_cluster({{2, 2}});
      cluster.compute.stage.value = 1e-6;
      const Workload workload = make_workload(config);
      const spec::Plan plan = make_plan(
          config, {.ranks = topology::ranks(cluster), .hosts = topology::rank_hosts(cluster)});
      const Estimator estimator(config, cluster, workload, plan.parts);
      const PlanCost cost = estimator.cost(plan);
      const double walked = step_of(stage_seconds(estimator.shape(), cost), "sync");
      double behind = 0.0;  // the all-reduce here
      for (const RankCost& rank : cost.ranks) {
        behind =
            std::max(behind, rank.seconds[at(kUpdateDense)] + rank.seconds[at(kExchangeCounts)]);
      }
      if (width > 32) {
        EXPECT_GT(walked, cost.step_s - 4.0 * cluster.compute.stage.value);
        EXPECT_LT(walked, cost.step_s + behind + 1e-9);
      } else {
        EXPECT_NEAR(walked, cost.step_s, 1e-9) << static_cast<int>(sharding) << overlap;
      }
    }
  }
}

/// Of its flops a third; what is moved belongs mostly to the rest.
TEST(ScheduleWalk, WeightGradientsAreAboutAThirdOfTheModel) {
  const spec::Config config = job(Sharding::kTableWise, true, 4000);
  const topology::Cluster cluster = topology::small_cluster({{1, 2}});
  const Workload workload = make_workload(config);
  const PlanCost cost = Estimator(config, cluster, workload, 8).cost(make_plan(config, 2));
  const double weights = cost.parts[at(kWeightGradients)];
  const double share = weights / (weights + cost.parts[at(kForwardBackward)]);
  EXPECT_GT(share, 0.2);
  EXPECT_LT(share, 0.4);
}

/// Two seconds of compute, of which half a second per fetch; the disk reads for longer.
StageSeconds with_reads(double reads) {
  StageSeconds seconds = stages({{kForwardBackward, 1.5}, {kFetch, 0.5}}, {});
  seconds.reads = {reads};
  return seconds;
}

/// A fetch begins its reads with its work, and ends with the later of both. A batch ahead hides
/// what compute takes of it; of a disk that takes longer the step is that.
TEST(ReadsOfAWalk, AreHiddenBehindTheBatchBefore) {
  for (const char* schedule : {"sync", "fwp"}) {
    EXPECT_NEAR(step_of(with_reads(0.25), schedule), 2.0, kNear) << schedule;
    EXPECT_NEAR(step_of(with_reads(1.0), schedule), 2.5, kNear) << schedule;
    EXPECT_NEAR(step_of(with_reads(3.0), schedule), 4.5, kNear) << schedule;
  }
  for (const char* schedule : {"prefetch", "dbp", "nested"}) {
    EXPECT_NEAR(step_of(with_reads(0.25), schedule), 2.0, kNear) << schedule;
    EXPECT_NEAR(step_of(with_reads(2.0), schedule), 2.0, kNear) << schedule;
    EXPECT_NEAR(step_of(with_reads(3.0), schedule), 3.0, kNear) << schedule;
  }
  StageSeconds one = with_reads(1.0);
  one.streams = Streams::kOne;  // nothing is beside anything
  EXPECT_NEAR(step_of(one, "dbp"), 2.5, kNear);
}

/// A rank whose disk is slow is waited for.
TEST(ReadsOfAWalk, AreOfEachRank) {
  StageSeconds seconds = with_reads(1.0);
  seconds.own.push_back(seconds.own[0]);
  seconds.reads.push_back(5.0);
  EXPECT_NEAR(step_of(seconds, "dbp"), 5.0, kNear);
}

/// A fetch that does something is handed over, of rows in memory it is not.
TEST(ReadsOfAWalk, HaveAHandOff) {
  StageSeconds seconds = stages({{kForwardBackward, 1.0}}, {});
  seconds.hand_off = 0.01;
  const double without = step_of(seconds, "sync");
  seconds.reads = {0.0};
  EXPECT_NEAR(step_of(seconds, "sync") - without, 0.01, kNear);
}

}  // namespace
}  // namespace weft::planner
