// Tables with hot rows, which every rank has a copy of, beside any scheme of the others.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"
#include "weft/sharding/row_owner.h"

namespace weft::sharding {
namespace {

constexpr std::array<spec::Sharding, 6> kTails = {
    spec::Sharding::kTableWise,    spec::Sharding::kRowWise,         spec::Sharding::kColumnWise,
    spec::Sharding::kTableRowWise, spec::Sharding::kTableColumnWise, spec::Sharding::kGridShard};

/// Which rows: a range from row 0 on, as a vocabulary has it, or scattered ones, as hashing has it.
enum class Rows { kFirst, kScattered };

std::vector<Range> hot_rows_of(const spec::Table& table, Rows rows) {
  if (rows == Rows::kFirst || table.num_embeddings < 8) {
    return {{0, (table.num_embeddings + 3) / 4}};
  }
  std::vector<Range> hot = {{0, 2}};
  for (std::int64_t row = 7; row + 2 < table.num_embeddings; row += 9) {
    hot.push_back({row, row + 1 + row % 2});
  }
  return hot;
}

spec::Plan hot_plan(const spec::Config& config, int ranks, Rows rows) {
  spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    plan.tables[t].hot = hot_rows_of(config.tables[t], rows);
  }
  return plan;
}

void pool_at(spec::Plan& plan, spec::PooledAt place) {
  for (spec::TablePlan& table : plan.tables) {
    table.pooled_at = place;
  }
}

class HotRows : public ::testing::TestWithParam<SparseOptimizerKind> {};

TEST_P(HotRows, GiveTheHashOfTheUnsplitTableByAnyScheme) {
  spec::SparseOptimizer optimizer = make_optimizer(GetParam());
  optimizer.max_norm = 0.5;
  spec::Config config = make_config(spec::Sharding::kTableWise, optimizer);
  config.tables[1].dtype = spec::RowDType::kSplitBf16;
  config.tables[2].dtype = spec::RowDType::kBf16;  // rounded by the number of the row
  const RunResult expected = run(config, {});
  for (const spec::Sharding tail : kTails) {
    for (spec::Table& table : config.tables) {
      table.sharding = tail;
      table.row_split =
          tail == spec::Sharding::kRowWise ? spec::RowSplit::kModulo : spec::RowSplit::kRange;
    }
    for (const int ranks : {1, 3, 4}) {
      spec::Plan plan = hot_plan(config, ranks, ranks == 3 ? Rows::kFirst : Rows::kScattered);
      for (const auto place : {spec::PooledAt::kOwner, spec::PooledAt::kSample}) {
        pool_at(plan, place);
        EXPECT_EQ(run(config, {.ranks = ranks, .plan = &plan}).hash, expected.hash)
            << fmt::format("tail {}, {} ranks, pooled at {}", static_cast<int>(tail), ranks,
                           static_cast<int>(place));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, HotRows, ::testing::ValuesIn(kSparseOptimizers));

TEST(HotRows, OfIntegersGiveEqualVectors) {
  const std::vector<std::int64_t> sizes = {29, 3, 1, 600, 29};
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {.sizes = sizes});
  for (const spec::Sharding tail : kTails) {
    const spec::Config config = make_integer_config(tail);
    for (const int ranks : {1, 2, 5, 8}) {
      for (const Rows rows : {Rows::kFirst, Rows::kScattered}) {
        const spec::Plan plan = hot_plan(config, ranks, rows);
        const DeviceKind device = ranks == 5 ? DeviceKind::kCheck : DeviceKind::kCpu;
        expect_equal(run(config, {.ranks = ranks, .device = device, .sizes = sizes, .plan = &plan}),
                     expected, fmt::format("tail {}, {} ranks", static_cast<int>(tail), ranks));
      }
    }
  }
}

/// Rounded gradients and rows, so that another order of addition would show.
TEST(HotRows, KeepEveryBitWhereNoBagIsSplit) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  for (const bool at_sample : {false, true}) {
    RunOptions options{.sizes = {29, 64, 7}, .gradients = Gradients::kRounded};
    options.most_ids = at_sample ? 4 : 1;
    const RunResult expected = run(make_config(spec::Sharding::kTableWise, optimizer), options);
    for (const spec::Sharding tail : kTails) {
      spec::Config config = make_config(tail, optimizer);
      for (const int ranks : {1, 2, 3, 7}) {
        config.codecs.ids = ranks % 2 == 0 ? spec::IdCodec::kNarrow : spec::IdCodec::kPacked;
        spec::Plan plan = hot_plan(config, ranks, Rows::kScattered);
        pool_at(plan, at_sample ? spec::PooledAt::kSample : spec::PooledAt::kOwner);
        options.ranks = ranks;
        options.plan = &plan;
        expect_equal(run(config, options), expected,
                     fmt::format("tail {}, {} ranks, at sample {}", static_cast<int>(tail), ranks,
                                 at_sample));
      }
    }
  }
}

TEST(HotRows, StayWithinTheBoundWhereBagsAreSplit) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  const spec::Config config = make_config(spec::Sharding::kTableWise, optimizer);
  RunOptions options{.sizes = {200}};
  const RunResult expected = run(config, options);
  const spec::Plan plan = hot_plan(config, 4, Rows::kScattered);
  options.ranks = 4;
  options.plan = &plan;
  const RunResult got = run(config, options);
  ASSERT_EQ(got.pooled.size(), expected.pooled.size());
  // Four terms, each a row of at most 1 / sqrt(1) times a weight of at most 3.
  const float bound = 4.0F * 4.0F * 3.0F * 0x1.0p-24F;
  std::int64_t different = 0;
  for (std::size_t i = 0; i < got.pooled.size(); ++i) {
    ASSERT_NEAR(got.pooled[i], expected.pooled[i], bound) << "element " << i;
    different += got.pooled[i] != expected.pooled[i] ? 1 : 0;
  }
  EXPECT_GT(different, 0) << "no bag was split: the test shows nothing";
  EXPECT_EQ(got.sequences, expected.sequences);
}

TEST(HotPlaces, AreFoundByTheirNumbers) {
  const std::vector<std::vector<Range>> choices = {
      {{0, 5}}, {{3, 4}}, {{0, 1}, {2, 3}}, {{1, 9}, {64, 66}, {128, 129}, {4096, 4100}}};
  for (const std::vector<Range>& hot : choices) {
    const HotPlaces places(hot);
    std::int64_t place = 0;
    for (std::int64_t row = 0; row < 5000; ++row) {
      const bool inside = std::any_of(hot.begin(), hot.end(), [row](const Range& range) {
        return range.begin <= row && row < range.end;
      });
      ASSERT_EQ(places.place_of(row), inside ? place++ : -1) << "row " << row;
    }
  }
}

/// Nothing of hot rows travels but their gradients' partial sums.
TEST(HotRows, IdsStayOnTheRank) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  spec::Config config;
  config.seed = 7;
  config.tables = {make_table("t", 97, 16)};
  config.tables[0].optimizer = optimizer;
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  spec::Plan plan = planner::make_plan(config, two_hosts(2));
  plan.parts = kParts;
  const auto served_ids = [&] {
    std::int64_t ids = 0;
    comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
      const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
      ShardedEmbeddings embeddings(config, plan, world, *device, {});
      const auto sparse = embeddings.make_step();
      const auto stream = device->make_stream({.name = "test", .is_inline = true});
      const Range positions = rank_samples(64, kParts, 2, world.rank());
      const KeyedJaggedTensor batch = make_batch(config, 1, positions);
      const BatchView view{.sparse = batch, .step = 1, .global_size = 64, .sample_ids = {}};
      const std::vector<std::byte> control(8);
      stream->enqueue(
          [&](Context& ctx) { embeddings.exchange_counts(ctx, *sparse, view, control); });
      stream->enqueue([&](Context& ctx) { embeddings.exchange_ids(ctx, *sparse); });
      stream->enqueue([&](Context& ctx) { embeddings.lookup(ctx, *sparse); });
      stream->synchronize();
      std::int64_t own = 0;
      for (const TableReads& reads : embeddings.reads()) {
        own += world.rank() == plan.tables[0].shards[0].rank ? 0 : reads.rows;
      }
      stream->enqueue([&](Context& ctx) {
        world.all_reduce(ctx, &own, 1);
        if (world.rank() == 0) {
          ids = own;
        }
      });
      stream->synchronize();
    });
    return ids;  // looked up by the rank without the shard
  };
  EXPECT_EQ(served_ids(), 0);
  plan.tables[0].hot = {{0, 1}};
  EXPECT_GT(served_ids(), 10);  // a third of the ids of half of 64 samples
}

}  // namespace
}  // namespace weft::sharding
