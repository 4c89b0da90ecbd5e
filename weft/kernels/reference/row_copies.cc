#include "weft/kernels/row_copies.h"

#include <cstring>

namespace weft::kernels::reference {
namespace {

/// Calls visit(slot, column or float of the row, where it is in the matrix) for every element.
template <typename Visit>
void for_elements(const RowCopy& job, const Visit& visit) {
  const std::int64_t element = element_bytes(job.table, job.part);
  for (std::int64_t slot = job.slots.begin; slot < job.slots.end; ++slot) {
    for (std::int64_t c = 0; c < job.cols; ++c) {
      visit(slot, job.first + c,
            static_cast<char*>(job.matrix) + (slot - job.slots.begin + job.first_row) * job.stride +
                c * element);
    }
  }
}

char* element_at(void* base, std::int64_t bytes, std::int64_t col, std::int64_t element) {
  return static_cast<char*>(base) + bytes + col * element;
}

/// Element `col` of a row, where it is one.
char* element_of(const RowCopy& job, std::int64_t slot, std::int64_t col) {
  const RowTable& table = job.table;
  return job.part == RowCopy::Part::kState
             ? element_at(table.state, slot * table.state_stride, col, 4)
             : element_at(table.weights, slot * table.weight_stride, col, size_of(table.dtype));
}

bool in_halves(const RowCopy& job) {
  return job.part == RowCopy::Part::kWeights && job.table.low != nullptr;
}

BFloat16* high_of(const RowTable& table, std::int64_t slot, std::int64_t col) {
  return reinterpret_cast<BFloat16*>(element_at(table.weights, slot * table.weight_stride, col, 2));
}

std::int16_t* low_of(const RowTable& table, std::int64_t slot, std::int64_t col) {
  return reinterpret_cast<std::int16_t*>(element_at(table.low, slot * table.low_stride, col, 2));
}

}  // namespace

void copy_from_rows(Context& /*ctx*/, std::span<const RowCopy> jobs) {
  for (const RowCopy& job : jobs) {
    for_elements(job, [&](std::int64_t slot, std::int64_t col, char* to) {
      if (in_halves(job)) {
        *reinterpret_cast<float*>(to) =
            to_float(SplitBFloat16{*high_of(job.table, slot, col), *low_of(job.table, slot, col)});
      } else {
        std::memcpy(to, element_of(job, slot, col),
                    static_cast<std::size_t>(element_bytes(job.table, job.part)));
      }
    });
  }
}

void copy_to_rows(Context& /*ctx*/, std::span<const RowCopy> jobs) {
  for (const RowCopy& job : jobs) {
    for_elements(job, [&](std::int64_t slot, std::int64_t col, const char* from) {
      if (in_halves(job)) {
        const SplitBFloat16 halves = to_split_bfloat16(*reinterpret_cast<const float*>(from));
        *high_of(job.table, slot, col) = halves.high;
        *low_of(job.table, slot, col) = halves.low;
      } else {
        std::memcpy(element_of(job, slot, col), from,
                    static_cast<std::size_t>(element_bytes(job.table, job.part)));
      }
    });
  }
}

}  // namespace weft::kernels::reference
