// The ranks of a job as far as ids are concerned: each packs its batch, and what is packed for a
// rank is unpacked there. Tables need no memory here, so shards of more than 2^31 rows can be had,
// and as many ranks as one likes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/philox.h"
#include "weft/layout/id_lanes.h"
#include "weft/planner/place.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"

namespace weft::sharding::id_ranks {

inline constexpr std::int64_t kParts = 8;

inline std::uint64_t draw(std::uint64_t seed, std::uint64_t what) {
  const auto words = philox(random_key(seed, RandomPurpose::kTest), what, 2);
  return (std::uint64_t{words[0]} << 32) | words[1];
}

/// Tables small and huge, each by its own scheme; features weighted, sequences, often empty.
inline spec::Config make_config(std::uint64_t seed) {
  constexpr std::array<std::int64_t, 4> kRows = {1, 50, 100'000, 10'000'000'000};
  constexpr std::array<spec::Sharding, 5> kShardings = {
      spec::Sharding::kTableWise, spec::Sharding::kRowWise, spec::Sharding::kColumnWise,
      spec::Sharding::kDataParallel, spec::Sharding::kGridShard};
  spec::Config config;
  for (std::uint64_t i = 0; i < 6; ++i) {
    spec::Table table;
    table.name = "t" + std::to_string(i);
    table.num_embeddings = kRows[draw(seed, i) % kRows.size()];
    table.embedding_dim = 40;
    table.sharding = kShardings[draw(seed, 10 + i) % kShardings.size()];
    table.row_split =
        draw(seed, 50 + i) % 2 == 0 ? spec::RowSplit::kRange : spec::RowSplit::kModulo;
    config.tables.push_back(table);
    spec::SparseFeature feature;
    feature.name = feature.column = "f" + std::to_string(i);
    feature.table = table.name;
    feature.weighted = draw(seed, 20 + i) % 3 == 0;
    feature.pooling = draw(seed, 30 + i) % 3 == 0 ? spec::Pooling::kNone : spec::Pooling::kSum;
    config.sparse_features.push_back(feature);
  }
  return config;
}

inline KeyedJaggedTensor make_batch(const spec::Config& config,
                                    std::uint64_t seed,
                                    Range positions) {
  KeyedJaggedTensor batch;
  batch.batch = positions.size();
  batch.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    batch.keys.push_back(config.sparse_features[f].name);
    const auto rows = static_cast<std::uint64_t>(config.tables[f].num_embeddings);
    // Features without an empty bag, with some, and with nothing else.
    const std::uint64_t kind = draw(seed, 40 + f) % 4;
    for (std::int64_t p = positions.begin; p < positions.end; ++p) {
      const std::uint64_t random = draw(seed, 1000 * (f + 1) + static_cast<std::uint64_t>(p));
      const std::uint64_t length = kind == 0 ? 0 : kind == 1 ? 1 + random % 3 : random % 4;
      for (std::uint64_t i = 0; i < length; ++i) {
        batch.values.push_back(static_cast<std::int64_t>(draw(random, i) % rows));
        batch.weights.push_back(static_cast<float>(draw(random, 50 + i) % 100));
      }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
    }
  }
  return batch;
}

/// All ranks of a job, as far as ids are concerned.
struct Ranks {
  Ranks(const spec::Config& job, int count, std::uint64_t seed_of_batch, std::int64_t samples)
      : config(job), plan(make_plan(job, count)), routing(config, plan), size(samples), pool(2) {
    for (int r = 0; r < count; ++r) {
      batches.push_back(
          make_batch(config, seed_of_batch, rank_samples(size, parts_of(count), count, r)));
      paths.push_back(std::make_unique<Paths>(config, routing, r));
      asked.emplace_back(routing, r);
    }
    for (std::size_t r = 0; r < paths.size(); ++r) {
      pack(r, size);
    }
  }

  void pack(std::size_t rank, std::int64_t global_size) {
    const BatchView batch{
        .sparse = batches[rank], .step = 1, .global_size = global_size, .sample_ids = {}};
    IdPacker(*paths[rank]).pack(pool, batch, asked[rank]);
  }

  /// One of each rank at least.
  static std::int64_t parts_of(int count) { return std::max<std::int64_t>(kParts, count); }

  static spec::Plan make_plan(const spec::Config& job, int count) {
    planner::RankLayout target{.ranks = count};
    for (int r = 0; r < count; ++r) {
      target.hosts.push_back(r / 2);  // of two ranks, the last perhaps of one
    }
    spec::Plan plan = planner::make_plan(job, target);
    plan.parts = parts_of(count);
    return plan;
  }

  /// What rank `server` is told of the sizes.
  [[nodiscard]] std::vector<std::vector<SlotCounts>> counts(std::int64_t server) const {
    std::vector<std::vector<SlotCounts>> counts(paths.size());
    const std::int64_t slots = routing.num_slots(server);
    for (std::size_t r = 0; r < paths.size(); ++r) {
      for (std::int64_t j = 0; j < slots; ++j) {
        counts[r].push_back(asked[r].counts_of({server, j}));
      }
    }
    return counts;
  }

  const spec::Config& config;
  spec::Plan plan;
  Routing routing;
  std::int64_t size;
  ThreadPool pool;
  std::vector<KeyedJaggedTensor> batches;
  std::vector<std::unique_ptr<Paths>> paths;
  std::vector<AskedIds> asked;
};

/// The blocks [slots][ranks], where there is none one without ids.
inline std::vector<IncomingBlock> all_blocks(const IncomingBlocks& blocks,
                                             const Routing& routing,
                                             std::int64_t server) {
  std::vector<IncomingBlock> all;
  for (std::int64_t j = 0; j < routing.num_slots(server); ++j) {
    for (std::int64_t r = 0; r < routing.ranks; ++r) {
      all.push_back(blocks.of(j, r));
    }
  }
  return all;
}

/// Unpacks at `server` what all others have packed: where they hold it, or received first.
inline std::vector<IncomingBlock> unpack(Ranks& ranks,
                                         std::int64_t server,
                                         ServedIds& served,
                                         bool lent) {
  const std::size_t world = ranks.paths.size();
  IncomingBlocks blocks;
  const IdReceiver receiver(*ranks.paths[static_cast<std::size_t>(server)], lent,
                            std::vector<int>(world));
  const bool packed = layout::packs_id_lanes(ranks.routing.ranks);
  const std::vector<std::vector<SlotCounts>> counts = ranks.counts(server);
  if (packed) {
    std::vector<std::int64_t> lane_bytes;
    for (std::size_t r = 0; r < world; ++r) {
      lane_bytes.push_back(comm::Lane{.pieces = ranks.asked[r].lane(server)}.bytes());
    }
    receiver.expect_lanes(lane_bytes, served);
  } else {
    for (std::size_t r = 0; r < world; ++r) {
      receiver.take_counts(ranks.size, static_cast<std::int64_t>(r), counts[r], served);
    }
    receiver.lay_out(ranks.size, served, blocks);
  }
  std::vector<comm::Lane> arrived(world);
  for (std::size_t r = 0; r < world; ++r) {
    if (static_cast<std::int64_t>(r) == server) {
      continue;
    }
    const auto sent = ranks.asked[r].lane(server);
    const std::span<const comm::Piece> expected = served.lanes.of(static_cast<std::int64_t>(r));
    EXPECT_EQ(sent.size(), expected.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(sent[i].bytes, expected[i].bytes);
      if (!lent && sent[i].bytes > 0) {
        std::memcpy(expected[i].data, sent[i].data, static_cast<std::size_t>(sent[i].bytes));
      }
    }
    arrived[r] = {.pieces = lent ? sent : expected};
  }
  if (packed) {
    receiver.read_lanes(ranks.pool, ranks.size, arrived, served);
    for (std::size_t r = 0; r < world; ++r) {
      std::size_t with_ids = 0;
      for (std::size_t j = 0; j < counts[r].size() && static_cast<std::int64_t>(r) != server; ++j) {
        with_ids += counts[r][j].ids > 0 ? 1 : 0;
      }
      EXPECT_EQ(served.arrived_of(static_cast<std::int64_t>(r)).size(), with_ids);
      for (const ArrivedSlot& one : served.arrived_of(static_cast<std::int64_t>(r))) {
        const SlotCounts& asked = counts[r][at(one.slot)];
        EXPECT_EQ(one.counts.batch, asked.batch);
        EXPECT_EQ(one.counts.length_bytes, asked.length_bytes);
        EXPECT_EQ(one.counts.bag_bytes, asked.bag_bytes);
        EXPECT_EQ(one.counts.ids, asked.ids);
        EXPECT_EQ(one.counts.packed_bytes, asked.packed_bytes);
      }
    }
    receiver.lay_out(ranks.size, served, blocks);
  }
  receiver.unpack(ranks.pool, arrived, served, blocks);
  return all_blocks(blocks, ranks.routing, server);
}

}  // namespace weft::sharding::id_ranks
