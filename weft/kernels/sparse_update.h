/// The sparse optimizers: a touched row's gradient summed up the tree of parts, then one update.
///
/// g = gradient of the row (weft/kernels/row_gradients.h). w = row, D = its columns, wd = weight
/// decay, lr = learning rate × the schedule's factor, t = step. All in fp32 without fused
/// multiply-add, scalars in double and rounded once. Only touched rows decay or change ("lazy"),
/// each once per step.
///
///   g' = g + wd·w for L2, else g.   c = 1 - lr·wd for decoupled decay, else 1.
///   mean(x²): weft/kernels/row_statistics.h.   q1 = 1/(1-β1^t), q2 = 1/(1-β2^t), t global.
///   sgd              w = c·w - lr·g'
///   adagrad          m = m + g'²                      w = c·w - lr·g'/(√m + eps)
///   row_wise_adagrad m = m + mean(g'²); μ = lr/(√m + eps), k = 1 - μ·wd for L2, else c
///                    w = k·w - μ·g                    (FBGEMM's form of L2)
///   adam             m = β1·m + (1-β1)·g', v = β2·v + (1-β2)·g'²
///                    w = w - lr·(m·q1/(√(v·q2) + eps) + [decoupled: wd·w])
///   row_wise_adam    the same with v = β2·v + (1-β2)·mean(g'²), one v per row
///   max_norm         then, if ‖w‖ > max_norm: w = w · (max_norm/‖w‖); ‖w‖² by the same statistic
///
/// fp16 and bf16 rows are read exactly, updated in fp32 and rounded stochastically
/// (weft/tensor/dtype.h) with the bits of `draws`: shards do not change them.
/// split_bf16 rows are fp32 rows in two halves: read, updated and written without rounding.
/// A row whose new weights or state are not all finite is left as it was, and counted; so is a
/// split_bf16 row with a weight whose high half would not be finite (weft/tensor/dtype.h).
/// State of a row, in floats (weft/base/sparse_optimizer.h): sgd none; adagrad m[cols];
/// row_wise_adagrad m; adam m[cols] v[cols]; row_wise_adam m[cols] v.
/// The bits of every device, target and number of threads are those of the plain loops.
/// Ownership: pointers are to memory of the context's device; jobs are the caller's, and are read
/// before a call returns. Jobs of one call are of different rows.
/// Cost: reads and writes a row and its state once; 2 to 8 flops per column and touched row, plus
/// one add per column and entry. A row is one task's: a row hit by every sample costs one thread.
/// Source of the formulas: FBGEMM's table-batched embedding, exact variants.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/row_draws.h"
#include "weft/base/sparse_optimizer.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Forms of weight decay, as in the formulas above.
enum class WeightDecay : std::uint8_t { kNone, kL2, kDecoupled };

/// One step's scalars (weft/optim/sparse.h makes them).
struct UpdateParams {
  SparseOptimizerKind rule = SparseOptimizerKind::kSgd;
  WeightDecay decay = WeightDecay::kNone;
  float learning_rate = 0.0F;
  float weight_decay = 0.0F;
  float keep = 1.0F;  ///< c above; 1 for Adam
  float eps = 0.0F;
  float beta1 = 0.0F;
  float one_minus_beta1 = 0.0F;
  float beta2 = 0.0F;
  float one_minus_beta2 = 0.0F;
  float correction1 = 1.0F;  ///< q1
  float correction2 = 1.0F;  ///< q2
  float max_norm = 0.0F;     ///< 0: none
  RowDraws draws = {};       ///< of stochastic rounding
  std::uint64_t step = 1;
};

/// Rows left as they were, of one table. Merging is associative and does not depend on the order.
struct RowOverflow {
  std::int64_t count = 0;
  std::int64_t first_row = -1;   ///< lowest of the first step that had one, in the whole table
  std::uint64_t first_step = 0;  ///< that step

  /// Counts a row of one step, by its number in the whole table.
  void add(std::int64_t row) {
    first_row = count == 0 || row < first_row ? row : first_row;
    ++count;
  }

  /// Adds what `other` has counted.
  void merge(const RowOverflow& other) {
    if (other.count == 0) {
      return;
    }
    const bool same_step = other.first_step == first_step;
    if (count == 0 || (same_step ? other.first_row < first_row : other.first_step < first_step)) {
      first_row = other.first_row;
      first_step = other.first_step;
    }
    count += other.count;
  }
};

/// The update of a table's touched rows.
struct SparseUpdate {
  RowTable table;
  UpdateParams params;
  RowRuns runs;
  std::int64_t parts = 1;            ///< P
  const float* gradients = nullptr;  ///< [U, cols] the rows' gradients; null: sums them
  RowOverflow* overflow = nullptr;   ///< [1] gets what is left as it was added; null: nobody counts
};

/// Updates all rows of all jobs, with their gradients summed in the same pass where there are none.
/// A table holds whole rows, or its rule needs nothing of the other columns.
void update_rows(Context& ctx, std::span<const SparseUpdate> updates);

/// Block sums of g'² of columns of rows, for a row's statistic over all columns.
struct BlockSquares {
  SparseUpdate update;   ///< with gradients
  float* out = nullptr;  ///< [U, ⌈cols/16⌉]
};

/// Writes the sums of all jobs.
void gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs);

/// An update in two halves, of columns of rows, with statistics of all columns made elsewhere.
struct StatisticUpdate {
  SparseUpdate update;                   ///< without gradients
  float* values = nullptr;               ///< [U, cols] gradients, then new rows
  const float* row_statistic = nullptr;  ///< [U] of the row over all its columns
};

/// The first half: writes state; `row_statistic` is mean(g'²), not read by rules that are not
/// row-wise. With max_norm the new fp32 row replaces the gradient in `values` and weights are not
/// written, otherwise they are. A row left as it was is marked by NaN in its first element of
/// `values`.
void update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs);

/// Block sums of the squares of new rows.
struct RowSquares {
  std::int64_t count = 0;  ///< U
  std::int64_t cols = 0;
  const float* rows = nullptr;  ///< [U, cols]
  float* out = nullptr;         ///< [U, ⌈cols/16⌉]
};

/// Writes the sums of all jobs.
void row_block_squares(Context& ctx, std::span<const RowSquares> jobs);

/// The second half, with max_norm: scales the new rows in `values` to max_norm by `row_statistic`,
/// ‖w‖², and writes the weights.
void store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs);

namespace cpu {
/// In one task pool, cut by rows and entries.
void update_rows(Context& ctx, std::span<const SparseUpdate> updates);
void gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs);
void update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs);
void row_block_squares(Context& ctx, std::span<const RowSquares> jobs);
void store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void update_rows(Context& ctx, std::span<const SparseUpdate> updates);
void gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs);
void update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs);
void row_block_squares(Context& ctx, std::span<const RowSquares> jobs);
void store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void update_rows(Context& ctx, std::span<const SparseUpdate> updates);
void gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs);
void update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs);
void row_block_squares(Context& ctx, std::span<const RowSquares> jobs);
void store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs);
}  // namespace reference

}  // namespace weft::kernels
