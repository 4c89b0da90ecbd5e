/// The bytes of a packed row: everything of a row behind each other, as rows lie where they are not
/// in a store: in files, and on their way between memories.
///
/// Order: weights; low halves, of split_bf16 rows; optimizer state, its kinds as in
/// weft/base/sparse_optimizer.h. Weights of split_bf16 rows are their high halves. Numbers are as
/// in memory, little-endian. Nothing lies between these fields, nor between two packed rows, so
/// fields are not aligned: they are copied as bytes.
#pragma once

#include <cstdint>

namespace weft::layout {

/// Where the fields of a packed row begin, and how long they are, in bytes.
struct PackedRow {
  std::int64_t weight_bytes = 0;  ///< from 0 on; what a lookup reads
  std::int64_t low_bytes = 0;     ///< behind the weights; 0 but for split_bf16
  std::int64_t state_bytes = 0;   ///< behind the low halves; 0 where there is no state

  [[nodiscard]] constexpr std::int64_t low_offset() const { return weight_bytes; }

  [[nodiscard]] constexpr std::int64_t state_offset() const { return weight_bytes + low_bytes; }

  [[nodiscard]] constexpr std::int64_t bytes() const { return state_offset() + state_bytes; }

  friend bool operator==(const PackedRow&, const PackedRow&) = default;
};

/// Types of rows, as far as their bytes differ.
enum class ElementForm : std::uint8_t {
  kWord,   ///< fp32
  kHalf,   ///< fp16, bf16
  kHalves  ///< split_bf16
};

/// Returns the packed row of `cols` columns with `state_floats` floats of optimizer state.
constexpr PackedRow packed_row(ElementForm form, std::int64_t cols, std::int64_t state_floats) {
  return {.weight_bytes = cols * (form == ElementForm::kWord ? 4 : 2),
          .low_bytes = form == ElementForm::kHalves ? cols * 2 : 0,
          .state_bytes = 4 * state_floats};
}

}  // namespace weft::layout
