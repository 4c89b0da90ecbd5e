/// Private to sharding/: which row shard holds a row, without a division or a search per row.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::sharding {

/// Rows are cut at any places. A table of at most 4096 entries gives the shard of the first row of
/// each stretch of 2^shift rows; behind a cut inside the stretch one step per cut leads on.
class RowOwner {
 public:
  RowOwner() = default;

  /// `row_ends`: end row of each shard, ascending; the last is the number of rows.
  explicit RowOwner(const std::vector<std::int64_t>& row_ends) : ends_(row_ends) {
    const auto last = static_cast<std::uint64_t>(std::max<std::int64_t>(row_ends.back() - 1, 0));
    shift_ = std::max(0, static_cast<int>(std::bit_width(last)) - kBits);
    std::size_t shard = 0;
    for (std::uint64_t row = 0; row <= last; row += std::uint64_t{1} << shift_) {
      while (static_cast<std::int64_t>(row) >= row_ends[shard]) {
        ++shard;
      }
      first_.push_back(static_cast<std::uint32_t>(shard));
    }
  }

  /// Requires 0 <= row < the number of rows.
  [[nodiscard]] std::size_t shard_of(std::int64_t row) const {
    std::size_t shard = first_[static_cast<std::size_t>(row) >> shift_];
    while (row >= ends_[shard]) {
      ++shard;
    }
    return shard;
  }

 private:
  static constexpr int kBits = 12;

  std::vector<std::int64_t> ends_;
  std::vector<std::uint32_t> first_;
  int shift_ = 0;
};

}  // namespace weft::sharding
