/// A store of rows in a device's memory: weights and optimizer state, which never part. It owns the
/// memory and says where a row lies; it computes nothing.
///
/// Memory: one buffer of row_geometry().total_bytes, from 2 MiB on with huge pages; not
/// initialised. Threads: rows may be used from any thread, each by one at a time. Errors:
/// Error(kResource) naming the table where the memory is not to be had.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/spec/config.h"
#include "weft/storage/row_layout.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::storage {

/// Rows 0 to `rows` - 1 of `cols` columns each, with the optimizer state of the table.
class RowStore {
 public:
  RowStore(Device& device, const spec::Table& table, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] std::int64_t cols() const { return cols_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] std::int64_t state_floats() const { return state_floats_; }

  [[nodiscard]] std::int64_t row_bytes() const { return geometry_.row_bytes; }

  [[nodiscard]] std::int64_t bytes() const { return geometry_.total_bytes; }

  [[nodiscard]] std::int64_t weight_stride() const { return geometry_.weight_stride; }  ///< bytes

  [[nodiscard]] std::int64_t rest_stride() const { return geometry_.rest_stride; }  ///< bytes

  /// Of row 0; of split_bf16 rows the high halves.
  [[nodiscard]] std::byte* weights() const {
    return memory_.as<std::byte>() + geometry_.weight_offset;
  }

  /// Of row 0; null where there is no state.
  [[nodiscard]] std::byte* state() const {
    return state_floats_ == 0 ? nullptr : memory_.as<std::byte>() + geometry_.state_offset;
  }

  /// Low halves of row 0; null but for split_bf16.
  [[nodiscard]] std::byte* low() const {
    return dtype_ == DType::kSplitBFloat16 ? memory_.as<std::byte>() + geometry_.low_offset
                                           : nullptr;
  }

  [[nodiscard]] std::byte* weights(std::int64_t row) const {
    return weights() + row * geometry_.weight_stride;
  }

  [[nodiscard]] float* state(std::int64_t row) const {
    return reinterpret_cast<float*>(state() + row * geometry_.rest_stride);
  }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  DType dtype_;
  std::int64_t state_floats_;
  RowGeometry geometry_;
  Buffer memory_;
};

}  // namespace weft::storage
