// What Routing keeps of many ranks, and that rules say what lists would.
#include "weft/sharding/routing.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"
#include "weft/base/at.h"
#include "weft/planner/place.h"
#include "weft/sharding/id_packer.h"

namespace weft::sharding {
namespace {

/// `cut` tables that are cut by rows over all ranks, each with a feature, and `whole` behind them.
spec::Config tables_config(std::int64_t cut, std::int64_t whole) {
  spec::Config config;
  for (std::int64_t i = 0; i < cut + whole; ++i) {
    spec::Table table;
    table.name = "t" + std::to_string(i);
    table.num_embeddings = 40'000;
    table.embedding_dim = 16;
    table.sharding = i < cut ? spec::Sharding::kRowWise : spec::Sharding::kTableWise;
    table.row_split = i % 2 == 0 ? spec::RowSplit::kRange : spec::RowSplit::kModulo;
    config.tables.push_back(table);
    spec::SparseFeature feature;
    feature.name = feature.column = "f" + std::to_string(i);
    feature.table = table.name;
    config.sparse_features.push_back(feature);
  }
  return config;
}

Routing routing_of(const spec::Config& config, std::int64_t ranks) {
  spec::Plan plan = planner::make_plan(config, {.ranks = static_cast<int>(ranks)});
  plan.parts = std::max<std::int64_t>(plan.parts, ranks);
  return {config, plan};
}

/// Four bytes a rank, and what tables take; before, 150 and more bytes for each rank and table.
TEST(RoutingMemory, OfTablesThatAllRanksHaveGrowsByFourBytesARank) {
  const spec::Config config = tables_config(100, 0);
  const std::int64_t of_64 = routing_of(config, 64).heap_bytes();
  for (const std::int64_t ranks : {512, 4096}) {
    const Routing routing = routing_of(config, ranks);
    EXPECT_EQ(routing.num_slots(ranks - 1), 100);
    EXPECT_LE(routing.heap_bytes() - of_64, 4 * 2 * (ranks - 64)) << ranks << " ranks";
  }
  EXPECT_LT(of_64, 100 * 1500);
}

/// Whole tables make lists of servers differ, each entry of which takes 8 bytes.
TEST(RoutingMemory, OfMixedPlansIsEightBytesASlotAtMost) {
  constexpr std::int64_t kCut = 100;
  constexpr std::int64_t kWhole = 60;
  const spec::Config config = tables_config(kCut, kWhole);
  const std::int64_t of_64 = routing_of(config, 64).heap_bytes();
  for (const std::int64_t ranks : {512, 4096}) {
    const std::int64_t bytes = routing_of(config, ranks).heap_bytes();
    EXPECT_LE(bytes - of_64, (4 * 2 + 24) * ranks + 8 * (kCut + 1) * kWhole) << ranks << " ranks";
  }
}

/// What a rank keeps of the slots that it asks grows with those that its batch asks, and by a set
/// of bits: before, by 80 bytes for every slot of every server.
TEST(AskedMemory, GrowsByTwoBitsASlotBeyondWhatIsAsked) {
  constexpr std::int64_t kTables = 100;
  constexpr std::int64_t kSamples = 16;
  const spec::Config config = tables_config(kTables, 0);
  for (const std::int64_t ranks : {64, 512, 4096}) {
    const Routing routing = routing_of(config, ranks);
    const Paths paths(config, routing, 1);
    AskedIds asked(routing, 1);
    const KeyedJaggedTensor batch = id_ranks::make_batch(config, 7, {0, kSamples});
    ThreadPool pool(1);
    IdPacker(paths).pack(
        pool, {.sparse = batch, .step = 1, .global_size = kSamples * ranks, .sample_ids = {}},
        asked);
    const auto ids = std::ssize(batch.values);
    ASSERT_GT(ids, kTables * 5);
    EXPECT_LE(asked.num_places, routing.num_listed + ids + kTables) << ranks << " ranks";
    EXPECT_EQ(std::ssize(asked.slots), asked.num_places);
    EXPECT_EQ(std::ssize(asked.bags.sections), asked.num_places);
    EXPECT_EQ(asked.server_begins.back() + 0, std::ssize(asked.server_slots));
    EXPECT_LE(asked.present.heap_bytes(), 2 * kTables * (ranks + 64) / 8);
  }
}

void expect_slots_of_plan(const Routing& routing,
                          const spec::Plan& plan,
                          const RowCuts& cuts,
                          std::int64_t table) {
  const spec::TablePlan& of = plan.tables[at(table)];
  if (of.sharding == spec::Sharding::kDataParallel) {
    return;
  }
  ASSERT_EQ(cuts.tail_cuts * cuts.col_cuts, static_cast<std::int64_t>(of.shards.size()));
  for (std::int64_t k = 0; k < cuts.tail_cuts; ++k) {
    const CutSlots slots = routing.row_cut(cuts, k);
    ASSERT_EQ(static_cast<std::int64_t>(slots.size()), cuts.col_cuts);
    for (std::size_t c = 0; c < slots.size(); ++c) {
      const std::size_t shard = at(k * cuts.col_cuts) + c;
      const Slot slot = routing.slot(slots[c]);
      EXPECT_EQ(slots[c].server, of.shards[shard].rank);
      EXPECT_EQ(slot.table, table);
      EXPECT_EQ(slot.shard, static_cast<std::int64_t>(shard));
      EXPECT_EQ(slot.row_cut, k);
      EXPECT_EQ(slot.rows, of.shards[shard].rows);
      EXPECT_EQ(slot.cols, of.shards[shard].cols);
      EXPECT_EQ(routing.row_cut(slots[c]), k);
      EXPECT_LE(slot.rows.size(),
                std::int64_t{1} << (8 * std::min<std::int64_t>(slot.id_bytes, 7)));
    }
  }
}

/// Tables of fewer rows than ranks too, whose rule gives some ranks nothing.
TEST(Routing, SaysWhatThePlanSays) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const spec::Config config = id_ranks::make_config(seed);
    const int ranks = static_cast<int>(2 + id_ranks::draw(seed, 99) % 70);
    const spec::Plan plan = id_ranks::Ranks::make_plan(config, ranks);
    const Routing routing(config, plan);
    std::int64_t slots = 0;
    for (const FeatureRoute& route : routing.features) {
      expect_slots_of_plan(routing, plan, route, route.table);
      slots += route.tail_cuts * route.col_cuts;
    }
    std::int64_t served = 0;
    for (std::int64_t server = 0; server <= routing.replicated(); ++server) {
      const std::vector<Slot> all = routing.slots_of(server);
      served += std::ssize(all);
      EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const Slot& a, const Slot& b) {
        return a.feature != b.feature ? a.feature < b.feature : a.shard < b.shard;
      }));
    }
    EXPECT_EQ(served, slots);
  }
}

/// Slots are those of row_cut() in any order of cuts, and where lists of servers take turns.
TEST(Routing, SlotsOfARuleAreFoundOneAfterTheOther) {
  std::int64_t found = 0;
  const auto expect_found = [&](const Routing& routing) {
    for (const FeatureRoute& route : routing.features) {
      if (!route.regular) {
        continue;
      }
      Routing::RuleSlots slots(routing, route);
      const std::int64_t cuts = route.row_cuts();
      for (std::int64_t k = 0; k < cuts; ++k) {
        for (const std::int64_t cut : {k, cuts - 1 - k}) {
          EXPECT_EQ(slots.of(cut), routing.row_cut(route, cut).front()) << route.name << " " << cut;
          ++found;
        }
      }
    }
  };
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const spec::Config config = id_ranks::make_config(seed);
    expect_found({config, id_ranks::Ranks::make_plan(config, static_cast<int>(9 + seed))});
  }
  expect_found(routing_of(tables_config(6, 5), 24));  // whole tables on some ranks
  EXPECT_GT(found, 1000);
}

}  // namespace
}  // namespace weft::sharding
