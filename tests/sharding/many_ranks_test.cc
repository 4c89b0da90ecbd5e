// More ranks than a table's cuts are listed for: what rules and lists of what has ids give is what
// one rank gives.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "weft/sharding/routing.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kManyParts = 32;

/// The rows of every second table, its first and some behind, are hot.
void make_hot(const spec::Config& config, spec::Plan& plan) {
  for (std::size_t t = 0; t < plan.tables.size(); t += 2) {
    const std::int64_t rows = config.tables[t].num_embeddings;
    plan.tables[t].hot = {{0, 1}};
    if (rows > 4) {
      plan.tables[t].hot.push_back({3, 4});
    }
  }
}

TEST(ManyRanks, GiveTheVectorsAndStateOfOne) {
  spec::Config config = make_integer_config(spec::Sharding::kTableWise);
  const RunResult one = run(config, {.steps = 2, .parts = kManyParts});
  for (const int ranks : {9, 13, 24}) {
    for (const bool is_hot : {false, true}) {
      for (const spec::PooledAt place : {spec::PooledAt::kOwner, spec::PooledAt::kSample}) {
        for (spec::Table& table : config.tables) {
          table.sharding = spec::Sharding::kRowWise;
          table.row_split = ranks == 13 ? spec::RowSplit::kModulo : spec::RowSplit::kRange;
        }
        spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
        plan.parts = kManyParts;
        for (spec::TablePlan& table : plan.tables) {
          table.pooled_at = place;
        }
        if (is_hot) {
          make_hot(config, plan);
        }
        const bool is_cut = ranks != 13 || is_hot;
        config.pipeline.schedule =
            is_cut ? spec::PipelineSchedule::kNested : spec::PipelineSchedule::kSync;
        config.pipeline.micro_batches = {{2, 1, 1}};
        const Routing routing(config, plan);
        EXPECT_GT(routing.num_by_rule, 0) << "no cut is a rule";
        expect_equal(run(config, {.ranks = ranks, .steps = 2, .plan = &plan, .parts = kManyParts}),
                     one,
                     fmt::format("{} ranks, hot {}, pooled at {}, cut {}", ranks, is_hot,
                                 static_cast<int>(place), is_cut));
      }
    }
  }
}

/// Blocks whose bags have one id each leave no gap behind them, so that those of a slot are two
/// jobs, before and behind the rank's own block, which is one too. A block of many vectors is a
/// job.
TEST(ManyRanks, SmallBlocksShareJobs) {
  spec::Config config = make_integer_config(spec::Sharding::kRowWise);
  constexpr std::int64_t kFewSamples = 40;
  constexpr std::int64_t kManySamples = 4000;
  for (const std::int64_t samples : {kFewSamples, kManySamples}) {
    const RunResult got = run(config, {.ranks = 24,
                                       .samples = 24 * samples,
                                       .steps = 1,
                                       .most_ids = 1,
                                       .threads = 1,
                                       .parts = kManyParts});
    const Routing routing(config, planner::make_plan(config, two_hosts(24)));
    const std::int64_t slots = routing.num_slots(0);
    if (samples == kFewSamples) {
      EXPECT_GT(got.blocks, 4 * slots);
      EXPECT_LE(got.lookups, 3 * slots);
    } else {
      EXPECT_GT(got.lookups, 12 * slots);
    }
  }
}

}  // namespace
}  // namespace weft::sharding
