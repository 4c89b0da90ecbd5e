/// The sparse optimizers: a touched row's gradient summed up the tree of parts, then one update.
///
/// g = gradient of the row: inside a part the entries are added one after the other in their order
/// (weighted: factor · vector, rounded, then added); the parts go up the tree of weft/base/parts.h
/// over [0, P), absent parts skipped. w = row, D = its columns, wd = weight decay, lr = learning
/// rate × the schedule's factor, t = step. All in fp32 without fused multiply-add, scalars in
/// double and rounded once. Only touched rows decay or change ("lazy"), each once per step.
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
/// (weft/tensor/dtype.h) with word (column mod 4) of Philox(random_key; row, step·2^20 + column/4),
/// row and column those of the whole table: shards do not change bits.
/// split_bf16 rows are fp32 rows in two halves: read, updated and written without rounding.
/// A row whose new weights or state are not all finite is left as it was, and counted; so is a
/// split_bf16 row with a weight whose high half would not be finite (weft/tensor/dtype.h).
/// State of a row, in floats (weft/base/sparse_optimizer.h): sgd none; adagrad m[cols];
/// row_wise_adagrad m; adam m[cols] v[cols]; row_wise_adam m[cols] v.
/// Cost: reads and writes a row and its state once; 2 to 8 flops per column and touched row, plus
/// one add per column and entry. A row is one task's: a row hit by every sample costs one thread.
/// Source of the formulas: FBGEMM's table-batched embedding, exact variants.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"
#include "weft/base/sparse_optimizer.h"
#include "weft/kernels/rows.h"

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
  float correction1 = 1.0F;      ///< q1
  float correction2 = 1.0F;      ///< q2
  float max_norm = 0.0F;         ///< 0: none
  std::uint64_t random_key = 0;  ///< of stochastic rounding
  std::uint64_t step = 1;
};

/// Rows left as they were.
struct RowOverflow {
  std::int64_t count = 0;
  std::int64_t first_row = -1;  ///< lowest, numbered in the whole table

  /// Counts a row, by its number in the whole table.
  void add(std::int64_t row) {
    first_row = count == 0 || row < first_row ? row : first_row;
    ++count;
  }

  /// Adds what `other` has counted.
  void merge(const RowOverflow& other) {
    if (other.count > 0) {
      first_row = count == 0 || other.first_row < first_row ? other.first_row : first_row;
      count += other.count;
    }
  }
};

/// Unique rows per task where every row is the same work.
inline constexpr std::int64_t kRowsPerTask = 128;

/// Returns the number of tasks of kRowsPerTask unique rows each; the last may have fewer.
inline std::int64_t update_blocks(std::int64_t unique_rows) {
  return (unique_rows + kRowsPerTask - 1) / kRowsPerTask;
}

/// Tasks of an update or of row gradients: unique rows cut by rows and entries, so that a row with
/// many entries does not come with many others. A row is one task's.
std::int64_t update_tasks(const RowRuns& runs);

/// Unique rows of a task; may be empty.
Range update_task(const RowRuns& runs, std::int64_t task);

/// What all functions below work on.
struct SparseUpdate {
  RowTable table;
  UpdateParams params;
  RowRuns runs;
  std::int64_t parts = 1;  ///< P
};

/// Gradient and update of unique rows [range), fused; the table holds whole rows, or the rule needs
/// nothing of the other columns. `gradients` [U, cols]: already summed gradients; null: sums them.
RowOverflow update_rows(const SparseUpdate& update, Range range, const float* gradients = nullptr);

/// Row gradients of unique rows [range) to out [U, cols].
void sum_gradients(const SparseUpdate& update, Range range, float* out);

/// Sums of entries of segments [first, last) of one row inside the tree node `node` that holds just
/// them, to out [cols].
void sum_segments(const SparseUpdate& update, Range segments, Range node, float* out);

/// Block sums of g'² to out [U, ⌈cols/16⌉].
void gradient_block_squares(const SparseUpdate& update,
                            Range range,
                            const float* gradients,
                            float* out);

/// Update with a statistic made elsewhere. Writes state; with max_norm the new fp32 row replaces
/// the gradient in `gradients` [U, cols] and weights are not written, otherwise they are. A row
/// left as it was is marked by NaN in its first element of `gradients`.
RowOverflow update_rows_with_statistic(const SparseUpdate& update,
                                       Range range,
                                       float* gradients,
                                       const float* mean_square);

/// Block sums of the squares of new rows [U, cols] to out [U, ⌈cols/16⌉].
void row_block_squares(std::int64_t cols, Range range, const float* rows, float* out);

/// Scales new rows to max_norm and writes them.
RowOverflow store_scaled_rows(const SparseUpdate& update,
                              Range range,
                              const float* rows,
                              const float* row_square);

namespace reference {
/// The same in plain loops, with the same bits: for tests.
RowOverflow update_rows(const SparseUpdate& update, Range range, const float* gradients = nullptr);
void sum_gradients(const SparseUpdate& update, Range range, float* out);
void gradient_block_squares(const SparseUpdate& update,
                            Range range,
                            const float* gradients,
                            float* out);
}  // namespace reference

}  // namespace weft::kernels
