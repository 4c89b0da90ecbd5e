// Rows that are not all in memory: figures worked out by hand.
#include "weft/planner/tier_use.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/planner/place.h"
#include "weft/spec/config.h"

namespace weft::planner {
namespace {

using testing::make_config;
using testing::Use;

/// A job on one table whose rows are as frequent as any, on disks.
spec::Config on_disks(const Use& use, std::int64_t batch) {
  spec::Config config = make_config({use}, batch);
  config.data.synthetic.columns[0].zipf = 0.0;
  config.tables[0].memory.tier = spec::MemoryTier::kSsd;
  config.tables[0].memory.ways = 8;
  config.tiers.directories = {"/nowhere"};
  config.tiers.cache_bytes = 1 << 20;
  return config;
}

std::vector<ShardTier> tiers_on(const spec::Config& config, std::int64_t ranks) {
  const Workload workload = make_workload(config);
  return shard_tiers(config, workload, make_plan(config, ranks), HotUses(config, workload));
}

RowsAsked even_rows(double rows, double draws) {
  RowsAsked asked;
  asked.among.segments = {{.rows = rows, .share = 1.0}};
  asked.draws = draws;
  asked.all_draws = draws;
  return asked;
}

/// Fifteen rows of 260 bytes in a block of 4080, which with an entry of the footer of 16 bytes they
/// share; 8 bytes of an id each. A row of 5000 bytes has two blocks.
TEST(TierUse, BytesOnDisks) {
  EXPECT_DOUBLE_EQ(stored_row_bytes(260), 4112.0 / 15.0 + 8.0);
  EXPECT_DOUBLE_EQ(stored_id_bytes(260), 16.0 / 15.0 + 8.0);
  EXPECT_DOUBLE_EQ(stored_row_bytes(5000), 8192.0 + 16.0 + 8.0);
}

/// A table of 10,000 rows has three pages of 4096. Two of them with 4 bytes a row, one for each of
/// 500 slots, and 8 for each of three.
TEST(TierUse, BytesOfPlacesInMemory) {
  EXPECT_EQ(layout::lazy_place_bytes({.rows = 10'000, .slots = 500, .pages = 2}),
            3 * 8 + 2 * 16'384 + 500);
  // 313 pages of 32 rows are 20 slabs of 16, each 4096 bytes and its address; one node of 313
  // numbers of 4 bytes, and its address.
  EXPECT_EQ(layout::place_index_bytes(10'000, 313), 20 * 4104 + 313 * 4 + 8);
  EXPECT_EQ(layout::place_index_bytes(10'000, 0), 8);
}

/// Of R even rows any n draws leave out (1 - 1/R)^n, and a cache of S has each with S/R.
TEST(TierUse, MissesOfEvenRows) {
  const RowsAsked asked = even_rows(1000.0, 200.0);
  const double rows = 1000.0 * (1.0 - std::pow(0.999, 200.0));
  EXPECT_NEAR(step_rows(asked), rows, 1e-9);
  EXPECT_NEAR(missed_rows(asked, 400.0), 0.6 * rows, 1e-6);
  EXPECT_NEAR(missed_rows(asked, 900.0), 0.1 * rows, 1e-6);
  EXPECT_EQ(missed_rows(asked, 1000.0), 0.0);
  const double share = rows / 1000.0;
  EXPECT_NEAR(most_step_rows(asked), rows + 4.0 * std::sqrt(1000.0 * share * (1.0 - share)), 1e-9);
}

/// Ten rows have half of the ids. A cache of 10 slots has them as good as always, and little else.
TEST(TierUse, MissesOfFrequentRows) {
  RowsAsked asked = even_rows(10.0, 40.0);
  asked.among.segments = {{.rows = 10.0, .share = 0.5}, {.rows = 1e6, .share = 0.5}};
  const double rare = 20.0;  // of 40 ids, all different
  EXPECT_NEAR(step_rows(asked), 10.0 * (1.0 - std::pow(0.95, 40.0)) + rare, 1e-3);
  EXPECT_NEAR(missed_rows(asked, 1000.0), rare, 0.05);
}

/// A curve has what each of its caches has by itself, and falls ever slower.
TEST(TierUse, MissesOfEverLargerCaches) {
  RowsAsked asked = even_rows(1.0, 3000.0);
  for (const double zipf : {0.0, 0.8, 1.3}) {
    asked.among.segments = zipf_segments(2e6, zipf);
    MissCurve curve(asked);
    EXPECT_EQ(curve.all_rows(), 2e6);
    double before = curve.missed(1000.0);
    double spared = before;
    for (double slots = 2000.0; slots <= 2e6; slots += 1000.0) {
      const double missed = curve.missed(slots);
      EXPECT_LE(missed, before);
      EXPECT_LE(before - missed, spared + 1e-6) << zipf << " " << slots;
      if (static_cast<std::int64_t>(slots) % 100'000 == 0) {
        EXPECT_NEAR(missed, missed_rows(asked, slots), 1e-6 * (missed + 1e-3));
      }
      spared = before - missed;
      before = missed;
    }
    EXPECT_EQ(before, 0.0);
  }
}

/// Rows of 100 pages, a tenth of which exist; and of the first page all, of the second a third.
TEST(TierUse, PagesWithRows) {
  RowsAsked asked = even_rows(3200.0, 0.0);
  asked.draws = 1.0;
  asked.all_draws = std::log(0.9) / std::log1p(-1.0 / 3200.0);
  EXPECT_NEAR(existing_rows(asked), 320.0, 1e-6);
  EXPECT_NEAR(pages_of(asked, 3200, 32), 100.0 * (1.0 - std::pow(0.9, 32.0)), 1e-6);
  asked.among.by_frequency = true;
  asked.among.segments = {{.rows = 48.0, .share = 1.0}};
  asked.all_draws = 1e30;
  EXPECT_NEAR(pages_of(asked, 3200, 32), 2.0, 1e-9);
}

/// Rows of 32 columns of fp32 and a number of state: 132 bytes. 4096 ids of a step of 100,000 rows
/// on two ranks; an evaluation between two batches needs as many slots again.
TEST(TierUse, OfShards) {
  spec::Config config = on_disks({.rows = 100'000, .dim = 32, .length = 2}, 4096);
  config.tables[0].sharding = spec::Sharding::kRowWise;
  config.tables[0].optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  config.train.steps = 10;
  std::vector<ShardTier> tiers = tiers_on(config, 2);
  ASSERT_EQ(tiers.size(), 2U);
  const ShardTier& one = tiers[1];
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.row_bytes, 132);
  EXPECT_EQ(one.given_bytes, 1 << 20);  // all of its rank's
  const double rows = 50'000.0 * (1.0 - std::pow(1.0 - 1.0 / 50'000.0, 4096.0));
  EXPECT_NEAR(one.step_rows, rows, 1.0);
  EXPECT_NEAR(one.existing, 50'000.0 * (1.0 - std::pow(1.0 - 1.0 / 50'000.0, 40'960.0)), 1.0);
  // 132 bytes, 16 of number and mark, 4 of the list's next, and 4 of a list for each set of 8.
  const auto slots = static_cast<double>(one.cache.slots());
  EXPECT_NEAR(one.slot_bytes, 152.5 * slots, 100.0 + 0.5 * slots / 16.0);
  EXPECT_LE(one.slot_bytes, 1 << 20);
  EXPECT_NEAR(one.missed, rows * (1.0 - slots / 50'000.0), 1.0);
  EXPECT_EQ(one.fewest_slots, static_cast<std::int64_t>(std::ceil(one.most_step_rows)));
  config.train.eval_every = 5;
  EXPECT_EQ(tiers_on(config, 2)[1].fewest_slots, one.fewest_slots);
  config.pipeline.schedule = spec::PipelineSchedule::kDbp;
  EXPECT_EQ(tiers_on(config, 2)[1].fewest_slots, 2 * one.fewest_slots);
}

/// Row gradients of all groups are added in one update, so a cache holds the rows of all batches.
TEST(TierUse, CachesHoldTheRowsOfAllGroupsWhoseGradientsAreAdded) {
  spec::Config config = on_disks({.rows = 100'000, .dim = 32, .length = 2}, 4096);
  config.mesh = {.groups = 2, .sync = spec::SyncForm::kDense};
  const ShardTier averaged = tiers_on(config, 2)[0];
  config.mesh.sync = spec::SyncForm::kGradients;
  const ShardTier added = tiers_on(config, 2)[0];
  EXPECT_EQ(added.step_rows, averaged.step_rows);
  RowsAsked both = even_rows(100'000.0, 2.0 * added.step_ids);
  EXPECT_EQ(added.fewest_slots, static_cast<std::int64_t>(std::ceil(most_step_rows(both))));
  EXPECT_GT(static_cast<double>(added.fewest_slots),
            1.9 * static_cast<double>(averaged.fewest_slots));
}

/// Without steps and statistics of data in files nothing is known beyond one step.
TEST(TierUse, RowsThatExistOfUnknownData) {
  spec::Config config = on_disks({.rows = 1'000'000, .dim = 16}, 1000);
  config.data.synthetic.samples = 10'000;
  config.train.epochs = 2;
  const ShardTier known = tiers_on(config, 1)[0];
  EXPECT_NEAR(known.existing, 1e6 * (1.0 - std::exp(20'000.0 * std::log1p(-1e-6))), 1.0);
  Workload workload = make_workload(config);
  const spec::Plan plan = make_plan(config, 1);
  config.data.format = spec::DataFormat::kCriteo;
  EXPECT_EQ(shard_tiers(config, workload, plan, HotUses(config, workload))[0].existing,
            known.step_rows);
  workload.features[0].measured = true;
  EXPECT_NEAR(shard_tiers(config, workload, plan, HotUses(config, workload))[0].existing, 1e6,
              1e-6);
}

}  // namespace
}  // namespace weft::planner
