/// Marks on rows of a shard: a bit each, in pages that exist where some row is marked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace weft::embedding {

/// Rows 0 to n - 1, none of which is marked at first. Used by one thread at a time. Memory: 8 bytes
/// per 32,768 rows, and 4 KiB for each such page with a marked row.
class RowMarks {
 public:
  /// A page of rows.
  static constexpr std::int64_t kPageRows = 32768;

  explicit RowMarks(std::int64_t rows);

  /// Marks rows; an array of numbers in host memory.
  void set(std::span<const std::int64_t> rows);

  /// Marks all rows.
  void set_all();

  /// Takes all marks away, and their pages.
  void clear();

  /// Takes the mark of a row away. Its page stays.
  void reset(std::int64_t row);

  /// Appends up to `most` marked rows from `first` on, ascending, and takes their marks away.
  /// Returns the row to go on from; the number of rows when it was behind the last marked one.
  std::int64_t take(std::int64_t first, std::int64_t most, std::vector<std::int64_t>& out);

  /// Whether a row is marked.
  [[nodiscard]] bool contains(std::int64_t row) const;

  /// Visits marked rows in ascending order, up to a page of them at a time.
  void for_each(const std::function<void(std::span<const std::int64_t> rows)>& visit) const;

 private:
  using Page = std::vector<std::uint64_t>;

  std::int64_t rows_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace weft::embedding
