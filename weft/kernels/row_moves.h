/// Moves of whole rows: weights, low halves and optimizer state together, between slots of a store
/// and packed rows. What files and slower memories hold of a row is the packed row, so every cache
/// and file moves rows by these two operations and knows nothing of their types.
///
/// The i-th packed row of a job lies at packed + i · bytes of a packed row; its bytes and their
/// order are those of weft/layout/packed_rows.h. Nothing is rounded, so a row that is packed and
/// unpacked has the bits of before.
/// Ownership: rows and lists of slots are in memory of the context's device; packed rows are there
/// or in host memory that the device addresses. Jobs of one call write different places; a job's
/// slots are all different where rows are unpacked.
/// Cost: reads and writes every byte of the rows once; no allocation. Rows at random slots are
/// asked for ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/kernels/row_fields.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Some rows of a table, and their packed rows.
struct RowMove {
  RowTable table;                       ///< its numbers of rows are not used
  std::int64_t state_floats = 0;        ///< of a row; 0 where the table has no state
  std::int64_t count = 0;               ///< rows
  const std::int64_t* slots = nullptr;  ///< [count]
  std::byte* packed = nullptr;          ///< [count · packed_row(table, state_floats).bytes()]
};

/// Fills the packed rows of all jobs from their slots.
void pack_rows(Context& ctx, std::span<const RowMove> jobs);

/// Fills the slots of all jobs from their packed rows.
void unpack_rows(Context& ctx, std::span<const RowMove> jobs);

namespace cpu {
/// In one task pool.
void pack_rows(Context& ctx, std::span<const RowMove> jobs);
void unpack_rows(Context& ctx, std::span<const RowMove> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void pack_rows(Context& ctx, std::span<const RowMove> jobs);
void unpack_rows(Context& ctx, std::span<const RowMove> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void pack_rows(Context& ctx, std::span<const RowMove> jobs);
void unpack_rows(Context& ctx, std::span<const RowMove> jobs);
}  // namespace reference

}  // namespace weft::kernels
