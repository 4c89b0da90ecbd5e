#include "weft/kernels/row_moves.h"

namespace weft::kernels::reference {
namespace {

/// Calls visit(byte of a row in its slot, the same byte of the packed row) for every byte, in the
/// order of the packed rows.
template <typename Visit>
void for_bytes(const RowMove& job, const Visit& visit) {
  const RowTable& table = job.table;
  const layout::PackedRow row = packed_row(table, job.state_floats);
  const auto byte_of = [](void* base, std::int64_t at) {
    return static_cast<std::byte*>(base) + at;
  };
  for (std::int64_t i = 0; i < job.count; ++i) {
    const std::int64_t slot = job.slots[i];
    std::byte* packed = job.packed + i * row.bytes();
    for (std::int64_t b = 0; b < row.weight_bytes; ++b) {
      visit(*byte_of(table.weights, slot * table.weight_stride + b), *packed++);
    }
    for (std::int64_t b = 0; b < row.low_bytes; ++b) {
      visit(*byte_of(table.low, slot * table.low_stride + b), *packed++);
    }
    for (std::int64_t b = 0; b < row.state_bytes; ++b) {
      visit(*byte_of(table.state, slot * table.state_stride + b), *packed++);
    }
  }
}

}  // namespace

void pack_rows(Context& /*ctx*/, std::span<const RowMove> jobs) {
  for (const RowMove& job : jobs) {
    for_bytes(job, [](const std::byte& in_slot, std::byte& packed) { packed = in_slot; });
  }
}

void unpack_rows(Context& /*ctx*/, std::span<const RowMove> jobs) {
  for (const RowMove& job : jobs) {
    for_bytes(job, [](std::byte& in_slot, const std::byte& packed) { in_slot = packed; });
  }
}

}  // namespace weft::kernels::reference
