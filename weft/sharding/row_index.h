/// Private to sharding/: places of some rows of a shard, by row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "weft/layout/replicas.h"

namespace weft::sharding {

/// A table of rows and their places, of which any may come and go. Rows are below 2^31. Used by one
/// thread at a time; reads by several. Memory: layout::row_index_bytes() of the most rows that it
/// ever had. Cost: a line of memory or two per call.
class RowIndex {
 public:
  static constexpr std::int32_t kNowhere = -1;

  /// Rows that have a place.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// The place of a row, or kNowhere.
  [[nodiscard]] std::int32_t find(std::int32_t row) const {
    if (cells_.empty()) {
      return kNowhere;
    }
    for (std::size_t i = home(row);; i = next(i)) {
      if (cells_[i].row == row || cells_[i].place == kNowhere) {
        return cells_[i].place;
      }
    }
  }

  /// REQUIRES: the row has no place.
  void insert(std::int32_t row, std::int32_t place) {
    ++size_;
    if (std::cmp_less(cells_.size(), layout::row_index_cells(size_))) {
      std::vector<Cell> before(static_cast<std::size_t>(layout::row_index_cells(size_)));
      std::swap(before, cells_);
      for (const Cell& cell : before) {
        if (cell.place != kNowhere) {
          put(cell);
        }
      }
    }
    put({row, place});
  }

  /// REQUIRES: the row has a place.
  void erase(std::int32_t row) {
    std::size_t gap = home(row);
    while (cells_[gap].row != row) {
      gap = next(gap);
    }
    // Rows behind the gap move up, unless they would then lie before their home.
    for (std::size_t i = next(gap); cells_[i].place != kNowhere; i = next(i)) {
      const std::size_t from_home = (i - home(cells_[i].row)) & (cells_.size() - 1);
      const std::size_t from_gap = (i - gap) & (cells_.size() - 1);
      if (from_home >= from_gap) {
        cells_[gap] = cells_[i];
        gap = i;
      }
    }
    cells_[gap] = {};
    --size_;
  }

  /// Calls visit(row, place) for all rows, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Cell& cell : cells_) {
      if (cell.place != kNowhere) {
        visit(cell.row, cell.place);
      }
    }
  }

 private:
  struct Cell {
    std::int32_t row = -1;
    std::int32_t place = kNowhere;
  };

  static_assert(sizeof(Cell) == layout::kRowIndexCellBytes);

  [[nodiscard]] std::size_t home(std::int32_t row) const {
    const std::uint64_t mixed = static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed >> 32) & (cells_.size() - 1);
  }

  [[nodiscard]] std::size_t next(std::size_t i) const { return (i + 1) & (cells_.size() - 1); }

  void put(const Cell& cell) {
    std::size_t i = home(cell.row);
    while (cells_[i].place != kNowhere) {
      i = next(i);
    }
    cells_[i] = cell;
  }

  std::vector<Cell> cells_;  // a power of two of them, half of them free at least
  std::int64_t size_ = 0;
};

}  // namespace weft::sharding
