#include "weft/storage/host_rows.h"

#include <numeric>

#include "weft/base/at.h"
#include "weft/kernels/row_fields.h"
#include "weft/kernels/row_moves.h"

namespace weft::storage {

HostRows::HostRows(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t state_floats)
    : slots_(at(rows)), state_floats_(state_floats) {
  table_ = {.dtype = dtype, .cols = cols, .dim = cols};
  const layout::PackedRow packed = kernels::packed_row(table_, state_floats);
  weights_.resize(at(rows * packed.weight_bytes));
  low_.resize(at(rows * packed.low_bytes));
  state_.resize(at(rows * state_floats));
  table_.weights = weights_.data();
  table_.weight_stride = packed.weight_bytes;
  table_.state = state_floats == 0 ? nullptr : state_.data();
  table_.state_stride = packed.state_bytes;
  table_.low = low_.empty() ? nullptr : low_.data();
  table_.low_stride = packed.low_bytes;
  std::iota(slots_.begin(), slots_.end(), 0);
}

void HostRows::unpack(const std::byte* packed, std::int64_t count) {
  const kernels::RowMove move{.table = table_,
                              .state_floats = state_floats_,
                              .count = count,
                              .slots = slots_.data(),
                              .packed = const_cast<std::byte*>(packed)};  // only read
  Context ctx;
  kernels::cpu::unpack_rows(ctx, std::span(&move, 1));
}

void HostRows::pack(std::byte* packed, std::int64_t count) const {
  const kernels::RowMove move{.table = table_,
                              .state_floats = state_floats_,
                              .count = count,
                              .slots = slots_.data(),
                              .packed = packed};
  Context ctx;
  kernels::cpu::pack_rows(ctx, std::span(&move, 1));
}

}  // namespace weft::storage
