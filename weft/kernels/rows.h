/// What the sparse kernels work on: bags of ids, row gradients in the making, rows in memory.
/// Symbols: U unique rows, D columns of the whole row, P parts of the global batch.
#pragma once

#include <cstdint>

#include "weft/tensor/dtype.h"

namespace weft::kernels {

/// Rows and columns of statistics are cut at multiples of this (weft/spec/plan.h, kColumnBlock).
inline constexpr std::int64_t kStatisticBlock = 16;

/// Ids of several bags, one behind the other. Bag b holds places [offsets[b], offsets[b + 1]) of
/// `ids` and `weights`. Ids are rows relative to the shard's first row and lie inside the shard:
/// that is checked where ids are made, and by validate_ids() of embedding_bag.h. For a lookup they
/// are slots (RowRuns).
struct Bags {
  const std::int64_t* ids = nullptr;
  const std::int64_t* offsets = nullptr;  ///< [bags + 1]
  const float* weights = nullptr;         ///< one per id, or null
  std::int64_t bags = 0;

  [[nodiscard]] std::int64_t num_ids() const { return bags == 0 ? 0 : offsets[bags] - offsets[0]; }
};

/// Gradients of looked-up vectors. Pooled: one vector per bag, belonging to each of its ids
/// (multiplied by the id's weight, where there are weights). Otherwise one vector per id, at the
/// id's place counted from offsets[0], and weights are ignored.
struct GradientBlock {
  Bags bags;
  bool pooled = true;
  const float* grads = nullptr;
  std::int64_t grad_stride = 0;         ///< elements
  const std::int32_t* parts = nullptr;  ///< [bags] the part of the global batch of each bag
  /// [vectors] in place of the stride: where each one begins, in elements from `grads`; or null.
  const std::int64_t* places = nullptr;

  /// Returns where a vector lies.
  [[nodiscard]] const float* vector(std::int64_t number) const {
    return grads + (places == nullptr ? number * grad_stride : places[number]);
  }
};

/// The entries of one step sorted by (row, part), stably; views into RunBuffers.
/// A segment is a run of entries of one (row, part).
/// A row's slot is where its store keeps it: base + slot · stride. A store that holds all rows in
/// their order has `slots` equal to `rows`, the same memory; one that holds some of them has an
/// array of its own (weft/storage/row_store.h, resolve()). Kernels index rows by slots, and number
/// them, for random words and in counts of overflow, by `rows`.
struct RowRuns {
  std::int64_t num_rows = 0;      ///< U
  std::int64_t num_segments = 0;  ///< S
  std::int64_t num_entries = 0;
  const std::int64_t* rows = nullptr;   ///< [U] ascending
  const std::int64_t* slots = nullptr;  ///< [U] where each row is; `rows` where they lie in order
  const std::int32_t* row_segments = nullptr;     ///< [U + 1] first segment of each row
  const std::int32_t* segment_entries = nullptr;  ///< [S + 1] first entry of each segment
  const std::int32_t* segment_parts = nullptr;    ///< [S] part, or first part of a whole subtree
  const float* const* grads = nullptr;            ///< [entries] where the entry's vector lies
  const float* weights = nullptr;                 ///< [entries] factors, or null: all 1
};

/// Rows in memory: weights and state with a base and a stride each, so that one kernel serves the
/// split and the interleaved layout (weft/layout/tables.h). The value goes from the store to
/// the kernels, and they alone index it, by slots. A split_bf16 row has its high halves in
/// `weights`, where a lookup reads them as bf16, and its low halves, which only the update touches,
/// in `low`.
struct RowTable {
  void* weights = nullptr;
  std::int64_t weight_stride = 0;  ///< bytes
  void* state = nullptr;           ///< floats; null where the optimizer keeps none
  std::int64_t state_stride = 0;   ///< bytes
  void* low = nullptr;             ///< low halves of split_bf16 rows, else null
  std::int64_t low_stride = 0;     ///< bytes
  DType dtype = DType::kFloat32;   ///< of the weights: fp32, fp16, bf16 or split_bf16
  std::int64_t cols = 0;           ///< columns held here
  std::int64_t dim = 0;            ///< D: columns of the whole logical row
  std::int64_t first_row = 0;      ///< the whole table's number of row 0 here
  std::int64_t row_step = 1;       ///< and how much more the next one's is
  /// Instead of both, where rows are a list: the whole table's number of each.
  const std::int64_t* row_list = nullptr;
  std::int64_t first_col = 0;  ///< the whole row's number of column 0, a multiple of 16

  /// The whole table's number of a row here, which is a row and not a slot.
  [[nodiscard]] std::int64_t whole_row(std::int64_t row) const {
    return row_list != nullptr ? row_list[row] : first_row + row * row_step;
  }
};

}  // namespace weft::kernels
