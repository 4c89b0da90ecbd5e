// Both ends of the exchange of ids without ranks: every rank's batch is packed, what is packed for
// a rank is unpacked there, and what comes out is compared with the batch itself. Tables need no
// memory here, so shards of more than 2^31 rows can be had.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/planner/place.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"
#include "weft/sharding/row_owner.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kParts = 8;

std::uint64_t draw(std::uint64_t seed, std::uint64_t what) {
  const auto words = philox(random_key(seed, RandomPurpose::kTest), what, 2);
  return (std::uint64_t{words[0]} << 32) | words[1];
}

TEST(RowOwner, IsTheFirstRangeThatEndsBehindTheRow) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::int64_t most = std::int64_t{1} << (1 + draw(seed, 0) % 40);
    std::vector<RowSet> cuts;
    std::vector<std::int64_t> rows = {0};
    std::int64_t end = 0;
    for (std::uint64_t k = 0; k <= draw(seed, 1) % 20; ++k) {
      const std::int64_t begin = end;
      end += 1 + static_cast<std::int64_t>(draw(seed, 10 + k) % static_cast<std::uint64_t>(most));
      cuts.emplace_back(begin, end);
      rows.insert(rows.end(), {begin, end - 1});
    }
    const RangeOwner owner(cuts);
    for (std::uint64_t i = 0; i < 100; ++i) {
      rows.push_back(
          static_cast<std::int64_t>(draw(seed, 100 + i) % static_cast<std::uint64_t>(end)));
    }
    for (const std::int64_t row : rows) {
      const auto has = [row](const RowSet& cut) { return cut.contains(row); };
      const auto expected = std::find_if(cuts.begin(), cuts.end(), has);
      const RowPlace place = owner.place_of(row);
      ASSERT_EQ(static_cast<std::ptrdiff_t>(place.cut), expected - cuts.begin())
          << "row " << row << ", seed " << seed;
      ASSERT_EQ(place.index, row - expected->begin);
    }
  }
}

TEST(RowOwner, OfEveryNthRowIsQuotientAndRemainder) {
  for (const std::int64_t cuts : {1, 2, 3, 4, 5, 7, 8, 12, 64, 100, 1023, 65536}) {
    const ModuloOwner owner(cuts);
    const auto check = [&](std::int64_t row) {
      const RowPlace place = owner.place_of(row);
      ASSERT_EQ(static_cast<std::int64_t>(place.cut), row % cuts) << row << " of " << cuts;
      ASSERT_EQ(place.index, row / cuts) << row << " of " << cuts;
    };
    for (std::int64_t row = 0; row < 3000; ++row) {
      check(row);
    }
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const auto row = static_cast<std::int64_t>(draw(1, i) >> (1 + i % 40));
      check(row);
      check(row / cuts * cuts);  // either side of a quotient's edge
      check(row < cuts ? row : row / cuts * cuts - 1);
    }
    check(std::numeric_limits<std::int64_t>::max());
  }
}

/// Tables small and huge, each by its own scheme; features weighted, sequences, often empty.
spec::Config make_config(std::uint64_t seed) {
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

KeyedJaggedTensor make_batch(const spec::Config& config, std::uint64_t seed, Range positions) {
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

/// One bag in a shard, as read off the batch.
struct PlainBag {
  std::int64_t sample = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

std::vector<PlainBag> plain_bags(const KeyedJaggedTensor& batch, const Slot& slot) {
  std::vector<PlainBag> bags;
  const JaggedView view = batch.feature(slot.feature);
  for (std::int64_t b = 0; b < batch.batch; ++b) {
    PlainBag bag{.sample = b, .ids = {}, .weights = {}};
    for (std::int64_t i = 0; i < view.length(b); ++i) {
      const std::int64_t at = view.offsets[static_cast<std::size_t>(b)] + i;
      const std::int64_t id = view.values[at];
      if (slot.rows.contains(id)) {
        bag.ids.push_back(slot.rows.index(id));
        bag.weights.push_back(view.weights[at]);
      }
    }
    bags.push_back(std::move(bag));
  }
  return bags;
}

/// The arrays of a block, from its first id on.
struct BlockArrays {
  const std::int64_t* ids;
  const std::int64_t* offsets;
  const float* weights;
};

void expect_run(const BlockArrays& arrays,
                const BagRun& run,
                const std::vector<PlainBag>& bags,
                bool weighted) {
  ASSERT_EQ(run.bags, static_cast<std::int64_t>(bags.size()));
  const std::int64_t* const offsets = arrays.offsets + run.offsets_begin;
  for (std::size_t b = 0; b < bags.size(); ++b) {
    const std::vector<std::int64_t> ids(arrays.ids + offsets[b], arrays.ids + offsets[b + 1]);
    EXPECT_EQ(ids, bags[b].ids);
    if (weighted) {
      const std::vector<float> weights(arrays.weights + offsets[b],
                                       arrays.weights + offsets[b + 1]);
      EXPECT_EQ(weights, bags[b].weights);
    }
  }
}

std::vector<PlainBag> without_empty(std::vector<PlainBag> bags) {
  std::erase_if(bags, [](const PlainBag& bag) { return bag.ids.empty(); });
  return bags;
}

/// All ranks of a job, as far as ids are concerned.
struct Ranks {
  Ranks(const spec::Config& job, int count, std::uint64_t seed_of_batch, std::int64_t samples)
      : config(job), plan(make_plan(job, count)), routing(config, plan), size(samples), pool(2) {
    for (int r = 0; r < count; ++r) {
      batches.push_back(make_batch(config, seed_of_batch, rank_samples(size, kParts, count, r)));
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

  static spec::Plan make_plan(const spec::Config& job, int count) {
    planner::RankLayout target{.ranks = count};
    for (int r = 0; r < count; ++r) {
      target.hosts.push_back(r / 2);  // of two ranks, the last perhaps of one
    }
    spec::Plan plan = planner::make_plan(job, target);
    plan.parts = kParts;
    return plan;
  }

  /// What rank `server` is told of the sizes.
  [[nodiscard]] std::vector<std::vector<SlotCounts>> counts(std::int64_t server) const {
    std::vector<std::vector<SlotCounts>> counts(paths.size());
    const auto slots = routing.served[static_cast<std::size_t>(server)].size();
    for (std::size_t r = 0; r < paths.size(); ++r) {
      for (std::size_t j = 0; j < slots; ++j) {
        counts[r].push_back(asked[r].counts_of({server, static_cast<std::int64_t>(j)}));
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

/// Unpacks at `server` what all others have packed: where they hold it, or received first.
std::vector<IncomingBlock> unpack(Ranks& ranks, std::int64_t server, ServedIds& served, bool lent) {
  const std::size_t world = ranks.paths.size();
  std::vector<IncomingBlock> blocks(ranks.routing.served[static_cast<std::size_t>(server)].size() *
                                    world);
  const IdReceiver receiver(*ranks.paths[static_cast<std::size_t>(server)], lent,
                            std::vector<int>(world));
  receiver.lay_out(ranks.size, ranks.counts(server), served, blocks);
  std::vector<comm::Lane> arrived(world);
  for (std::size_t r = 0; r < world; ++r) {
    if (static_cast<std::int64_t>(r) == server) {
      continue;
    }
    const auto sent = ranks.asked[r].lane(server);
    const std::span<const comm::Piece> expected = served.pieces[r];
    EXPECT_EQ(sent.size(), expected.size());
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(sent[i].bytes, expected[i].bytes);
      if (!lent && sent[i].bytes > 0) {
        std::memcpy(expected[i].data, sent[i].data, static_cast<std::size_t>(sent[i].bytes));
      }
    }
    arrived[r] = {.pieces = lent ? sent : expected};
  }
  receiver.unpack(ranks.pool, arrived, served, blocks);
  return blocks;
}

void check_received(Ranks& ranks, std::int64_t server, bool lent) {
  ServedIds served;
  const std::vector<IncomingBlock> blocks = unpack(ranks, server, served, lent);
  const auto& slots = ranks.routing.served[static_cast<std::size_t>(server)];
  const std::size_t world = ranks.paths.size();
  for (std::size_t j = 0; j < slots.size(); ++j) {
    for (std::size_t r = 0; r < world; ++r) {
      if (static_cast<std::int64_t>(r) == server) {
        continue;
      }
      const IncomingBlock& block = blocks[j * world + r];
      const auto bags = without_empty(plain_bags(ranks.batches[r], slots[j]));
      expect_run({served.ids.data() + block.ids_begin, served.offsets.data(),
                  served.weights.data() + std::max<std::int64_t>(block.weights_begin, 0)},
                 block.lookup, bags, slots[j].weighted);
      const std::int64_t first =
          rank_samples(ranks.size, kParts, ranks.routing.ranks, static_cast<std::int64_t>(r)).begin;
      for (std::size_t b = 0; b < bags.size(); ++b) {
        const std::int32_t part = served.parts[static_cast<std::size_t>(block.parts_begin) + b];
        const Range samples = part_samples(ranks.size, kParts, part);
        const std::int64_t position = first + bags[b].sample;
        EXPECT_TRUE(samples.begin <= position && position < samples.end);
      }
    }
  }
}

void check_own(const Ranks& ranks, std::int64_t rank) {
  const AskedIds& asked = ranks.asked[static_cast<std::size_t>(rank)];
  const auto& slots = ranks.routing.served[static_cast<std::size_t>(rank)];
  for (std::size_t j = 0; j < slots.size(); ++j) {
    const SlotAddress address{rank, static_cast<std::int64_t>(j)};
    if (ranks.routing.path(address, rank) == Path::kInPlace) {
      continue;
    }
    const IncomingBlock& block = asked.own.blocks[asked.own_index(address)];
    const BlockArrays arrays{
        asked.own.ids.data() + block.ids_begin, asked.own.offsets.data(),
        asked.own.weights.data() + std::max<std::int64_t>(block.weights_begin, 0)};
    const auto bags = plain_bags(ranks.batches[static_cast<std::size_t>(rank)], slots[j]);
    expect_run(arrays, block.gradient, bags, slots[j].weighted);
    expect_run(arrays, block.lookup, slots[j].sequence ? bags : without_empty(bags),
               slots[j].weighted);
  }
}

/// The rows that come back: which bag, or which id of a sequence, each vector belongs to.
void check_rows(const Ranks& ranks, std::size_t rank) {
  for (std::int64_t server = 0; server < ranks.routing.ranks; ++server) {
    const auto& slots = ranks.routing.served[static_cast<std::size_t>(server)];
    for (std::size_t j = 0; j < slots.size(); ++j) {
      const SlotAddress address{server, static_cast<std::int64_t>(j)};
      if (ranks.routing.path(address, static_cast<std::int64_t>(rank)) == Path::kInPlace) {
        continue;
      }
      std::vector<std::int32_t> expected;
      const JaggedView view = ranks.batches[rank].feature(slots[j].feature);
      for (std::int64_t b = 0; b < view.batch(); ++b) {
        bool any = false;
        for (std::int64_t i = 0; i < view.length(b); ++i) {
          const std::int64_t at = view.offsets[static_cast<std::size_t>(b)] + i;
          const bool here = slots[j].rows.contains(view.values[at]);
          if (here && (slots[j].sequence || !any)) {
            expected.push_back(
                static_cast<std::int32_t>(slots[j].sequence ? at - view.offsets.front() : b));
          }
          any |= here;
        }
      }
      const std::int64_t count = ranks.asked[rank].slot(address).vectors;
      const std::int32_t* const rows = ranks.asked[rank].slot(address).rows;
      ASSERT_EQ(count, static_cast<std::int64_t>(expected.size()));
      for (std::int64_t v = 0; v < count; ++v) {
        ASSERT_EQ(rows == nullptr ? v : rows[v], expected[static_cast<std::size_t>(v)]);
      }
      const std::int64_t all = slots[j].sequence ? view.num_values() : view.batch();
      EXPECT_TRUE(rows != nullptr || count == all) << "no list, but not all have a vector";
    }
  }
}

TEST(IdExchange, WhatComesOutIsTheBatch) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const spec::Config config = make_config(seed);
    Ranks ranks(config, static_cast<int>(1 + draw(seed, 99) % 5), seed,
                static_cast<std::int64_t>(1 + draw(seed, 98) % 70));
    for (std::size_t r = 0; r < ranks.paths.size(); ++r) {
      const auto rank = static_cast<std::int64_t>(r);
      check_received(ranks, rank, true);
      check_received(ranks, rank, false);
      check_own(ranks, rank);
      check_rows(ranks, r);
    }
  }
}

TEST(IdExchange, TasksOfLongBatches) {
  // More ids than one task takes, in bags of very different lengths.
  spec::Config config = make_config(3);
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kTableWise}) {
    for (spec::Table& table : config.tables) {
      table.sharding = sharding;
    }
    Ranks ranks(config, 2, 5, 60'000);
    for (std::int64_t r = 0; r < 2; ++r) {
      check_received(ranks, r, true);
      check_own(ranks, r);
      check_rows(ranks, static_cast<std::size_t>(r));
    }
  }
}

/// One feature of one table, on rank 0 of two; `damage` changes what rank 1 has packed.
void expect_refused(const std::string& message, std::int32_t length, std::int32_t id) {
  spec::Config config = make_config(0);
  config.tables.resize(1);
  config.sparse_features.resize(1);
  config.tables[0].num_embeddings = 50;
  config.tables[0].sharding = spec::Sharding::kTableWise;
  config.tables[0].rank = 0;
  config.sparse_features[0].weighted = false;
  Ranks ranks(config, 2, 1, 4);
  KeyedJaggedTensor& batch = ranks.batches[1];
  batch = {.keys = {"f0"}, .batch = 2, .values = {7, 8, 9}, .offsets = {0, 2, 3}, .weights = {}};
  ranks.pack(1, 4);
  const auto lane = ranks.asked[1].lane(0);
  ASSERT_EQ(lane[0].bytes, 2);  // a byte per length, and per id of a shard of 50 rows
  ASSERT_EQ(lane[1].bytes, 3);
  std::memcpy(lane[0].data, &length, 1);
  std::memcpy(lane[1].data, &id, 1);
  ServedIds served;
  try {
    unpack(ranks, 0, served, true);
    FAIL() << "accepted: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(IdExchange, DamagedMessagesAreRefused) {
  expect_refused("bag lengths exceed the announced 3 ids", 255, 7);
  expect_refused("bag lengths exceed the announced 3 ids", 4, 7);
  expect_refused("bag lengths sum to 2, 3 ids announced", 1, 7);
  expect_refused("row 50 is outside a shard of 50 rows", 2, 50);
  expect_refused("row 255 is outside a shard of 50 rows", 2, 255);
}

/// Lengths as narrow_lengths() leaves them.
std::vector<std::int64_t> as_they_travel(std::vector<std::int32_t> lengths, std::int64_t bytes) {
  std::vector<std::int64_t> found(lengths.size());
  EXPECT_EQ(narrow_lengths(lengths.data(), static_cast<std::int64_t>(lengths.size())), bytes);
  visit_width(bytes, [&]<typename T>(T) {
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      T length;
      std::memcpy(&length, reinterpret_cast<const std::byte*>(lengths.data()) + b * sizeof(T),
                  sizeof(T));
      found[b] = static_cast<std::int64_t>(length);
    }
  });
  return found;
}

TEST(IdExchange, LengthsTakeTheBytesOfTheLongest) {
  std::vector<std::int32_t> lengths(1000);
  for (const auto& [most, bytes] : {std::pair{255, 1}, {256, 2}, {65535, 2}, {65536, 4}}) {
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      lengths[b] = static_cast<std::int32_t>(b % 256);
    }
    lengths[777] = most;
    EXPECT_EQ(as_they_travel(lengths, bytes),
              std::vector<std::int64_t>(lengths.begin(), lengths.end()))
        << most;
  }
  for (const std::int32_t equal : {0, 1, 70'000}) {
    std::fill(lengths.begin(), lengths.end(), equal);
    EXPECT_EQ(narrow_lengths(lengths.data(), 1000), 0);
  }
  EXPECT_EQ(narrow_lengths(nullptr, 0), 0);
}

TEST(IdExchange, IdsTakeTheBytesOfTheLastRow) {
  EXPECT_EQ(spec::id_bytes(1), 1);
  EXPECT_EQ(spec::id_bytes(256), 1);
  EXPECT_EQ(spec::id_bytes(257), 2);
  EXPECT_EQ(spec::id_bytes(65536), 2);
  EXPECT_EQ(spec::id_bytes(65537), 4);
  EXPECT_EQ(spec::id_bytes(std::int64_t{1} << 32), 4);
  EXPECT_EQ(spec::id_bytes((std::int64_t{1} << 32) + 1), 8);
}

TEST(IdExchange, TheFirstIdOutsideItsTableIsNamed) {
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kTableWise}) {
    spec::Config config = make_config(3);
    for (spec::Table& table : config.tables) {
      table.sharding = sharding;
    }
    Ranks ranks(config, 2, 5, 60'000);
    KeyedJaggedTensor& batch = ranks.batches[0];
    std::int64_t f = 0;
    while (batch.feature(f).num_values() < 30'000) {
      ++f;
    }
    const JaggedView view = batch.feature(f);
    std::int64_t sample = view.batch() - 1;
    while (view.length(sample) == 0) {
      --sample;
    }
    const std::int64_t rows = config.tables[static_cast<std::size_t>(f)].num_embeddings;
    batch.values[static_cast<std::size_t>(view.offsets[static_cast<std::size_t>(sample)])] = rows;
    batch.values.back() = std::numeric_limits<std::int64_t>::min();
    try {
      ranks.pack(0, 60'000);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kData);
      const std::string expected = fmt::format(
          "feature f{}, sample {}: id {} is outside its table of {} rows", f, sample, rows, rows);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::sharding
