/// How a table's rows and their optimizer state lie in memory, and how much they take: stores
/// allocate by it, the planner counts by it.
#pragma once

#include <cstdint>

#include "weft/layout/lengths.h"
#include "weft/layout/packed_rows.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::layout {

/// Ways in which the weights of rows and the rest of them lie.
enum class RowLayout {
  kSplit,        ///< weights dense, the rest beside
  kInterleaved,  ///< weights, then the rest, in one aligned stride
};

/// The rest of a row is its optimizer state and after it, of split_bf16 rows, whose weights are
/// the high halves, the low halves: what only the update touches is one run of memory.
/// Split for no state or one number per row: the forward reads dense rows. Interleaved for state
/// per element: the update touches one run of memory in all. That holds for split_bf16 too: dense
/// high halves of Adam rows made lookups 2 to 3 times as fast, but updates, which then miss two
/// places of memory, slower by more (D 16 to 128, from memory, sum of both 5 to 30 % worse).
RowLayout row_layout(const spec::SparseOptimizer& optimizer);

/// Where things are, in bytes. Row r: weights (of split_bf16 the high halves) at
/// weight_offset + r · weight_stride, state at state_offset + r · rest_stride, low halves of
/// split_bf16 at low_offset + r · rest_stride.
struct RowGeometry {
  std::int64_t weight_offset = 0;
  std::int64_t weight_stride = 0;
  std::int64_t state_offset = 0;
  std::int64_t low_offset = 0;
  std::int64_t rest_stride = 0;
  std::int64_t weight_bytes = 0;  ///< of a row, as a lookup reads them
  std::int64_t row_bytes = 0;     ///< weights and rest, without padding: those of a packed row
  std::int64_t total_bytes = 0;
};

/// Returns the geometry of `rows` rows of `cols` columns of the table.
RowGeometry row_geometry(const spec::Table& table, std::int64_t rows, std::int64_t cols);

/// Returns the packed row of `cols` columns of the table.
PackedRow packed_row(const spec::Table& table, std::int64_t cols);

/// Bytes of a block of a table with its optimizer state, gaps included.
std::int64_t shard_bytes(const spec::Table& table, std::int64_t rows, std::int64_t cols);

/// Rows whose places are in one page, of a table of which those that exist are in memory
/// (storage::LazyRows).
inline constexpr std::int64_t kPlacePageRows = 4096;

/// Bytes of memory that a shard takes before a step has changed a row, gaps included: of all rows,
/// of what says which exist, or of its cache, where the table has a size for it. Caches that share
/// Tiers::cache_bytes take that together, on each rank that has one (shares_cache()).
std::int64_t resident_bytes(const spec::Table& table, std::int64_t rows, std::int64_t cols);

/// Whether shards of the table have a share of Tiers::cache_bytes.
inline bool shares_cache(const spec::Table& table) {
  return table.memory.tier == spec::MemoryTier::kSsd && table.memory.cache_bytes == 0;
}

/// Bytes of the cache of a shard that takes `own` bytes in all (shard_bytes()), of those that share
/// `shared` bytes for caches on its rank and take `sharing` together.
inline std::int64_t cache_share(std::int64_t shared, std::int64_t own, std::int64_t sharing) {
  return static_cast<std::int64_t>(static_cast<double>(shared) * static_cast<double>(own) /
                                   static_cast<double>(sharing));
}

/// Row statistics have a sum per block of so many columns.
constexpr std::int64_t column_blocks(std::int64_t columns) {
  return (columns + spec::kColumnBlock - 1) / spec::kColumnBlock;
}

/// The numbers of rows that lie in no order, as those of hot rows.
template <typename N>
Array<std::int64_t, N> row_numbers(const N& rows) {
  return {rows};
}

}  // namespace weft::layout
