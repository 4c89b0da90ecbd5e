/// HostRows: some rows in host memory, aligned as kernels want them, on their way
/// between packed rows and items of state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/rows.h"
#include "weft/tensor/dtype.h"

namespace weft::storage {

/// Rows 0 to `rows` - 1 of a type, with their state; their slots are their numbers.
class HostRows {
 public:
  HostRows(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t state_floats);

  // table() points into it.
  HostRows(HostRows&&) = default;
  HostRows& operator=(HostRows&&) = default;

  /// Where they are.
  [[nodiscard]] const kernels::RowTable& table() const { return table_; }

  [[nodiscard]] std::int64_t rows() const { return std::ssize(slots_); }

  /// Takes the first `count` rows from packed rows.
  void unpack(const std::byte* packed, std::int64_t count);

  /// Gives them as packed rows.
  void pack(std::byte* packed, std::int64_t count) const;

 private:
  std::vector<std::byte> weights_, low_;
  std::vector<float> state_;
  std::vector<std::int64_t> slots_;  // 0, 1, 2, ...
  std::int64_t state_floats_;
  kernels::RowTable table_;
};

}  // namespace weft::storage
