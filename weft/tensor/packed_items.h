/// Items of state out of packed rows: what hashes and checkpoints see of rows that come by list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/tensor/state.h"

namespace weft {

/// Where an item lies in the packed rows of a shape, whose items are in the same order.
struct PackedItem {
  std::int64_t offset = 0;        ///< bytes from the beginning of a packed row
  std::int64_t cols = 0;          ///< elements of a row
  DType dtype = DType::kFloat32;  ///< of the item
  bool in_halves = false;         ///< words whose high and low halves lie apart
  std::int64_t low_offset = 0;    ///< then of the low halves
};

/// The places of all items of the shape: the weights, then the kinds of state.
std::vector<PackedItem> packed_items(const RowState::Shape& shape,
                                     const std::vector<StateItem>& items);

/// Copies an item of `count` packed rows of `row_bytes` to `out` [count, cols] of its dtype.
void copy_item(const PackedItem& item,
               const std::byte* packed,
               std::int64_t row_bytes,
               std::int64_t count,
               std::byte* out);

}  // namespace weft
