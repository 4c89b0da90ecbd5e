// A rank that runs again alone gets what it got among its peers, in groups that lend their memory
// and in such that do not, and makes the calls of its tape or fails.
#include "bench/replayed_rank.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "bench/imitated_world.h"
#include "bench/transport_time.h"
#include "weft/base/error.h"
#include "weft/comm/communicator.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

using comm::Lane;
using comm::Piece;
using Values = std::vector<std::int64_t>;

constexpr std::size_t kRanks = 4;
constexpr std::int64_t kPerHost = 2;
constexpr std::int64_t kTaped = 2;
constexpr std::int64_t kWord = sizeof(std::int64_t);

/// Sent is what a rank sends to each: two rows of a matrix of two columns, out of order, and one
/// number.
struct Sent {
  explicit Sent(const comm::Communicator& group) : values(12) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 100 * group.world_rank(group.rank()) + static_cast<std::int64_t>(i);
    }
    pieces = {Piece{values.data(), 4 * kWord, 2 * kWord, 2 * kWord, rows.data()},
              Piece{&values[10], kWord}};
    lanes.assign(static_cast<std::size_t>(group.size()), {.pieces = pieces, .silent = false});
  }

  std::array<std::int32_t, 2> rows = {4, 1};
  Values values;
  std::array<Piece, 2> pieces;
  std::vector<Lane> lanes;
};

/// Exchanges in the world and among the ranks of a host; returns all that has come.
Values talk(comm::Communicator& world) {
  Context ctx;
  Values come;
  const std::int64_t own = 7 + world.rank();
  Values all(kRanks);
  world.all_gather(ctx, &own, all.data(), kWord);
  come.insert(come.end(), all.begin(), all.end());

  const Sent sent(world);
  Values rows(5 * kRanks);
  std::vector<std::array<Piece, 2>> places(kRanks);
  std::vector<Lane> recv(kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    places[r] = {Piece{&rows[5 * r], 4 * kWord}, Piece{&rows[5 * r + 4], kWord}};
    recv[r] = {.pieces = places[r], .silent = false};
  }
  world.exchange(ctx, sent.lanes, recv);
  come.insert(come.end(), rows.begin(), rows.end());

  const auto host = world.split(static_cast<int>(world.rank() / kPerHost), world.rank(), "host");
  EXPECT_TRUE(host->lends());
  const Sent lent(*host);
  const std::vector<Lane> expected(kPerHost, recv.front());
  host->exchange_lent(ctx, lent.lanes, expected, [&](std::span<const Lane> arrived) {
    for (const Lane& lane : arrived) {
      const Piece& some = lane.pieces[0];
      for (std::size_t row = 0; row < 2; ++row) {
        const auto* const at =
            static_cast<const std::byte*>(some.data) + some.rows[row] * some.stride;
        const auto* const words = reinterpret_cast<const std::int64_t*>(at);
        come.insert(come.end(), words, words + 2);
      }
      come.push_back(*static_cast<const std::int64_t*>(lane.pieces[1].data));
    }
  });
  return come;
}

/// Runs `body` on all ranks and keeps on `tape` what arrives at one of them.
void record(GroupTape& tape, const std::function<void(comm::Communicator& world)>& body) {
  const ImitatedOptions options{.ranks = kRanks,
                                .real = kRanks,
                                .per_host = kPerHost,
                                .merged = {},
                                .moved = {},
                                .tape = &tape,
                                .taped = kTaped};
  TransportTime time;
  run_imitated(options, time, body);
}

/// Records talk(), and returns what the rank of the tape got there.
Values record_talk(GroupTape& tape) {
  Values come;
  record(tape, [&](comm::Communicator& world) {
    const Values own = talk(world);
    if (world.rank() == kTaped) {
      come = own;
    }
  });
  return come;
}

TEST(ReplayedRank, GetsAloneWhatItGotAmongItsPeers) {
  GroupTape tape;
  const Values before = record_talk(tape);
  ASSERT_EQ(before.size(), 4U + 20U + 10U);
  EXPECT_EQ(before[4], 8);        // the fifth row's first word, of rank 0
  EXPECT_EQ(before[4 + 5], 108);  // and of rank 1
  Values after;
  TransportTime time;
  run_replayed(tape, time, [&](comm::Communicator& world) {
    EXPECT_EQ(world.rank(), kTaped);
    EXPECT_EQ(world.size(), static_cast<int>(kRanks));
    after = talk(world);
  });
  EXPECT_EQ(after, before);
  EXPECT_GT(time.seconds(), 0.0);
}

/// Returns the code with which replaying `body` fails; kInternal where it does not.
ErrorCode error_of(const GroupTape& tape,
                   const std::function<void(comm::Communicator& world)>& body) {
  TransportTime time;
  try {
    run_replayed(tape, time, body);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(ReplayedRank, MakesTheCallsOfItsTape) {
  GroupTape tape;
  record_talk(tape);
  const auto other_call = [](comm::Communicator& world) {
    Context ctx;
    world.barrier(ctx);
  };
  const auto other_size = [](comm::Communicator& world) {
    Context ctx;
    std::array<std::int32_t, kRanks> all{};
    world.all_gather(ctx, all.data(), all.data(), sizeof all[0]);
  };
  const auto too_often = [](comm::Communicator& world) {
    talk(world);
    talk(world);
  };
  EXPECT_EQ(error_of(tape, other_call), ErrorCode::kComm);
  EXPECT_EQ(error_of(tape, other_size), ErrorCode::kComm);
  EXPECT_EQ(error_of(tape, too_often), ErrorCode::kComm);
}

TEST(ReplayedRank, ExpectsThePiecesAndGroupsOfItsTape) {
  const auto send_one = [](comm::Communicator& world, std::int64_t pieces) {
    Context ctx;
    std::array<Values, 2> values = {Values(2 * kRanks), Values(2 * kRanks)};
    std::array<std::vector<std::array<Piece, 2>>, 2> places;
    std::array<std::vector<Lane>, 2> lanes;  // to and from
    for (std::size_t end = 0; end < 2; ++end) {
      places[end].resize(kRanks);
      for (std::size_t r = 0; r < kRanks; ++r) {
        std::int64_t* const at = &values[end][2 * r];
        places[end][r] = {Piece{at, pieces == 1 ? 2 * kWord : kWord}, Piece{at + 1, kWord}};
        const bool silent = (r == 0) != (world.rank() == 0);
        lanes[end].push_back(
            {.pieces = std::span(places[end][r]).first(static_cast<std::size_t>(pieces)),
             .silent = silent});
      }
    }
    world.exchange(ctx, lanes[0], lanes[1]);
  };
  const auto send_and_split = [&](comm::Communicator& world) {
    send_one(world, 2);
    world.split(0, world.rank(), "all");
  };
  GroupTape tape;
  record(tape, send_and_split);
  EXPECT_TRUE(tape.exchanges.front()->lanes()[0].silent);
  TransportTime time;
  run_replayed(tape, time, send_and_split);
  const auto one_piece = [&](comm::Communicator& world) { send_one(world, 1); };
  const auto other_group = [&](comm::Communicator& world) {
    send_one(world, 2);
    world.split(0, world.rank(), "others");
  };
  EXPECT_EQ(error_of(tape, one_piece), ErrorCode::kComm);
  EXPECT_EQ(error_of(tape, other_group), ErrorCode::kComm);
}

TEST(ReplayedRank, LosesNothingThatLiesSideBySide) {
  // Two pieces of a lane that are one run stay one; a third, which overlaps, shows the same bytes.
  std::array<std::int64_t, 6> values = {0, 1, 2, 3, 4, 5};
  const std::array<Piece, 3> pieces = {Piece{&values[2], 2 * kWord}, Piece{&values[4], 2 * kWord},
                                       Piece{&values[3], 2 * kWord}};
  const std::array<Lane, 2> lanes = {Lane{}, Lane{.pieces = pieces, .silent = false}};
  const TapedExchange taped({}, lanes, 0);
  values.fill(-1);
  const std::span<const Piece> kept = taped.lanes()[1].pieces;
  ASSERT_EQ(kept.size(), 3U);
  const auto* const first = static_cast<const std::int64_t*>(kept[0].data);
  EXPECT_EQ(first[0], 2);
  EXPECT_EQ(kept[1].data, first + 2);
  EXPECT_EQ(kept[2].data, first + 1);
  EXPECT_EQ(first[3], 5);
  const auto in_line = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 64; };
  EXPECT_EQ(in_line(first), in_line(&values[2]));
}

}  // namespace
}  // namespace weft::bench
