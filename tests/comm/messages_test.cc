// Pieces that lie in one run, and lists of many pieces.
#include "weft/comm/messages.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/piece_list.h"

namespace weft::comm {
namespace {

TEST(RunOf, BeginsWherePiecesLieBehindEachOther) {
  std::array<std::byte, 64> memory{};
  std::byte* const at = memory.data();
  const auto run = [](const std::vector<Piece>& pieces) { return run_of(pieces); };
  EXPECT_EQ(run({{at, 8}}), at);
  EXPECT_EQ(run({{at + 3, 5}, {at + 8, 1}, {at + 9, 20}}), at + 3);
  EXPECT_EQ(run({{nullptr, 0}, {at + 4, 4}, {at, 0}, {at + 8, 4}}), at + 4);  // none has no place
}

TEST(RunOf, IsNowhereElse) {
  std::array<std::byte, 64> memory{};
  std::byte* const at = memory.data();
  const auto run = [](const std::vector<Piece>& pieces) { return run_of(pieces); };
  EXPECT_EQ(run({}), nullptr);
  EXPECT_EQ(run({{at, 0}}), nullptr);
  EXPECT_EQ(run({{at, 8}, {at + 9, 8}}), nullptr);  // a gap
  EXPECT_EQ(run({{at + 8, 8}, {at, 8}}), nullptr);  // the other order
  EXPECT_EQ(run({{at, 8}, {at, 8}}), nullptr);      // twice the same
  EXPECT_EQ(run({{at, 8}, {at + 16, 8}, {at + 24, 8}}), nullptr);
  const Piece rows{.data = at, .bytes = 8, .row_bytes = 4, .stride = 4, .rows = nullptr};
  EXPECT_EQ(run({rows}), nullptr);
}

TEST(PieceList, HasWhatHasBeenAdded) {
  std::array<std::byte, 2000> memory{};
  PieceList list;
  for (const std::size_t count : {std::size_t{1000}, std::size_t{3}, std::size_t{1500}}) {
    list.clear();
    for (std::size_t i = 0; i < count; ++i) {
      list.add({memory.data() + i, static_cast<std::int64_t>(i)});
    }
    ASSERT_EQ(list.size(), count);
    const auto pieces = list.between(1, count);
    ASSERT_EQ(pieces.size(), count - 1);
    for (std::size_t i = 1; i < count; ++i) {
      EXPECT_EQ(pieces[i - 1].data, memory.data() + i);
      EXPECT_EQ(pieces[i - 1].bytes, static_cast<std::int64_t>(i));
    }
    EXPECT_TRUE(list.between(count, count).empty());
  }
}

}  // namespace
}  // namespace weft::comm
