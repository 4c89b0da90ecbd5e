/// What the rows of a table are called in segments (weft/rowfile): the keys of their streams.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/parts.h"
#include "weft/tensor/dtype.h"

namespace weft {

/// One item of the rows of a table. One with as many columns as the first, which are the weights,
/// is cut as these are; another is whole in every stream.
struct RowItem {
  std::string kind;
  DType dtype = DType::kFloat32;
  std::int64_t cols = 0;  ///< of the whole table

  friend bool operator==(const RowItem&, const RowItem&) = default;
};

/// Some columns of a table, as packed rows of them lie in segments (weft/layout/packed_rows.h).
struct RowStream {
  Range cols;                     ///< of the weights
  DType dtype = DType::kFloat32;  ///< of the weights as they lie: also split_bf16

  friend bool operator==(const RowStream&, const RowStream&) = default;
};

/// A hash of what the rows of a table are.
std::uint64_t row_items_key(std::string_view parameter, std::span<const RowItem> items);

/// The key of a stream of theirs: a hash of what its rows are.
std::uint64_t row_stream_key(std::string_view parameter,
                             std::span<const RowItem> items,
                             const RowStream& stream);

}  // namespace weft
