// Which schedule a plan gets, on which cluster.
#include "weft/planner/pipeline_choice.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "tests/topology/small_cluster.h"
#include "weft/base/at.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/place.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/search.h"
#include "weft/planner/tier_use.h"
#include "weft/spec/plan.h"

namespace weft::planner {
namespace {

using spec::PipelineSchedule;

/// Wide vectors and a model to compute beside them, in eight parts a rank.
spec::Config job() {
  spec::Config config = testing::make_config({{.rows = 50'000, .dim = 128, .length = 2},
                                              {.rows = 70'000, .dim = 128, .length = 1},
                                              {.rows = 90'000, .dim = 128, .length = 3},
                                              {.rows = 60'000, .dim = 128, .length = 1}});
  for (spec::Table& table : config.tables) {
    table.sharding = spec::Sharding::kTableWise;
  }
  config.model.top_mlp = {512, 256};
  config.numerics.parts = 32;
  return config;
}

/// `rate`: bytes per second between hosts.
topology::Cluster cluster_of(double rate, double latency) {
  topology::Cluster cluster = topology::small_cluster({{4, 1}});
  cluster.links.network.rank.value = rate;
  cluster.links.network.latency.value = latency;
  cluster.links.network.host = {};
  return cluster;
}

SearchResult found(const spec::Config& config, const topology::Cluster& cluster) {
  return search(config, cluster, make_workload(config));
}

TEST(PipelineChoice, SlowLinksAreHidden) {
  const SearchResult result = found(job(), cluster_of(2e8, 1e-6));
  ASSERT_EQ(result.pipelines.size(), 5U);
  const spec::Pipeline& chosen = result.best().plan.pipeline;
  EXPECT_EQ(chosen.schedule, PipelineSchedule::kNested);
  EXPECT_GE(chosen.micro_batches.sizes.size(), 2U);
  EXPECT_LT(result.step_s(), 0.98 * result.pipelines.front().step_s);
  for (const PipelineOption& option : result.pipelines) {
    EXPECT_GE(option.step_s, result.step_s()) << to_string(option.pipeline.schedule);
  }
}

TEST(PipelineChoice, OnIdleFastLinksSyncStays) {
  const SearchResult result = found(job(), cluster_of(1e13, 0.0));
  EXPECT_EQ(result.best().plan.pipeline.schedule, PipelineSchedule::kSync);
  EXPECT_EQ(result.pipeline, 0U);
  EXPECT_EQ(found(job(), topology::small_cluster({{1, 1}})).best().plan.pipeline.schedule,
            PipelineSchedule::kSync);
}

/// Rows on disks that are read more slowly than they are asked for: with a batch ahead reads take
/// the time of compute.
TEST(PipelineChoice, ReadsOfDisksAreHidden) {
  spec::Config config = job();
  for (spec::Table& table : config.tables) {
    table.memory.tier = spec::MemoryTier::kSsd;
  }
  config.tiers = {.directories = {"/rows"}, .cache_bytes = 40'000'000};
  topology::Cluster cluster = topology::small_cluster({{1, 1}});
  EXPECT_EQ(found(config, cluster).best().plan.pipeline.schedule, PipelineSchedule::kSync);
  cluster.disk.read_blocks.value = 1e7;
  const SearchResult result = found(config, cluster);
  const PlanCost& cost = result.best().cost;
  const FetchCost& fetch = cost.ranks[0].fetch;
  double blocks = 0.0;
  for (const ShardTier& tier : shard_tiers(config, make_workload(config), result.best().plan,
                                           HotUses(config, make_workload(config)))) {
    blocks += tier.blocks;
  }
  EXPECT_GT(blocks, 100.0);
  EXPECT_NEAR(fetch.disk_s, blocks / 1e7, 1e-9);
  EXPECT_EQ(cost.parts[at(StepPart::kFetch)], std::max(fetch.own_s, fetch.disk_s));
  cluster.disk.read_blocks.value = 2.5e5;
  const SearchResult slower = found(config, cluster);
  const SearchResult fast = found(config, topology::small_cluster({{1, 1}}));
  EXPECT_TRUE(
      pipeline::schedule_called(to_string(slower.best().plan.pipeline.schedule)).looks_ahead);
  EXPECT_LT(slower.step_s(), 0.98 * slower.pipelines.front().step_s);
  // Of sync, the step is longer by what the disk takes beyond the processor's work.
  const FetchCost& slow = slower.best().cost.ranks[0].fetch;
  EXPECT_NEAR(slower.best().cost.step_s - fast.best().cost.step_s, slow.disk_s - slow.own_s,
              1e-3 * slow.disk_s);
}

/// Tables that differ in how often their rows are asked for. The plan has their caches, and a step
/// that waits for reads is shorter than with caches by bytes; both are in the report.
TEST(PipelineChoice, CachesByCurvesShortenAStepThatWaitsForReads) {
  spec::Config config = job();
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    config.tables[t].memory.tier = spec::MemoryTier::kSsd;
    config.data.synthetic.columns[t].zipf = t % 2 == 0 ? 1.3 : 0.0;
  }
  config.tiers = {.directories = {"/rows"}, .cache_bytes = 40'000'000};
  config.train.steps = 10'000;
  config.train.eval_every = 10;
  config.pipeline.schedule = PipelineSchedule::kAuto;
  topology::Cluster cluster = topology::small_cluster({{1, 2}});
  cluster.disk.read_blocks.value = 1e5;
  const SearchResult by_curves = found(config, cluster);
  const spec::Plan& plan = by_curves.best().plan;
  ASSERT_TRUE(spec::has_caches(plan));
  EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "plan.yaml"), plan);
  check_plan(plan, config);
  for (const ShardTier& tier :
       shard_tiers(config, make_workload(config), plan, HotUses(config, make_workload(config)))) {
    EXPECT_GE(tier.cache.slots(), tier.fewest_slots) << "two batches of a chosen schedule";
  }
  const Workload workload = make_workload(config);
  const PlanReport report{config, cluster, workload, by_curves};
  EXPECT_NE(to_text(report).find("right: caches by bytes"), std::string::npos) << to_text(report);
  EXPECT_NE(to_json(report).find("\"by_bytes\""), std::string::npos);
  const std::string text = to_text(report);
  std::istringstream lines(text.substr(text.find("Reads of a step")));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 120U) << line;
  }
  config.tiers.division = spec::CacheDivision::kBytes;
  const SearchResult by_bytes = found(config, cluster);
  EXPECT_FALSE(spec::has_caches(by_bytes.best().plan));
  EXPECT_EQ(spec::plan_hash(by_bytes.best().plan), spec::plan_hash(plan)) << "they decide no bit";
  EXPECT_LT(by_curves.best().cost.step_s, 0.98 * by_bytes.best().cost.step_s);
  const PlanReport other{config, cluster, workload, by_bytes};
  EXPECT_EQ(to_text(other).find("right: caches by bytes"), std::string::npos);
  EXPECT_NE(to_text(other).find("Reads of a step"), std::string::npos);
}

TEST(PipelineChoice, OthersMustSaveTwoPercent) {
  std::vector<PipelineOption> options(3);
  options[0] = {.pipeline = {.schedule = PipelineSchedule::kSync}, .step_s = 1.0};
  options[1] = {.pipeline = {.schedule = PipelineSchedule::kPrefetch}, .step_s = 0.985};
  options[2] = {.pipeline = {.schedule = PipelineSchedule::kDbp}, .step_s = 0.99};
  EXPECT_EQ(choose_pipeline({}, options), 0U);
  options[2].step_s = 0.97;
  EXPECT_EQ(choose_pipeline({}, options), 2U);
  options[2].fits = false;
  EXPECT_EQ(choose_pipeline({}, options), 0U);
  EXPECT_EQ(choose_pipeline({.schedule = PipelineSchedule::kPrefetch}, options), 1U);
}

TEST(PipelineChoice, AConfiguredScheduleIsPredictedAndNotPlanned) {
  spec::Config config = job();
  config.pipeline = {
      .schedule = PipelineSchedule::kFwp, .micro_batches = {{1, 2, 1}}, .lookahead = 2};
  const SearchResult result = found(config, cluster_of(2e8, 1e-6));
  EXPECT_EQ(result.best().plan.pipeline, spec::Pipeline{});
  EXPECT_EQ(result.pipelines[result.pipeline].pipeline, config.pipeline);
  EXPECT_EQ(spec::pipeline_of(config.pipeline, result.best().plan), config.pipeline);
}

TEST(PipelineChoice, NoMoreMicroBatchesThanParts) {
  spec::Config config = job();
  for (const auto& [parts, most] : {std::pair<std::int64_t, std::size_t>{4, 1}, {8, 2}, {16, 4}}) {
    config.numerics.parts = parts;
    for (const PipelineOption& option : found(config, cluster_of(2e8, 1e-6)).pipelines) {
      if (cuts_batches(option.pipeline.schedule)) {
        EXPECT_LE(option.pipeline.micro_batches.sizes.size(), most);
      }
    }
  }
}

/// Two batches in flight must fit.
TEST(PipelineChoice, WhatDoesNotFitIsNotChosen) {
  topology::Cluster cluster = cluster_of(2e8, 1e-6);
  const SearchResult result = found(job(), cluster);
  const PipelineOption& sync = result.pipelines.front();
  const PipelineOption& chosen = result.pipelines[result.pipeline];
  EXPECT_GT(chosen.memory_bytes, sync.memory_bytes);
  cluster.memory.ddr.value =
      0.5 * (chosen.memory_bytes + sync.memory_bytes) / (1.0 - cluster.memory.reserve.value);
  const SearchResult less = found(job(), cluster);
  EXPECT_TRUE(less.best().fits());
  EXPECT_TRUE(less.pipelines[less.pipeline].fits);
  EXPECT_NE(less.best().plan.pipeline.schedule, PipelineSchedule::kNested);
}

/// A plan file says the choice, a configured schedule overrides it, and neither refuses the other.
TEST(PipelineChoice, StandsInThePlan) {
  spec::Config config = job();
  const spec::Plan plan = found(config, cluster_of(2e8, 1e-6)).best().plan;
  const std::string text = spec::plan_to_yaml(plan);
  EXPECT_NE(text.find("schedule: nested"), std::string::npos) << text;
  EXPECT_EQ(spec::plan_from_yaml(text, "plan.yaml"), plan);
  spec::Plan other = plan;
  other.pipeline = {};
  EXPECT_EQ(spec::plan_hash(other), spec::plan_hash(plan)) << "it decides no bit";
  config.pipeline.schedule = PipelineSchedule::kPrefetch;
  check_plan(plan, config);
  check_pins(plan, config);
  EXPECT_EQ(spec::pipeline_of(config.pipeline, plan).schedule, PipelineSchedule::kPrefetch);
}

}  // namespace
}  // namespace weft::planner
