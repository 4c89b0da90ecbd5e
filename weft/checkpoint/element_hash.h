/// Element words of a compact block and their sum (weft/checkpoint/state_hash.h has the formula).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weft/base/hash.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// Times the number of a row or column, plus one, it keeps words of neighbours apart.
inline constexpr std::uint64_t kElementStep = 0x9e3779b97f4a7c15ULL;

/// Bytes of a row of the item's block.
inline std::int64_t row_bytes(const StateItem& item) {
  return (item.col_end - item.col_begin) * size_of(item.dtype);
}

/// Rows of a compact block: their item, how many, and the number of each.
template <typename RowAt>
struct HashedRows {
  const StateItem& item;
  std::int64_t rows;
  RowAt row_at;
};

/// Σ of the element words of a compact block; elements equal to `initial` (may be null) count zero.
template <typename Bits, typename RowAt>
std::uint64_t hash_rows(const HashedRows<RowAt>& block,
                        const std::byte* values,
                        const std::byte* initial) {
  const std::uint64_t key = item_key(block.item);
  const std::int64_t cols = block.item.col_end - block.item.col_begin;
  std::uint64_t sum = 0;
  std::int64_t at = 0;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const auto row = static_cast<std::uint64_t>(block.row_at(r));
    const std::uint64_t row_key = mix64(key + (row + 1) * kElementStep);
    for (std::int64_t c = 0; c < cols; ++c, at += static_cast<std::int64_t>(sizeof(Bits))) {
      Bits bits;
      std::memcpy(&bits, values + at, sizeof(Bits));
      if (initial != nullptr && std::memcmp(&bits, initial + at, sizeof(Bits)) == 0) {
        continue;
      }
      const auto col = static_cast<std::uint64_t>(block.item.col_begin + c);
      sum += mix64(mix64(row_key + (col + 1) * kElementStep) ^ bits);
    }
  }
  return sum;
}

/// The same of elements of the item's type.
template <typename RowAt>
std::uint64_t hash_block(const HashedRows<RowAt>& block,
                         const std::byte* values,
                         const std::byte* initial) {
  switch (size_of(block.item.dtype)) {
    case 1:
      return hash_rows<std::uint8_t>(block, values, initial);
    case 2:
      return hash_rows<std::uint16_t>(block, values, initial);
    case 4:
      return hash_rows<std::uint32_t>(block, values, initial);
    default:
      return hash_rows<std::uint64_t>(block, values, initial);
  }
}

}  // namespace weft::checkpoint
