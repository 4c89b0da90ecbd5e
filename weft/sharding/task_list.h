/// For sharding/ alone: jobs of different sizes as the tasks of one pool.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/tasks.h"

namespace weft::sharding {

/// One task takes on at most so much. It takes 20 to 100 microseconds, against 5 to wake a thread.
inline constexpr std::int64_t kIdsPerTask = 32768;
inline constexpr std::int64_t kRowsPerTask = 1024;

/// Jobs 0, 1, ..., each of some tasks. Keeps its memory from step to step.
class TaskList {
 public:
  void clear() { ends_.clear(); }

  /// The next job, of `tasks` tasks; returns the number of its first.
  std::int64_t add(std::int64_t tasks) {
    const std::int64_t first = total();
    ends_.push_back(first + tasks);
    return first;
  }

  [[nodiscard]] std::int64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Calls run(job, task of the job) for every task, each once; many small ones in ranges
  /// (kernels::run_ranges()), those of one in their order.
  template <typename Run>
  void run(ThreadPool& pool, const Run& run) const {
    kernels::run_ranges(&pool, total(), [&](const Range& tasks) {
      auto end = std::upper_bound(ends_.begin(), ends_.end(), tasks.begin);
      for (std::int64_t index = tasks.begin; index < tasks.end; ++index) {
        while (*end <= index) {
          ++end;
        }
        const std::int64_t first = end == ends_.begin() ? 0 : *(end - 1);
        run(static_cast<std::int64_t>(end - ends_.begin()), index - first);
      }
    });
  }

 private:
  std::vector<std::int64_t> ends_;  // first task behind each job
};

/// Tasks of at most `per_task` units each.
inline std::int64_t task_count(std::int64_t units, std::int64_t per_task) {
  return (units + per_task - 1) / per_task;
}

}  // namespace weft::sharding
