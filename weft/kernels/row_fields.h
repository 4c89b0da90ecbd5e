/// The fields of rows as bytes: what operations and exchanges that take rows as they are copy.
/// Everything of a row is in them, so a row that moves by its fields leaves nothing behind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/kernels/rows.h"
#include "weft/layout/packed_rows.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels {

/// A field of every row of a table.
struct RowField {
  std::byte* data = nullptr;  ///< of slot 0
  std::int64_t stride = 0;    ///< bytes
  std::int64_t bytes = 0;     ///< of a row
  std::int64_t offset = 0;    ///< in a packed row (weft/layout/packed_rows.h)

  /// Where a slot's is.
  [[nodiscard]] std::byte* at(std::int64_t slot) const { return data + slot * stride; }
};

/// The fields that a table's rows have, in the order of packed rows; a range.
class RowFields {
 public:
  RowFields() = default;

  /// Of rows with `state_floats` floats of state: weights; low halves, where the table has some;
  /// state, where a row has some.
  RowFields(const RowTable& table, std::int64_t state_floats);

  [[nodiscard]] std::size_t size() const { return size_; }

  [[nodiscard]] const RowField& operator[](std::size_t i) const { return fields_[i]; }

  [[nodiscard]] const RowField* begin() const { return fields_.data(); }

  [[nodiscard]] const RowField* end() const { return fields_.data() + size_; }

 private:
  std::array<RowField, 3> fields_;
  std::size_t size_ = 0;
};

/// Returns the packed row of a table whose rows have `state_floats` floats of state.
inline layout::PackedRow packed_row(const RowTable& table, std::int64_t state_floats) {
  using layout::ElementForm;
  const ElementForm form = table.dtype == DType::kSplitBFloat16 ? ElementForm::kHalves
                           : table.dtype == DType::kFloat32     ? ElementForm::kWord
                                                                : ElementForm::kHalf;
  return layout::packed_row(form, table.cols, state_floats);
}

inline RowFields::RowFields(const RowTable& table, std::int64_t state_floats) {
  const layout::PackedRow row = packed_row(table, state_floats);
  const auto add = [this](const RowField& field) {
    if (field.bytes > 0) {
      fields_[size_++] = field;
    }
  };
  fields_[size_++] = {static_cast<std::byte*>(table.weights), table.weight_stride, row.weight_bytes,
                      0};
  add({static_cast<std::byte*>(table.low), table.low_stride, row.low_bytes, row.low_offset()});
  add({static_cast<std::byte*>(table.state), table.state_stride, row.state_bytes,
       row.state_offset()});
}

}  // namespace weft::kernels
