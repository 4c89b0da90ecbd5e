/// Element words of rows of an item and their sum (weft/checkpoint/state_hash.h has the formula).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/hash.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/kernels/element_hash.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// Times the number of a row, plus one, it keeps words of neighbours apart.
inline constexpr std::uint64_t kElementStep = 0x9e3779b97f4a7c15ULL;

/// Bytes of rows that a thread hashes at a time.
inline constexpr std::int64_t kHashTaskBytes = 512 << 10;

/// Bytes of a row of the item's block.
inline std::int64_t item_row_bytes(const StateItem& item) {
  return (item.col_end - item.col_begin) * size_of(item.dtype);
}

/// Rows of an item: how many, and the number of each.
template <typename RowAt>
struct HashedRows {
  const StateItem& item;
  std::int64_t rows;
  RowAt row_at;
};

/// Σ of the element words of rows; elements equal to `initial` (may begin at null) count zero.
template <typename RowAt>
std::uint64_t hash_rows(const HashedRows<RowAt>& rows,
                        const RowsInPlace& values,
                        const RowsInPlace& initial) {
  const std::uint64_t key = item_key(rows.item);
  std::vector<std::uint64_t> row_keys(static_cast<std::size_t>(rows.rows));
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const auto row = static_cast<std::uint64_t>(rows.row_at(r));
    row_keys[static_cast<std::size_t>(r)] = mix64(key + (row + 1) * kElementStep);
  }
  return kernels::cpu::element_hash({.values = values.begin,
                                     .initial = initial.begin,
                                     .values_stride = values.stride,
                                     .initial_stride = initial.stride,
                                     .row_keys = row_keys.data(),
                                     .rows = rows.rows,
                                     .cols = rows.item.col_end - rows.item.col_begin,
                                     .first_col = rows.item.col_begin,
                                     .element_bytes = size_of(rows.item.dtype)});
}

}  // namespace weft::checkpoint
