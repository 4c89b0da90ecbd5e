// Marks on rows that somebody has written.
#include "weft/embedding/written_rows.h"

#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/embedding/sparse_job.h"
#include "weft/base/at.h"
#include "weft/tensor/state.h"

namespace weft::embedding::test {
namespace {

std::vector<std::int64_t> visited(const WrittenRows& rows) {
  std::vector<std::int64_t> all;
  rows.for_each([&](std::span<const std::int64_t> some) {
    EXPECT_FALSE(some.empty());
    all.insert(all.end(), some.begin(), some.end());
  });
  return all;
}

TEST(WrittenRows, AreThoseThatWereSet) {
  Random random(5);
  for (const std::int64_t rows : {1, 63, 64, 65, 1000, 30011}) {
    WrittenRows written(rows);
    EXPECT_TRUE(visited(written).empty());
    std::set<std::int64_t> expected;
    for (int round = 0; round < 20; ++round) {
      const std::int64_t begin = below(random, rows);
      const std::int64_t count = below(random, std::min<std::int64_t>(rows - begin, 150) + 1);
      std::vector<std::int64_t> list(at(round % 3 == 0 ? 0 : 1 + below(random, 5)));
      for (std::int64_t& row : list) {
        row = below(random, rows);
      }
      if (round % 2 == 0) {
        written.set(list);
      } else {
        written.set(std::vector<std::int32_t>(list.begin(), list.end()));
      }
      expected.insert(list.begin(), list.end());
      written.set_range(begin, count);
      for (std::int64_t row = begin; row < begin + count; ++row) {
        expected.insert(row);
      }
      EXPECT_EQ(written.count(), std::ssize(expected));
      EXPECT_EQ(visited(written), std::vector<std::int64_t>(expected.begin(), expected.end()));
      EXPECT_EQ(written.contains(begin), expected.contains(begin));
    }
    written.set_all();
    std::vector<std::int64_t> all(at(rows));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(visited(written), all);
  }
}

std::vector<std::int64_t> written_of(const TableShard& shard) {
  std::vector<std::int64_t> rows;
  shard.row_state()->for_each_written_row([&](std::span<const std::int64_t> some) {
    rows.insert(rows.end(), some.begin(), some.end());
  });
  EXPECT_EQ(shard.row_state()->written_rows(), std::ssize(rows));
  return rows;
}

using Rows = std::vector<std::int64_t>;

TEST(WrittenRows, EveryWayOfWritingIsNoted) {
  for (const bool marked : {false, true}) {
    const std::unique_ptr<Device> device = make_device({});
    const spec::Table table = make_table(1000, 16);
    TableShard shard(*device, table, RowSet{1, 1000, 3}, Range{0, 16}, kSeed, {});
    if (marked) {
      shard.row_sink()->mark();  // beside what has changed since then
    }
    EXPECT_EQ(written_of(shard), Rows());
    const std::vector<float> values(64, 0.5F);
    shard.write_state(0, 31, 2, 0, 16, values.data());
    EXPECT_EQ(written_of(shard), Rows({31, 34}));
    shard.write_state(0, 31, 0, 0, 16, values.data());
    const Rows listed = {4, 100};
    shard.write_listed_state(0, listed, 3, 5, values.data());
    EXPECT_EQ(written_of(shard), Rows({4, 31, 34, 100}));
    const std::int64_t row_bytes = shard.row_state()->row_shape().packed.bytes();
    const std::vector<std::byte> packed(at(row_bytes));
    const std::int64_t last = 997;
    shard.row_sink()->write_rows(std::span(&last, 1), packed.data());
    EXPECT_EQ(written_of(shard), Rows({4, 31, 34, 100, 997}));
    const std::int32_t local = 0;
    shard.note_written(std::span(&local, 1));
    EXPECT_EQ(written_of(shard), Rows({1, 4, 31, 34, 100, 997}));
    shard.row_sink()->mark();
    EXPECT_EQ(written_of(shard).size(), 6U) << "what has changed is counted anew, not this";
    shard.note_all_written();
    EXPECT_EQ(written_of(shard).size(), 333U);
  }
}

TEST(WrittenRows, NobodyKeepsCountOnceItCostsAsMuchAsAHash) {
  const std::unique_ptr<Device> device = make_device({});
  TableShard shard(*device, make_table(10, 16), Range{0, 10}, Range{0, 16}, kSeed, {});
  ShardRows rows(shard);
  EXPECT_EQ(rows.begin_marks(1), nullptr) << "nobody has begun";
  rows.begin_written();
  WrittenRows* const marks = rows.begin_marks(9);
  ASSERT_NE(marks, nullptr);
  const std::int64_t row = 3;
  const RowsToMark job{marks, std::span(&row, 1)};
  Context ctx{.device = device.get(), .pool = &device->pool()};
  mark_rows(ctx, std::span(&job, 1));
  EXPECT_EQ(rows.written_rows(), 1);
  EXPECT_EQ(rows.begin_marks(1), nullptr) << "that is one more than it has rows, with the first";
  EXPECT_FALSE(rows.written_rows().has_value());
}

TEST(WrittenRows, RowsOfTiersAreKnownOtherwise) {
  const std::unique_ptr<Device> device = make_device({});
  spec::Table table = make_table(100, 16);
  table.memory.tier = spec::MemoryTier::kLazy;
  const TableShard shard(*device, table, Range{0, 100}, Range{0, 16}, kSeed, {});
  EXPECT_FALSE(shard.row_state()->written_rows().has_value());
  EXPECT_TRUE(shard.row_state()->is_sparse());
}

}  // namespace
}  // namespace weft::embedding::test
