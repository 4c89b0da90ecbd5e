// Tasks of rows and entries where entries are read, of 128 rows elsewhere; what a task does is in
// sparse_update_blocks.cc. Rows left as they were are counted by the task, and added up under a
// lock, which a task without such a row never takes.

#include "weft/kernels/sparse_update.h"

#include <mutex>

#include "weft/base/at.h"
#include "weft/kernels/cpu/sparse_update_blocks.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

/// Adds up what the tasks of one call have left as it was.
class OverflowSum {
 public:
  void add(const SparseUpdate& update, RowOverflow overflow) {
    if (overflow.count > 0 && update.overflow != nullptr) {
      overflow.first_step = update.params.step;
      const std::lock_guard lock(mutex_);
      update.overflow->merge(overflow);
    }
  }

 private:
  std::mutex mutex_;
};

/// Runs run(job, rows) for tasks of the unique rows of every job; rows_of(job) says how many.
template <typename Job, typename RowsOf, typename Run>
void for_rows(Context& ctx, std::span<const Job> jobs, const RowsOf& rows_of, const Run& run) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return row_tasks(rows_of(jobs[at(i)])); },
      [&](std::int64_t i, std::int64_t task) {
        const Job& job = jobs[at(i)];
        run(job, row_task(rows_of(job), task));
      });
}

std::int64_t updated_rows(const StatisticUpdate& job) {
  return job.update.runs.num_rows;
}

}  // namespace

void cpu::update_rows(Context& ctx, std::span<const SparseUpdate> updates) {
  OverflowSum sum;
  run_blocks(
      ctx, static_cast<std::int64_t>(updates.size()),
      [&](std::int64_t i) { return update_tasks(updates[at(i)].runs); },
      [&](std::int64_t i, std::int64_t task) {
        const SparseUpdate& update = updates[at(i)];
        sum.add(update, update_block(update, update_task(update.runs, task)));
      });
}

void cpu::gradient_block_squares(Context& ctx, std::span<const BlockSquares> jobs) {
  for_rows(
      ctx, jobs, [](const BlockSquares& job) { return job.update.runs.num_rows; },
      [](const BlockSquares& job, Range rows) { gradient_square_block(job, rows); });
}

void cpu::update_rows_with_statistic(Context& ctx, std::span<const StatisticUpdate> jobs) {
  OverflowSum sum;
  for_rows(ctx, jobs, updated_rows, [&](const StatisticUpdate& job, Range rows) {
    sum.add(job.update, statistic_block(job, rows));
  });
}

void cpu::row_block_squares(Context& ctx, std::span<const RowSquares> jobs) {
  for_rows(
      ctx, jobs, [](const RowSquares& job) { return job.count; },
      [](const RowSquares& job, Range rows) { row_square_block(job, rows); });
}

void cpu::store_scaled_rows(Context& ctx, std::span<const StatisticUpdate> jobs) {
  OverflowSum sum;
  for_rows(ctx, jobs, updated_rows, [&](const StatisticUpdate& job, Range rows) {
    sum.add(job.update, store_block(job, rows));
  });
}

}  // namespace weft::kernels
