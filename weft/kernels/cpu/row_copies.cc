// for each row of a task:  memcpy, or halves to words, or words to halves
//
// Bound by memory. A task is about 64 KiB of the matrix.

#include "weft/kernels/row_copies.h"

#include <algorithm>
#include <cstring>

#include "weft/base/at.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kCopyBytesPerTask = std::int64_t{64} << 10;

/// One row of a job: its columns in the store and in the matrix.
struct RowPlace {
  std::byte* row;
  std::byte* low;  ///< halves of split_bf16 weights, else null
  std::byte* matrix;
  std::int64_t cols;
  std::int64_t bytes;
};

RowPlace place_of(const RowCopy& job, std::int64_t slot) {
  const RowTable& table = job.table;
  const bool state = job.part == RowCopy::Part::kState;
  const bool halves = !state && table.low != nullptr;
  const std::int64_t element = element_bytes(table, job.part);
  auto* const base = static_cast<std::byte*>(state ? table.state : table.weights);
  return {.row = base + slot * (state ? table.state_stride : table.weight_stride) +
                 job.first * (halves ? 2 : element),
          .low = halves
                     ? static_cast<std::byte*>(table.low) + slot * table.low_stride + job.first * 2
                     : nullptr,
          .matrix = static_cast<std::byte*>(job.matrix) +
                    (slot - job.slots.begin + job.first_row) * job.stride,
          .cols = job.cols,
          .bytes = job.cols * element};
}

void copy_from_row(const RowPlace& place) {
  if (place.low == nullptr) {
    std::memcpy(place.matrix, place.row, static_cast<std::size_t>(place.bytes));
    return;
  }
  const auto* const highs = reinterpret_cast<const BFloat16*>(place.row);
  const auto* const lows = reinterpret_cast<const std::int16_t*>(place.low);
  for (std::int64_t c = 0; c < place.cols; ++c) {
    reinterpret_cast<float*>(place.matrix)[c] = to_float(SplitBFloat16{highs[c], lows[c]});
  }
}

void copy_to_row(const RowPlace& place) {
  if (place.low == nullptr) {
    std::memcpy(place.row, place.matrix, static_cast<std::size_t>(place.bytes));
    return;
  }
  for (std::int64_t c = 0; c < place.cols; ++c) {
    const SplitBFloat16 halves = to_split_bfloat16(reinterpret_cast<const float*>(place.matrix)[c]);
    reinterpret_cast<BFloat16*>(place.row)[c] = halves.high;
    reinterpret_cast<std::int16_t*>(place.low)[c] = halves.low;
  }
}

template <typename CopyRow>
void copy_rows(Context& ctx, std::span<const RowCopy> jobs, const CopyRow& copy_row) {
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        const RowCopy& job = jobs[at(i)];
        return RowWork{.rows = job.slots,
                       .row_bytes = job.cols * element_bytes(job.table, job.part),
                       .task_bytes = kCopyBytesPerTask};
      },
      [&](std::int64_t i, Range slots) {
        for (std::int64_t slot = slots.begin; slot < slots.end; ++slot) {
          copy_row(place_of(jobs[at(i)], slot));
        }
      });
}

}  // namespace

std::int64_t element_bytes(const RowTable& table, RowCopy::Part part) {
  const bool words = part == RowCopy::Part::kState || table.low != nullptr;
  return words ? static_cast<std::int64_t>(sizeof(float)) : size_of(table.dtype);
}

RowsInPlace rows_in_place(const RowCopy& job) {
  const RowPlace first = place_of(job, job.slots.begin);
  const bool state = job.part == RowCopy::Part::kState;
  return {.begin = first.low == nullptr ? first.row : nullptr,
          .stride = state ? job.table.state_stride : job.table.weight_stride};
}

void cpu::copy_from_rows(Context& ctx, std::span<const RowCopy> jobs) {
  copy_rows(ctx, jobs, copy_from_row);
}

void cpu::copy_to_rows(Context& ctx, std::span<const RowCopy> jobs) {
  copy_rows(ctx, jobs, copy_to_row);
}

}  // namespace weft::kernels
