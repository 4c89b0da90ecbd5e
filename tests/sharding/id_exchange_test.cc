// Both ends of the exchange of ids without ranks: every rank's batch is packed, what is packed for
// a rank is unpacked there, and what comes out is compared with the batch itself. Tables need no
// memory here, so shards of more than 2^31 rows can be had.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/listed_bags.h"

namespace weft::sharding {
namespace {

using id_ranks::draw;
using id_ranks::Ranks;
using id_ranks::unpack;

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

/// The arrays that a block lies in.
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

void check_received(Ranks& ranks, std::int64_t server, bool lent) {
  ServedIds served;
  const std::vector<IncomingBlock> blocks = unpack(ranks, server, served, lent);
  const auto slots = ranks.routing.slots_of(server);
  const std::size_t world = ranks.paths.size();
  for (std::size_t j = 0; j < slots.size(); ++j) {
    for (std::size_t r = 0; r < world; ++r) {
      if (static_cast<std::int64_t>(r) == server) {
        continue;
      }
      const IncomingBlock& block = blocks[j * world + r];
      const auto bags = without_empty(plain_bags(ranks.batches[r], slots[j]));
      EXPECT_TRUE(block.num_ids == 0 || block.weighted == slots[j].weighted);
      expect_run({served.ids.data(), served.offsets.data(), served.weights.data()}, block.lookup,
                 bags, slots[j].weighted);
      const std::int64_t first =
          ranks.routing.own_samples(ranks.size, static_cast<std::int64_t>(r)).begin;
      for (std::size_t b = 0; b < bags.size(); ++b) {
        const std::int32_t part = served.parts[static_cast<std::size_t>(block.parts_begin) + b];
        const Range samples = part_samples(ranks.size, ranks.routing.parts, part);
        const std::int64_t position = first + bags[b].sample;
        EXPECT_TRUE(samples.begin <= position && position < samples.end);
      }
    }
  }
}

void check_own(const Ranks& ranks, std::int64_t rank) {
  const AskedIds& asked = ranks.asked[static_cast<std::size_t>(rank)];
  const auto slots = ranks.routing.slots_of(rank);
  for (std::size_t j = 0; j < slots.size(); ++j) {
    const SlotAddress address{rank, static_cast<std::int64_t>(j)};
    if (ranks.routing.path(address, rank) == Path::kInPlace) {
      continue;
    }
    const IncomingBlock& block = asked.own.blocks[asked.own_index(address)];
    const BlockArrays arrays{asked.own.ids.data(), asked.own.offsets.data(),
                             asked.own.weights.data()};
    const auto bags = plain_bags(ranks.batches[static_cast<std::size_t>(rank)], slots[j]);
    expect_run(arrays, block.gradient, bags, slots[j].weighted);
    expect_run(arrays, block.lookup, slots[j].sequence ? bags : without_empty(bags),
               slots[j].weighted);
  }
}

/// The rows that come back: which bag, or which id of a sequence, each vector belongs to.
void check_rows(const Ranks& ranks, std::size_t rank) {
  for (std::int64_t server = 0; server < ranks.routing.ranks; ++server) {
    const auto slots = ranks.routing.slots_of(server);
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
      const bool is_nowhere = ranks.asked[rank].place(address) == AskedIds::kNowhere;
      EXPECT_TRUE(rows != nullptr || count == all || is_nowhere)
          << "no list, but not all have a vector";
    }
  }
}

/// The vectors that each bag of a split feature of many cuts is the sum of: those of its cuts, in
/// their order. Counts such features in `listed`.
void check_terms(const Ranks& ranks, std::size_t rank, int& listed) {
  const AskedIds& asked = ranks.asked[rank];
  std::size_t split = 0;
  for (std::size_t f = 0; f < ranks.routing.features.size(); ++f) {
    const FeatureRoute& route = ranks.routing.features[f];
    if (route.path != Path::kSplitBags) {
      continue;
    }
    const AskedBags::TermSection& section = asked.bags.term_sections[split++];
    if (route.pooling == spec::Pooling::kNone || !layout::lists_terms(route.row_cuts())) {
      continue;
    }
    ++listed;
    const kernels::BagTerms terms = asked.bags.terms_of(section);
    std::vector<std::int64_t> next(static_cast<std::size_t>(route.row_cuts()));
    std::vector<std::int64_t> row_cuts;
    asked.for_cuts(static_cast<std::int64_t>(f),
                   [&](std::int64_t /*cut*/, std::int64_t row_cut, const Range& /*places*/) {
                     row_cuts.push_back(row_cut);
                   });
    ASSERT_EQ(terms.begins[0], 0);
    for (std::int64_t b = 0; b < asked.batch.sparse.batch; ++b) {
      std::int32_t term = terms.begins[b];
      for (std::int64_t k = 0; k < route.row_cuts(); ++k) {
        const AskedSlot& slot = asked.slot(ranks.routing.row_cut(route, k).front());
        std::int64_t& vector = next[static_cast<std::size_t>(k)];
        if (vector < slot.vectors && slot.rows[vector] == b) {
          ASSERT_LT(term, terms.begins[b + 1]);
          EXPECT_EQ(row_cuts.at(static_cast<std::size_t>(terms.terms[term].cut)), k);
          EXPECT_EQ(terms.terms[term].vector, vector++);
          ++term;
        }
      }
      ASSERT_EQ(term, terms.begins[b + 1]);
    }
  }
}

/// How often each form of bags is sent.
struct Forms {
  std::int64_t lengths = 0, lists = 0;

  void add(const Ranks& ranks, std::size_t rank) {
    for (std::int64_t server = 0; server < ranks.routing.ranks; ++server) {
      const auto slots = ranks.routing.slots_of(server);
      for (std::size_t j = 0; j < slots.size(); ++j) {
        const SlotCounts counts =
            ranks.asked[rank].counts_of({server, static_cast<std::int64_t>(j)});
        if (slots[j].path == Path::kSplitBags && counts.ids > 0) {
          ++(counts.is_listed() ? lists : lengths);
        }
      }
    }
  }
};

TEST(IdExchange, WhatComesOutIsTheBatch) {
  Forms forms;
  int listed = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const spec::Config config = id_ranks::make_config(seed);
    const int num_ranks =
        static_cast<int>(seed % 5 == 4 ? 9 + draw(seed, 97) % 5 : 1 + draw(seed, 99) % 5);
    Ranks ranks(config, num_ranks, seed,
                static_cast<std::int64_t>(1 + draw(seed, 98) % (seed < 40 ? 70 : 3000)));
    for (std::size_t r = 0; r < ranks.paths.size(); ++r) {
      const auto rank = static_cast<std::int64_t>(r);
      check_received(ranks, rank, true);
      check_received(ranks, rank, false);
      check_own(ranks, rank);
      check_rows(ranks, r);
      check_terms(ranks, r, listed);
      forms.add(ranks, r);
    }
  }
  EXPECT_GT(forms.lengths, 50);
  EXPECT_GT(forms.lists, 50);
  EXPECT_GT(listed, 50);
}

/// Ranks without a sample, with one bag, and with none that has an id.
TEST(IdExchange, SlotsWithoutIdsSendNothing) {
  spec::Config config = id_ranks::make_config(3);
  for (spec::Table& table : config.tables) {
    table.num_embeddings = 50;
    table.sharding = spec::Sharding::kRowWise;
  }
  int listed = 0;
  for (const auto& [samples, num_ranks] : {std::pair{1, 5}, {3, 5}, {40, 5}, {1, 9}, {40, 9}}) {
    Ranks ranks(config, num_ranks, 7, samples);
    for (std::size_t r = 0; r < ranks.batches.size() && samples == 40; ++r) {
      KeyedJaggedTensor& batch = ranks.batches[r];
      batch.values.clear();
      batch.weights.clear();
      std::fill(batch.offsets.begin(), batch.offsets.end(), 0);
      ranks.pack(r, samples);
    }
    for (std::int64_t r = 0; r < num_ranks; ++r) {
      check_received(ranks, r, true);
      check_received(ranks, r, false);
      check_own(ranks, r);
      check_rows(ranks, static_cast<std::size_t>(r));
      check_terms(ranks, static_cast<std::size_t>(r), listed);
      for (const comm::Piece& piece : ranks.asked[0].lane(r)) {
        EXPECT_TRUE(samples < 40 || piece.bytes == 0);
      }
    }
  }
  EXPECT_GT(listed, 0);
}

TEST(IdExchange, TasksOfLongBatches) {
  // More ids than one task takes, in bags of very different lengths.
  spec::Config config = id_ranks::make_config(3);
  int listed = 0;
  for (const auto& [sharding, num_ranks] : {std::pair{spec::Sharding::kRowWise, 2},
                                            {spec::Sharding::kTableWise, 2},
                                            {spec::Sharding::kRowWise, 10}}) {
    for (spec::Table& table : config.tables) {
      table.sharding = sharding;
    }
    Ranks ranks(config, num_ranks, 5, num_ranks * 30'000);
    for (std::int64_t r = 0; r < (num_ranks == 2 ? 2 : 1); ++r) {
      check_received(ranks, r, true);
      check_own(ranks, r);
      check_rows(ranks, static_cast<std::size_t>(r));
      check_terms(ranks, static_cast<std::size_t>(r), listed);
    }
  }
  EXPECT_GT(listed, 0);
}

/// One feature of one table, on rank 0 of two; `damage` changes what rank 1 has packed.
void expect_ids_refused(const std::string& message, std::int32_t length, std::int32_t id) {
  spec::Config config = id_ranks::make_config(0);
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

/// Features cut over twelve ranks, some samples of which have one id: their slots are marked by
/// bits or listed (weft/layout/id_lanes.h).
TEST(IdExchange, FewOfManySlotsArriveAsTheyWereAsked) {
  constexpr int kWorld = 12;
  bool has_lists = false, has_bits = false;
  for (const int features : {140, 300}) {
    spec::Config config;
    for (int f = 0; f < features; ++f) {
      spec::Table& table = config.tables.emplace_back();
      table.name = "t" + std::to_string(f);
      table.num_embeddings = 24 + f;
      table.embedding_dim = 16;
      table.sharding = spec::Sharding::kRowWise;
      spec::SparseFeature& feature = config.sparse_features.emplace_back();
      feature.name = feature.column = "f" + std::to_string(f);
      feature.table = table.name;
      feature.pooling = spec::Pooling::kSum;
    }
    for (const std::uint64_t one_in : {2U, 40U}) {
      Ranks ranks(config, kWorld, 1, 2 * kWorld);
      for (std::size_t r = 0; r < ranks.batches.size(); ++r) {
        KeyedJaggedTensor& batch = ranks.batches[r];
        batch.values.clear();
        batch.offsets = {0};
        for (std::int64_t bag = 0; bag < features * batch.batch; ++bag) {
          const std::uint64_t random = draw(r + 100, static_cast<std::uint64_t>(bag));
          if (random % one_in == 0) {
            const std::int64_t rows = config.tables[at(bag / batch.batch)].num_embeddings;
            batch.values.push_back(
                static_cast<std::int64_t>(random / one_in % static_cast<std::uint64_t>(rows)));
          }
          batch.offsets.push_back(std::ssize(batch.values));
        }
        batch.weights.assign(batch.values.size(), 1.0F);
        ranks.pack(r, ranks.size);
      }
      for (const std::int64_t server : {0, 5, kWorld - 1}) {
        for (std::int64_t r = 0; r < kWorld; ++r) {
          const std::int64_t marked = ranks.asked[at(r)].marked_slots(server);
          const bool is_list = layout::lists_slots(ranks.routing.num_slots(server), marked);
          has_lists |= r != server && marked > 0 && is_list;
          has_bits |= r != server && marked > 0 && !is_list;
        }
        check_received(ranks, server, one_in == 2);
      }
    }
  }
  EXPECT_TRUE(has_lists && has_bits);
}

TEST(IdExchange, DamagedMessagesAreRefused) {
  expect_ids_refused("bag lengths exceed the announced 3 ids", 255, 7);
  expect_ids_refused("bag lengths exceed the announced 3 ids", 4, 7);
  expect_ids_refused("bag lengths sum to 2, 3 ids announced", 1, 7);
  expect_ids_refused("row 50 is outside a shard of 50 rows", 2, 50);
  expect_ids_refused("row 255 is outside a shard of 50 rows", 2, 255);
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
  for (std::size_t few = 2; few <= 10; ++few) {
    for (const auto& [most, bytes] : {std::pair{255, 1}, {256, 2}, {65536, 4}}) {
      std::vector<std::int32_t> some(lengths.begin() + 5,
                                     lengths.begin() + static_cast<std::ptrdiff_t>(5 + few));
      some.back() = most;
      EXPECT_EQ(as_they_travel(some, bytes), std::vector<std::int64_t>(some.begin(), some.end()))
          << few << " up to " << most;
    }
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
    spec::Config config = id_ranks::make_config(3);
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
