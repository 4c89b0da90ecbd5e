/// Copies between rows of a store and dense matrices: what checkpoints, hashes and averages of
/// replicas see of a table.
///
/// A row's weights are copied in the type of its elements; of split_bf16 rows as the fp32 words
/// that their halves stand for, or are cut into. State is copied as floats. Nothing is rounded.
/// Ownership: rows are in memory of the context's device, matrices there or on the host; with a
/// context that no stream gave the copies are done when a call returns. Jobs of one call write
/// different places.
/// Cost: reads and writes every byte once.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::kernels {

/// Columns of rows, and a matrix of as many rows and columns.
struct RowCopy {
  /// What of a row is copied.
  enum class Part : std::uint8_t { kWeights, kState };

  RowTable table;
  Part part = Part::kWeights;
  Range slots;
  std::int64_t first = 0;  ///< its first column, or float of the state
  std::int64_t cols = 0;
  void* matrix = nullptr;
  std::int64_t stride = 0;     ///< of the matrix, bytes
  std::int64_t first_row = 0;  ///< of the matrix, for the first slot
};

/// Bytes of an element that is copied.
std::int64_t element_bytes(const RowTable& table, RowCopy::Part part);

/// Where the bytes lie that copy_from_rows() would copy, if the rows are in host memory; nowhere
/// where they are in two halves.
RowsInPlace rows_in_place(const RowCopy& job);

/// Fills the matrices of all jobs.
void copy_from_rows(Context& ctx, std::span<const RowCopy> jobs);

/// Fills columns of the rows of all jobs.
void copy_to_rows(Context& ctx, std::span<const RowCopy> jobs);

namespace cpu {
/// In one task pool.
void copy_from_rows(Context& ctx, std::span<const RowCopy> jobs);
void copy_to_rows(Context& ctx, std::span<const RowCopy> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void copy_from_rows(Context& ctx, std::span<const RowCopy> jobs);
void copy_to_rows(Context& ctx, std::span<const RowCopy> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void copy_from_rows(Context& ctx, std::span<const RowCopy> jobs);
void copy_to_rows(Context& ctx, std::span<const RowCopy> jobs);
}  // namespace reference

}  // namespace weft::kernels
