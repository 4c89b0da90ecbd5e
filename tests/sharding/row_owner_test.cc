// Which cut of rows has a row.
#include "weft/sharding/row_owner.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/id_ranks.h"

namespace weft::sharding {
namespace {

using id_ranks::draw;

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

TEST(RowOwner, OfPiecesIsThePieceThatHasTheRow) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto rows = static_cast<std::int64_t>(1 + (draw(seed, 0) >> (1 + 24 + seed % 39)));
    const auto cuts = static_cast<std::int64_t>(
        1 + draw(seed, 1) % static_cast<std::uint64_t>(std::min<std::int64_t>(rows, 5000)));
    const PieceOwner owner(rows, cuts);
    for (std::int64_t i = 0; i < 40; ++i) {
      const auto k = static_cast<std::int64_t>(draw(seed, 10 + static_cast<std::uint64_t>(i)) %
                                               static_cast<std::uint64_t>(cuts));
      const Range of = piece(rows, cuts, i == 0 ? cuts - 1 : k);
      for (const std::int64_t row : {of.begin, (of.begin + of.end) / 2, of.end - 1}) {
        const RowPlace place = owner.place_of(row);
        ASSERT_EQ(static_cast<std::int64_t>(place.cut), i == 0 ? cuts - 1 : k)
            << row << " of " << rows << " in " << cuts;
        ASSERT_EQ(place.index, row - of.begin);
      }
    }
  }
}

}  // namespace
}  // namespace weft::sharding
