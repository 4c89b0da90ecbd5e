/// Private to sharding/: which cut of rows has a row, and where, without a division or a search per
/// row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/parts.h"

namespace weft::sharding {

struct RowPlace {
  std::size_t cut = 0;
  std::int64_t index = 0;  ///< of the row among the cut's
};

/// Of ranges that are cut at any places. A table of at most 4096 entries gives the cut of the first
/// row of each stretch of 2^shift rows; behind an end inside the stretch one step per end leads on.
class RangeOwner {
 public:
  RangeOwner() = default;

  /// Ranges that follow each other from row 0 on.
  explicit RangeOwner(const std::vector<RowSet>& cuts) {
    for (const RowSet& rows : cuts) {
      begins_.push_back(rows.begin);
      ends_.push_back(rows.end);
    }
    const auto last = static_cast<std::uint64_t>(std::max<std::int64_t>(ends_.back() - 1, 0));
    shift_ = std::max(0, static_cast<int>(std::bit_width(last)) - kBits);
    std::size_t cut = 0;
    for (std::uint64_t row = 0; row <= last; row += std::uint64_t{1} << shift_) {
      while (static_cast<std::int64_t>(row) >= ends_[cut]) {
        ++cut;
      }
      first_.push_back(static_cast<std::uint32_t>(cut));
    }
  }

  /// Requires 0 <= row < the number of rows.
  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    std::size_t cut = first_[static_cast<std::size_t>(row) >> shift_];
    while (row >= ends_[cut]) {
      ++cut;
    }
    return {cut, row - begins_[cut]};
  }

 private:
  static constexpr int kBits = 12;

  std::vector<std::int64_t> begins_, ends_;
  std::vector<std::uint32_t> first_;
  int shift_ = 0;
};

/// Of n cuts of which the k-th has rows k, k + n, k + 2n, ...
class ModuloOwner {
 public:
  /// Requires cuts >= 1.
  explicit ModuloOwner(std::int64_t cuts = 1)
      : cuts_(static_cast<std::uint64_t>(cuts)), reciprocal_(~std::uint64_t{0} / cuts_) {}

  /// Requires row >= 0.
  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    __extension__ using Wide = unsigned __int128;
    const auto x = static_cast<std::uint64_t>(row);
    // 2^64 / n - reciprocal_ is at most 1, so the product is x / n rounded down, or one less.
    const auto low = static_cast<std::uint64_t>((static_cast<Wide>(x) * reciprocal_) >> 64);
    const std::uint64_t rest = x - low * cuts_;
    const std::uint64_t over = rest >= cuts_ ? 1 : 0;
    return {static_cast<std::size_t>(rest - over * cuts_), static_cast<std::int64_t>(low + over)};
  }

 private:
  std::uint64_t cuts_;
  std::uint64_t reciprocal_;
};

}  // namespace weft::sharding
