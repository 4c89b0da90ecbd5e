// What goes along the tree over ranks: the result of one exchange, with few messages.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/comm/local/local.h"

namespace weft::comm {
namespace {

const std::vector<int> kWorlds = {1, 2, 7, 8, 9, 15, 16, 63, 64, 65};

int levels_of(int ranks) {
  int levels = 0;
  for (int span = 1; span < ranks; span *= 8) {
    ++levels;
  }
  return levels;
}

/// A run of ranks as a merge sees it: wrong where ranks are left out or out of order.
struct RankRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

TEST(RankTree, AMergeTakesRanksInTheirOrder) {
  for (const int ranks : kWorlds) {
    run_local(ranks, {}, [&](Communicator& world) {
      Context ctx;
      RankRun own{world.rank(), world.rank() + 1};
      bool in_order = true;
      world.merge(ctx, std::as_writable_bytes(std::span(&own, 1)),
                  [&](std::span<std::byte> block, std::span<const std::byte> later) {
                    RankRun left;
                    RankRun right;
                    std::memcpy(&left, block.data(), sizeof left);
                    std::memcpy(&right, later.data(), sizeof right);
                    in_order = in_order && left.end == right.begin;
                    left.end = right.end;
                    std::memcpy(block.data(), &left, sizeof left);
                  });
      EXPECT_TRUE(in_order) << "rank " << world.rank() << " of " << ranks;
      EXPECT_EQ(own.begin, 0);
      EXPECT_EQ(own.end, ranks);
    });
  }
}

// Numbers whose sums are rounded: another order of addition has other bits.
TEST(RankTree, SmallSumsHaveTheBitsOfTheTreeOverRanks) {
  constexpr std::int64_t kCount = 5;
  const auto value = [](int rank, std::int64_t i) {
    return 1.0F / static_cast<float>(3 + rank * 7 + i);
  };
  int differ = 0;
  for (const int ranks : kWorlds) {
    std::vector<float> expected(kCount);
    std::vector<float> in_a_row(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::vector<float> slots(static_cast<std::size_t>(tree_slots(ranks)) + 1);
      sum_tree(
          Range{0, ranks}, 0,
          [&](Range node, int depth) {
            if (node.size() == 1) {
              slots[static_cast<std::size_t>(depth)] = value(static_cast<int>(node.begin), i);
            }
            return node.size() == 1;
          },
          [&](int depth) {
            const auto slot = static_cast<std::size_t>(depth);
            slots[slot] += slots[slot + 1];
          });
      expected[static_cast<std::size_t>(i)] = slots[0];
      for (int rank = 0; rank < ranks; ++rank) {
        in_a_row[static_cast<std::size_t>(i)] += value(rank, i);
      }
    }
    differ += expected == in_a_row ? 0 : 1;
    run_local(ranks, {}, [&](Communicator& world) {
      Context ctx;
      std::vector<float> data(kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        data[static_cast<std::size_t>(i)] = value(world.rank(), i);
      }
      world.all_reduce(ctx, data.data(), kCount);
      EXPECT_EQ(data, expected) << "rank " << world.rank() << " of " << ranks;
    });
  }
  EXPECT_GT(differ, 0) << "the numbers would not show another order";
}

TEST(RankTree, BroadcastsReachAllFromAnyRoot) {
  for (const int ranks : kWorlds) {
    run_local(ranks, {}, [&](Communicator& world) {
      Context ctx;
      for (const int root : {0, ranks / 2, ranks - 1}) {
        std::vector<std::int64_t> data(3, world.rank() == root ? 1000 + root : -1);
        world.broadcast(ctx, data.data(), 24, root);
        EXPECT_EQ(data, std::vector<std::int64_t>(3, 1000 + root));
      }
      world.barrier(ctx);
    });
  }
}

// The law of docs/collectives.md: 7 messages a level at most, where flat it is one to each rank.
TEST(RankTree, MessagesGrowWithTheLevels) {
  for (const int ranks : kWorlds) {
    std::mutex mutex;
    std::int64_t most = 0;
    std::int64_t all = 0;
    run_local(ranks, {}, [&](Communicator& world) {
      Context ctx;
      std::int64_t one = world.rank();
      world.merge(ctx, std::as_writable_bytes(std::span(&one, 1)), [](auto, auto) {});
      const Traffic::Entry sent = world.traffic().of(Collective::kMerge);
      const std::lock_guard lock(mutex);
      most = std::max(most, sent.messages);
      all += sent.messages;
      EXPECT_EQ(sent.calls, ranks > 8 ? 2 * levels_of(ranks) : 1);
    });
    if (ranks <= 8) {
      EXPECT_EQ(most, ranks - 1);
      continue;
    }
    EXPECT_LE(most, 7 * levels_of(ranks)) << ranks;
    EXPECT_EQ(all, 2 * (ranks - 1)) << "each rank but the first sends up once, and is sent to once";
  }
}

}  // namespace
}  // namespace weft::comm
