// Slots with few ids, which list the bags of their ids: what they cost, and what is refused.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {

using id_ranks::Ranks;

/// A feature of one table whose rows are cut, without weights.
spec::Config cut_config(std::int64_t rows) {
  spec::Config config = id_ranks::make_config(0);
  config.tables.resize(1);
  config.sparse_features.resize(1);
  config.tables[0].num_embeddings = rows;
  config.tables[0].sharding = spec::Sharding::kRowWise;
  config.sparse_features[0].pooling = spec::Pooling::kSum;
  config.sparse_features[0].weighted = false;
  return config;
}

/// With as many samples of a rank, what it sends and serves grows with ids alone: numbers of bags
/// are sent and kept for ids, not for all bags of every cut.
TEST(ListedBags, CutFeaturesCostByTheirIds) {
  const spec::Config config = cut_config(10'000);
  constexpr std::int64_t kSamples =
      300;  // of a rank: a bag's number takes 2 bytes, as ids of 8 cuts
  for (const int world : {16, 32, 64}) {
    Ranks ranks(config, world, 0, kSamples * world);
    std::int64_t asked_ids = 0;
    std::int64_t sent_bytes = 0;
    for (std::int64_t server = 0; server < world; ++server) {
      asked_ids += ranks.asked[1].slot({server, 0}).ids;
      ASSERT_TRUE(ranks.asked[1].counts_of({server, 0}).is_listed());
      for (const comm::Piece& piece : ranks.asked[1].lane(server)) {
        sent_bytes += piece.bytes;
      }
    }
    const JaggedView bags = ranks.batches[1].feature(0);
    ASSERT_GT(asked_ids, 100);
    EXPECT_EQ(asked_ids, bags.num_values());
    const std::int64_t id_bytes = spec::id_bytes((10'000 + world - 1) / world);
    const std::int64_t away = asked_ids - ranks.asked[1].slot({1, 0}).ids;
    // At the head of a lane a byte that says that the slot has ids, and one with how many.
    EXPECT_EQ(sent_bytes, 2 * (world - 1) + away * (2 + id_bytes)) << world << " ranks";
    // Buffers: an id's bag and the id, as aligned sections, of all cuts; one term a vector.
    EXPECT_LE(ranks.asked[1].bags.num_bytes, asked_ids * (4 + id_bytes) + 2 * 7 * world);
    EXPECT_EQ(ranks.asked[1].bags.num_terms, ranks.asked[1].bags.num_rows);
    EXPECT_LE(ranks.asked[1].bags.num_terms, asked_ids);
    ServedIds served;
    id_ranks::unpack(ranks, 1, served, false);
    std::int64_t served_ids = 0;
    for (int source = 0; source < world; ++source) {
      const std::int64_t ids = ranks.asked[static_cast<std::size_t>(source)].slot({1, 0}).ids;
      served_ids += source == 1 ? 0 : ids;
    }
    EXPECT_EQ(served.num_ids, served_ids);
    EXPECT_EQ(served.num_offsets, 1 + served_ids);
    const auto runs = static_cast<std::int64_t>(ranks.paths[1]->runs().parts().size());
    EXPECT_EQ(served.num_parts, kSamples * world + runs + served_ids);
  }
}

/// A feature cut over two ranks, of which rank 1 lists bags 1, 1 and 5 of 8 for rank 0; `damage`
/// changes what it sends, or announces.
template <typename Damage>
void expect_list_refused(const std::string& message, const Damage& damage) {
  const spec::Config config = cut_config(50);
  Ranks ranks(config, 2, 1, 16);
  ranks.batches[1] = {.keys = {"f0"},
                      .batch = 8,
                      .values = {7, 8, 9},
                      .offsets = {0, 0, 2, 2, 2, 2, 3, 3, 3},
                      .weights = {}};
  ranks.pack(1, 16);
  const std::span<const comm::Piece> lane = ranks.asked[1].lane(0);
  ASSERT_EQ(lane[0].bytes, 3);
  std::vector<comm::Piece> pieces(lane.begin(), lane.end());
  std::vector<std::vector<SlotCounts>> counts = ranks.counts(0);
  ASSERT_TRUE(counts[1][0].is_listed());
  damage(static_cast<std::uint8_t*>(lane[0].data), pieces, counts[1][0]);
  const IdReceiver receiver(*ranks.paths[0], true, {10, 11});
  ServedIds served;
  IncomingBlocks blocks;
  const std::vector<comm::Lane> arrived = {{}, {.pieces = pieces}};
  try {
    receiver.take_counts(16, 0, counts[0], served);
    receiver.take_counts(16, 1, counts[1], served);
    receiver.lay_out(16, served, blocks);
    receiver.unpack(ranks.pool, arrived, served, blocks);
    EXPECT_EQ(message, "");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm);
    const std::string what = error.what();
    EXPECT_NE(what.find(message), std::string::npos) << what;
    EXPECT_NE(what.find("rank 11"), std::string::npos) << what;
    EXPECT_NE(what.find("feature f0"), std::string::npos) << what;
    EXPECT_NE(message, "") << what;
  }
}

TEST(ListedBags, DamagedListsAreRefused) {
  using Pieces = std::vector<comm::Piece>;
  expect_list_refused("", [](std::uint8_t*, Pieces&, SlotCounts&) {});
  expect_list_refused("bag 0 of 8 is listed behind bag 1",
                      [](std::uint8_t* bags, Pieces&, SlotCounts&) { bags[1] = 0; });
  expect_list_refused("bag 8 of 8 is listed behind bag 1",
                      [](std::uint8_t* bags, Pieces&, SlotCounts&) { bags[2] = 8; });
  expect_list_refused("bag 255 of 8 is listed behind bag -1",
                      [](std::uint8_t* bags, Pieces&, SlotCounts&) { bags[0] = 255; });
  expect_list_refused("2 bytes have come, 3 announced",
                      [](std::uint8_t*, Pieces& pieces, SlotCounts&) { --pieces[0].bytes; });
  expect_list_refused("4 bytes have come, 3 announced",
                      [](std::uint8_t*, Pieces& pieces, SlotCounts&) { ++pieces[1].bytes; });
  expect_list_refused("3 bytes have come, 4 announced",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { ++counts.ids; });
  expect_list_refused("3 bytes have come, 0 announced",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { counts.bag_bytes = 0; });
  expect_list_refused("a list of bags of 2 bytes each",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { counts.bag_bytes = 2; });
  expect_list_refused("a list of bags of 1 bytes each beside lengths of 1 bytes",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { counts.length_bytes = 1; });
  expect_list_refused("7 samples with 3 ids",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { counts.batch = 7; });
  expect_list_refused("8 samples with -1 ids",
                      [](std::uint8_t*, Pieces&, SlotCounts& counts) { counts.ids = -1; });
}

}  // namespace
}  // namespace weft::sharding
