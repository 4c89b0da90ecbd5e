/// Private to kernels/cpu: tasks of the operations on rows and their gradients, on the calling
/// thread. Different ranges of a job may run at the same time.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"
#include "weft/kernels/row_gradients.h"
#include "weft/kernels/sparse_update.h"

namespace weft::kernels {

/// Unique rows per task where every row is the same work.
inline constexpr std::int64_t kRowsPerTask = 128;

/// The number of tasks of kRowsPerTask rows each; the last may have fewer.
inline std::int64_t row_tasks(std::int64_t rows) {
  return (rows + kRowsPerTask - 1) / kRowsPerTask;
}

/// The rows of such a task.
inline Range row_task(std::int64_t rows, std::int64_t task) {
  const std::int64_t end = (task + 1) * kRowsPerTask;
  return {task * kRowsPerTask, end < rows ? end : rows};
}

/// Tasks of an update or of row gradients: unique rows cut by rows and entries, so that a row with
/// many entries does not come with many others. A row is one task's.
std::int64_t update_tasks(const RowRuns& runs);

/// Unique rows of a task; may be empty.
Range update_task(const RowRuns& runs, std::int64_t task);

/// Of unique rows; what is left as it was is returned, without its step.
RowOverflow update_block(const SparseUpdate& update, Range rows);
void gradient_square_block(const BlockSquares& job, Range rows);
RowOverflow statistic_block(const StatisticUpdate& job, Range rows);
void row_square_block(const RowSquares& job, Range rows);
RowOverflow store_block(const StatisticUpdate& job, Range rows);
void sum_gradient_block(const GradientSum& sum, Range rows);

/// Of partial sums.
void sum_partial_block(const PartialSum& partial, Range sums);

}  // namespace weft::kernels
