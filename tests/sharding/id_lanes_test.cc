// Lanes of ids between many ranks: what they cost, what comes out, and which damage is refused.
#include "weft/layout/id_lanes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"
#include "weft/base/error.h"
#include "weft/sharding/id_lanes.h"

namespace weft::sharding {
namespace {

using id_ranks::Ranks;

/// Slots of `features` features whose bags are split.
std::vector<Slot> split_slots(std::int64_t features) {
  Slot slot;
  slot.rows = RowSet(0, 1000);
  slot.id_bytes = 2;
  slot.path = Path::kSplitBags;
  return std::vector<Slot>(at(features), slot);
}

std::vector<std::byte> lane_of(const std::vector<int>& numbers) {
  std::vector<std::byte> bytes;
  for (const int number : numbers) {
    bytes.push_back(static_cast<std::byte>(number));
  }
  return bytes;
}

TEST(IdLanes, NumbersTakeABytePerSevenBits) {
  EXPECT_EQ(layout::number_bytes(0), 1);
  EXPECT_EQ(layout::number_bytes(127), 1);
  EXPECT_EQ(layout::number_bytes(128), 2);
  EXPECT_EQ(layout::number_bytes(16'383), 2);
  EXPECT_EQ(layout::number_bytes(16'384), 3);
  EXPECT_EQ(layout::number_bytes((std::int64_t{1} << 31) - 1), 5);
}

/// Of ten slots the first, with 3 ids, and the last, with 300, more than are listed of 8 bags.
TEST(IdLanes, CountsAreThoseOfMarkedSlots) {
  const std::vector<Slot> slots = split_slots(10);
  const std::vector<std::byte> lane = lane_of({1, 2, 3, 300 % 128 + 128, 300 / 128, 1, 99});
  ASSERT_EQ(marked_slots(lane, 10, 3), 2);
  std::vector<ArrivedSlot> arrived(2);
  EXPECT_EQ(read_slot_counts(lane, slots, 8, 3, arrived), 6);
  for (const ArrivedSlot& one : arrived) {
    const bool is_last = &one == &arrived.back();
    EXPECT_EQ(one.slot, is_last ? 9 : 0);
    EXPECT_EQ(one.counts.ids, is_last ? 300 : 3);
    EXPECT_EQ(one.counts.batch, 8);
    EXPECT_EQ(one.counts.bag_bytes, is_last ? 0 : 1);
    EXPECT_EQ(one.counts.length_bytes, is_last ? 1 : 0);
  }
  // Without a byte no slot has ids.
  EXPECT_EQ(marked_slots({}, 10, 3), 0);
  EXPECT_EQ(read_slot_counts({}, slots, 8, 3, {}), 0);
}

/// How so many slots tell that these have ids.
std::vector<int> marks_of(std::int64_t slots, const std::vector<std::int64_t>& marked) {
  std::vector<int> marks;
  if (slots > layout::kMostSlotsByBits) {
    marks.push_back(static_cast<int>(marked.size()));  // fewer than 128
  }
  if (layout::lists_slots(slots, std::ssize(marked))) {
    for (const std::int64_t slot : marked) {
      for (std::int64_t i = 0; i < layout::listed_slot_bytes(slots); ++i) {
        marks.push_back(static_cast<int>(slot >> 8 * i & 255));
      }
    }
    return marks;
  }
  const std::size_t first = marks.size();
  marks.resize(first + at(layout::slot_bits_bytes(slots)), 0);
  for (const std::int64_t slot : marked) {
    marks[first + at(slot / 8)] |= 1 << (slot % 8);
  }
  return marks;
}

/// Bits are read 64 at a time, the last of them fewer; of many slots few are listed, in one byte
/// each or in two.
TEST(IdLanes, MarksOfManySlotsAreInOrder) {
  bool has_bits = false, has_bytes = false, has_words = false, counts_bits = false;
  for (const std::int64_t slots : {64, 65, 128, 129, 130, 200, 256, 257, 856}) {
    for (const std::int64_t apart : {8, 13, 50}) {
      std::vector<std::int64_t> marked;
      for (std::int64_t slot = 0; slot < slots; slot += apart) {
        marked.push_back(slot);
      }
      marked.back() = slots - 1;
      std::vector<int> lane = marks_of(slots, marked);
      ASSERT_EQ(std::ssize(lane), layout::slot_marks_bytes(slots, std::ssize(marked)));
      const bool is_list = layout::lists_slots(slots, std::ssize(marked));
      has_bits |= slots <= layout::kMostSlotsByBits;
      counts_bits |= slots > layout::kMostSlotsByBits && !is_list;
      has_bytes |= is_list && slots <= 256;
      has_words |= is_list && slots > 256;
      for (std::size_t i = 0; i < marked.size(); ++i) {
        lane.push_back(static_cast<int>(i) % 3 + 1);
      }
      ASSERT_EQ(marked_slots(lane_of(lane), slots, 3), std::ssize(marked));
      std::vector<ArrivedSlot> arrived(marked.size());
      EXPECT_EQ(read_slot_counts(lane_of(lane), split_slots(slots), 64, 3, arrived),
                std::ssize(lane));
      for (std::size_t i = 0; i < marked.size(); ++i) {
        EXPECT_EQ(arrived[i].slot, marked[i]) << slots;
        EXPECT_EQ(arrived[i].counts.ids, static_cast<int>(i) % 3 + 1) << slots;
      }
    }
  }
  EXPECT_TRUE(has_bits && has_bytes && has_words && counts_bits);
}

/// Lists cost what is in them, and never more than bits and a number.
TEST(IdLanes, MarksAreTheShorterForm) {
  for (const std::int64_t slots : {1, 8, 100, 128, 129, 256, 257, 856, 70'000}) {
    const std::int64_t bits = layout::slot_bits_bytes(slots);
    const bool counts = slots > layout::kMostSlotsByBits;
    for (std::int64_t marked = 1; marked <= slots; marked += 1 + slots / 50) {
      const std::int64_t count = counts ? layout::number_bytes(marked) : 0;
      const std::int64_t list = marked * layout::listed_slot_bytes(slots);
      EXPECT_EQ(layout::slot_marks_bytes(slots, marked),
                count + (counts ? std::min(list, bits) : bits));
    }
  }
  EXPECT_EQ(layout::slot_marks_bytes(856, 3), 7);  // 107 by bits
}

void expect_counts_refused(const std::vector<int>& lane,
                           const std::string& message,
                           std::int64_t slots = 10) {
  try {
    std::vector<ArrivedSlot> arrived(at(marked_slots(lane_of(lane), slots, 3)));
    read_slot_counts(lane_of(lane), split_slots(slots), 8, 3, arrived);
    FAIL() << "accepted: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    EXPECT_EQ(std::string(error.what()), "id exchange: rank 3: " + message);
  }
}

TEST(IdLanes, DamagedCountsAreRefused) {
  expect_counts_refused({1}, "a lane of 1 bytes for 10 slots");
  expect_counts_refused({1, 0}, "the counts of a lane of 2 bytes do not end in it");
  expect_counts_refused({1, 0, 200}, "the counts of a lane of 3 bytes do not end in it");
  expect_counts_refused({1, 0, 100}, "the counts of a lane of 3 bytes do not end in it");
  expect_counts_refused({1, 0, 0}, "slot 0 of 10 is marked and has no ids");
  expect_counts_refused({1, 4, 3}, "a slot behind the last of 10 is marked");
  expect_counts_refused({1, 0, 255, 255, 255, 255, 8}, "a count of more than 2^31 - 1");
  expect_counts_refused({1, 0, 255, 255, 255, 255, 255}, "a count of more than 2^31 - 1");
}

TEST(IdLanes, DamagedListsOfSlotsAreRefused) {
  expect_counts_refused({200}, "the counts of a lane of 1 bytes do not end in it", 856);
  expect_counts_refused({2, 1, 0, 7}, "a lane of 4 bytes for 856 slots", 856);
  expect_counts_refused({2, 7, 1, 7, 1, 1, 1}, "slot 263 of 856 is listed behind slot 263", 856);
  expect_counts_refused({2, 7, 1, 6, 1, 1, 1}, "slot 262 of 856 is listed behind slot 263", 856);
  expect_counts_refused({1, 88, 3, 1}, "slot 856 of 856 is listed behind slot -1", 856);
  std::vector<int> bits(108, 255);
  bits[0] = 99;
  expect_counts_refused(bits, "856 of 856 slots are marked, 99 announced", 856);
  bits.pop_back();
  expect_counts_refused(bits, "a lane of 107 bytes for 856 slots", 856);
  expect_counts_refused({0}, "no slot of 856 is marked in a lane of 1 bytes", 856);
}

/// A feature cut over nine ranks, of which rank 1 sends rank 0 one id of bag 5; `damage` changes
/// the lane.
void expect_lane_refused(const std::string& message,
                         const std::function<void(std::vector<std::byte>&)>& damage) {
  spec::Config config = id_ranks::make_config(0);
  config.tables.resize(1);
  config.sparse_features.resize(1);
  config.tables[0].num_embeddings = 90;
  config.tables[0].sharding = spec::Sharding::kRowWise;
  config.tables[0].row_split = spec::RowSplit::kRange;
  config.sparse_features[0].pooling = spec::Pooling::kSum;
  config.sparse_features[0].weighted = false;
  constexpr int kWorld = 9;
  Ranks ranks(config, kWorld, 1, 8 * kWorld);
  const Range samples = ranks.routing.own_samples(ranks.size, 1);
  KeyedJaggedTensor batch{
      .keys = {"f0"}, .batch = samples.size(), .values = {7}, .offsets = {}, .weights = {}};
  for (std::int64_t b = 0; b <= samples.size(); ++b) {
    batch.offsets.push_back(b > 5 ? 1 : 0);
  }
  ranks.batches[1] = batch;
  ranks.pack(1, ranks.size);
  const std::span<const comm::Piece> sent = ranks.asked[1].lane(0);
  ASSERT_EQ(sent.size(), 1U);
  std::vector<std::byte> lane(at(sent[0].bytes));
  std::memcpy(lane.data(), sent[0].data, lane.size());
  // The slot has ids, of which there is one; its bag; its row.
  ASSERT_EQ(lane, lane_of({1, 1, 5, 7}));
  damage(lane);
  const IdReceiver receiver(*ranks.paths[0], true, {20, 21, 22, 23, 24, 25, 26, 27, 28});
  ServedIds served;
  IncomingBlocks blocks;
  std::vector<comm::Piece> piece = {{lane.data(), std::ssize(lane)}};
  std::vector<comm::Lane> arrived(kWorld);
  arrived[1].pieces = piece;
  try {
    receiver.read_lanes(ranks.pool, ranks.size, arrived, served);
    receiver.lay_out(ranks.size, served, blocks);
    receiver.unpack(ranks.pool, arrived, served, blocks);
    EXPECT_EQ(message, "");
    EXPECT_EQ(blocks.of(0, 1).num_ids, 1);
    EXPECT_EQ(served.ids[at(blocks.of(0, 1).ids_begin)], 7);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    const std::string what = error.what();
    EXPECT_NE(what.find(message), std::string::npos) << what;
    EXPECT_NE(what.find("rank 21"), std::string::npos) << what;
    EXPECT_NE(message, "") << what;
  }
}

/// A lane is refused by its length, so no count that fits its number may wrap it.
TEST(IdLanes, SectionsOfTheMostIdsHaveTheirLength) {
  const Ranks ranks(id_ranks::make_config(0), 2, 1, 16);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const Path path : {Path::kWholeBags, Path::kSplitBags, Path::kUniqueRows}) {
    SlotKind slot;
    slot.path = path;
    slot.id_bytes = 8;
    const SlotCounts counts{.batch = 8, .length_bytes = 4, .ids = kMost};
    const std::int64_t bytes = ranks.paths[0]->between_ranks(slot).section_bytes(slot, counts, 1);
    EXPECT_GT(bytes, 8 * kMost);
    EXPECT_LT(bytes, 8 * kMost + 1000);  // lengths come on top
  }
}

TEST(IdLanes, DamagedLanesAreRefused) {
  using Lane = std::vector<std::byte>;
  expect_lane_refused("", [](Lane&) {});
  expect_lane_refused("5 bytes of ids have come, 4 announced",
                      [](Lane& lane) { lane.push_back(std::byte{0}); });
  expect_lane_refused("3 bytes of ids have come, 4 announced", [](Lane& lane) { lane.pop_back(); });
  expect_lane_refused("4 bytes of ids have come, 6 announced",
                      [](Lane& lane) { lane[1] = std::byte{2}; });
  expect_lane_refused("feature f0: bag 9 of 8 is listed behind bag -1",
                      [](Lane& lane) { lane[2] = std::byte{9}; });
  expect_lane_refused("feature f0: row 10 is outside a shard of 10 rows",
                      [](Lane& lane) { lane[3] = std::byte{10}; });
  // Nine ids of eight bags are not listed, and the next byte is the width of lengths.
  expect_lane_refused("for feature f0", [](Lane& lane) {
    lane[1] = std::byte{9};
    lane[2] = std::byte{3};
  });
}

}  // namespace
}  // namespace weft::sharding
