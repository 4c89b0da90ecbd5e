/// The average of rows and of all their optimizer state over the replicas that hold them.
///
/// Every number is summed in fp64 in the order of the replicas, from the first, divided by how many
/// they are and rounded to fp32; of fp16 and bf16 rows from there stochastically, with the bits of
/// `draws`. split_bf16 rows are averaged as the fp32 words that they are. A row whose replicas are
/// equal bit by bit is not touched. The bits of every device and number of threads are those of the
/// plain loops.
/// Ownership: rows are in memory that the context's device addresses, also those of other ranks.
/// Lists of the numbers of rows are host memory; a device that cannot address it takes a copy.
/// Lists of replicas and jobs are the caller's, and are read before a call returns.
/// Cost: reads every replica's rows once, and writes one's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/row_draws.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// A part of some rows as a replica has it: that of row i is at data + stride · (rows ? rows[i] :
/// i).
struct RowPart {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  ///< bytes
  const std::int32_t* rows = nullptr;
};

/// Rows of a table that are averaged.
struct RowAverage {
  RowTable table;  ///< for the type, the columns and the numbers of rows; its bases are not used
  std::int64_t state_floats = 0;  ///< of a row
  std::int64_t count = 0;
  const std::int32_t* rows = nullptr;  ///< [count] their numbers here; null: from `first` on
  std::int64_t first = 0;
  /// Of each replica its parts: the fields of the rows (weft/kernels/row_fields.h).
  std::span<const RowPart> parts;
  std::size_t replicas = 1;
  std::size_t own = 0;  ///< the replica that is written
  RowDraws draws = {};  ///< of rows of fp16 and bf16
  std::uint64_t step = 0;

  /// Parts of a row: those of one replica among `parts`.
  [[nodiscard]] std::size_t parts_of_row() const {
    return 1U + (table.low != nullptr ? 1U : 0U) + (state_floats > 0 ? 1U : 0U);
  }
};

/// Averages the rows of all jobs, which are all different.
void average_rows(Context& ctx, std::span<const RowAverage> jobs);

namespace cpu {
/// In one task pool.
void average_rows(Context& ctx, std::span<const RowAverage> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void average_rows(Context& ctx, std::span<const RowAverage> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void average_rows(Context& ctx, std::span<const RowAverage> jobs);
}  // namespace reference

}  // namespace weft::kernels
