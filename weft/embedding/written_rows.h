/// Which rows of a shard somebody has written since they got their initial values. All others have
/// these still, so who looks for what differs from them need not read the others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/tensor/device.h"

namespace weft::embedding {

/// Rows 0 to n - 1, none of which is written at first. Marks are never taken away. Threads: one
/// writes at a time, and nobody reads meanwhile. Memory: a bit per row, in host memory, all of it
/// from the start, so that marking allocates nothing. Cost of a mark: 1 to 5 ns where rows come in
/// ascending order, a line of memory each where they are far apart.
class WrittenRows {
 public:
  explicit WrittenRows(std::int64_t rows);

  /// Marks rows; an array of numbers in host memory.
  void set(std::span<const std::int64_t> rows);
  void set(std::span<const std::int32_t> rows);

  /// Marks rows [begin, begin + count).
  void set_range(std::int64_t begin, std::int64_t count);

  /// Marks all rows.
  void set_all() { set_range(0, rows_); }

  /// Whether a row is marked.
  [[nodiscard]] bool contains(std::int64_t row) const;

  /// Returns how many rows are marked. Cost: a look at all bits.
  [[nodiscard]] std::int64_t count() const;

  /// Visits marked rows in ascending order, some at a time.
  void for_each(const std::function<void(std::span<const std::int64_t> rows)>& visit) const;

 private:
  std::int64_t rows_;
  std::vector<std::uint64_t> words_;
};

/// Rows to mark, counted from 0; an array of numbers in host memory.
struct RowsToMark {
  WrittenRows* to = nullptr;
  std::span<const std::int64_t> rows;
};

/// Marks rows of several shards, each in one job, beside each other in ctx.pool.
void mark_rows(Context& ctx, std::span<const RowsToMark> jobs);

}  // namespace weft::embedding
