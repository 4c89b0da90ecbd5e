/// Several jobs, each of several blocks, as the tasks of one pool: a step has many small tables,
/// and waking the pool once for all of them costs less than once per table.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Ranges in which many small tasks are taken: enough for the threads of any machine to share, and
/// few enough that finding the first task of each costs nothing.
inline constexpr std::int64_t kMostTaskRanges = 512;

/// Calls run(tasks), a Range, for ranges that cover [0, total) once, on the pool or, without one,
/// on the caller: a task each, or kMostTaskRanges of them.
template <typename Run>
void run_ranges(ThreadPool* pool, std::int64_t total, const Run& run) {
  const std::int64_t ranges = std::min(total, kMostTaskRanges);
  parallel_for(pool, ranges, [&](std::int64_t number) { run(piece(total, ranges, number)); });
}

/// Calls run(job, block) once for each block in [0, blocks(job)) of each job in [0, jobs), on the
/// context's pool or, without one, on the caller; many small blocks in ranges, those of one in
/// their order. `blocks` is cheap, pure, and says the same each time. No allocation. A range finds
/// its first job in a list of as many places among the jobs as there may be ranges, and from there
/// by counting, so that all ranges together count each job about once more.
template <typename Blocks, typename Run>
void run_blocks(Context& ctx, std::int64_t jobs, const Blocks& blocks, const Run& run) {
  constexpr std::int64_t kPlaces = kMostTaskRanges;
  const std::int64_t stride = (jobs + kPlaces - 1) / kPlaces;
  std::array<std::int64_t, kPlaces> firsts;  // the first block of every stride-th job
  std::int64_t total = 0;
  for (std::int64_t job = 0; job < jobs; ++job) {
    if (job % stride == 0) {
      firsts[static_cast<std::size_t>(job / stride)] = total;
    }
    total += blocks(job);
  }
  const std::int64_t places = stride == 0 ? 0 : (jobs + stride - 1) / stride;
  run_ranges(ctx.pool, total, [&](const Range& tasks) {
    const auto* const place =
        std::upper_bound(firsts.data(), firsts.data() + places, tasks.begin) - 1;
    std::int64_t job = (place - firsts.data()) * stride;
    std::int64_t block = tasks.begin - *place;
    std::int64_t count = blocks(job);
    for (std::int64_t left = tasks.size(); left > 0; --left, ++block) {
      for (; block >= count; count = blocks(job)) {
        block -= count;
        ++job;
      }
      run(job, block);
    }
  });
}

/// The rows of a job, and how they are cut into tasks.
struct RowWork {
  Range rows;
  std::int64_t row_bytes = 0;   ///< what a task touches of a row; 0: the job has nothing to do
  std::int64_t task_bytes = 0;  ///< what a task touches at most, if that is a row or more

  [[nodiscard]] std::int64_t rows_per_task() const {
    return row_bytes == 0 ? 1 : std::max<std::int64_t>(task_bytes / row_bytes, 1);
  }

  [[nodiscard]] std::int64_t tasks() const {
    return row_bytes == 0 ? 0 : (rows.size() + rows_per_task() - 1) / rows_per_task();
  }

  /// The rows of a task.
  [[nodiscard]] Range rows_of(std::int64_t task) const {
    const std::int64_t first = rows.begin + task * rows_per_task();
    return {first, std::min(first + rows_per_task(), rows.end)};
  }
};

/// Calls run(job, rows) for all rows of each job in [0, jobs), in tasks as work(job), a RowWork,
/// cuts them. Otherwise as run_blocks().
template <typename Work, typename Run>
void run_rows(Context& ctx, std::int64_t jobs, const Work& work, const Run& run) {
  run_blocks(
      ctx, jobs, [&](std::int64_t job) { return work(job).tasks(); },
      [&](std::int64_t job, std::int64_t task) { run(job, work(job).rows_of(task)); });
}

}  // namespace weft::kernels
