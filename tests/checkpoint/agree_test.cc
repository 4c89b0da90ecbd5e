// One outcome on all ranks, and how many messages that takes.
#include "weft/checkpoint/agree.h"

#include <atomic>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/comm/local/local.h"

namespace weft::checkpoint {
namespace {

std::int64_t messages_of(const comm::Communicator& comm) {
  std::int64_t sum = 0;
  for (const auto& entry : comm.traffic().by_collective) {
    sum += entry.messages;
  }
  return sum;
}

TEST(AgreeTree, AllThrowTheErrorOfTheLowestRankThatFails) {
  for (const int ranks : {1, 2, 3, 5, 6, 8}) {
    std::atomic<int> right = 0;
    int expected = 0;
    comm::run_local(ranks, {}, [&](comm::Communicator& world) {
      Context ctx;
      for (unsigned failing = 0; failing < 1U << ranks; failing += ranks > 4 ? 7 : 1) {
        const auto fails = [&](int rank) { return (failing >> rank & 1U) != 0; };
        int lowest = 0;
        while (lowest < ranks && !fails(lowest)) {
          ++lowest;
        }
        if (world.rank() == 0) {  // ranks are threads, and share it
          expected += ranks;
        }
        try {
          agree(world, ctx, [&](WorkProgress&) {
            if (fails(world.rank())) {
              fail(ErrorCode::kData, "rank {} of {}", world.rank(), failing);
            }
          });
          right += failing == 0 ? 1 : 0;
        } catch (const Error& error) {
          right += error.origin_rank() == lowest && error.code() == ErrorCode::kData &&
                           error.what() == fmt::format("rank {} of {}", lowest, failing)
                       ? 1
                       : 0;
        }
      }
    });
    EXPECT_EQ(right, expected) << ranks;
  }
}

TEST(AgreeTree, MessagesGrowWithTheLogarithmOfRanks) {
  for (const int ranks : {2, 8, 16, 64}) {
    std::atomic<std::int64_t> all = 0;
    std::atomic<std::int64_t> most = 0;
    comm::run_local(ranks, {}, [&](comm::Communicator& world) {
      Context ctx;
      const std::int64_t before = messages_of(world);
      agree(world, ctx, [](WorkProgress&) {});
      const std::int64_t own = messages_of(world) - before;
      all += own;
      for (std::int64_t seen = most; own > seen && !most.compare_exchange_weak(seen, own);) {
      }
    });
    if (ranks <= 8) {
      EXPECT_EQ(all, ranks * (ranks - 1)) << "one exchange";
      EXPECT_EQ(most, ranks - 1);
    } else {
      EXPECT_EQ(all, 2 * (ranks - 1)) << "each but rank 0 sends up once, and is sent to once";
      EXPECT_LE(most, 2 * 7) << "7 to each level of two";
    }
  }
}

TEST(AgreeTree, GatheringToTheFirstTellsNobodyElse) {
  comm::run_local(5, {}, [&](comm::Communicator& world) {
    Context ctx;
    const std::string own(static_cast<std::size_t>(world.rank() * 3),
                          static_cast<char>('a' + world.rank()));
    const std::int64_t before = messages_of(world);
    const Gathered all = gather_to_first(world, ctx, std::as_bytes(std::span(own)));
    EXPECT_EQ(messages_of(world) - before, world.rank() == 0 ? 0 : 2);
    const std::string text(reinterpret_cast<const char*>(all.bytes.data()), all.bytes.size());
    EXPECT_EQ(text, world.rank() == 0 ? "bbbccccccdddddddddeeeeeeeeeeee" : "");
    std::string shared = own;
    world.share(ctx, shared, 0);
    EXPECT_EQ(shared, "");
  });
}

}  // namespace
}  // namespace weft::checkpoint
