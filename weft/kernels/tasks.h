/// Several jobs, each of several blocks, as the tasks of one pool: a step has many small tables,
/// and waking the pool once for all of them costs less than once per table.
#pragma once

#include <cstdint>

#include "weft/base/thread_pool.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Calls run(job, block) once for each block in [0, blocks(job)) of each job in [0, jobs), on the
/// context's pool or, without one, on the caller. `blocks` is cheap, pure, and says the same each
/// time. No allocation. A task finds its job by counting, O(jobs).
template <typename Blocks, typename Run>
void run_blocks(Context& ctx, std::int64_t jobs, const Blocks& blocks, const Run& run) {
  std::int64_t total = 0;
  for (std::int64_t job = 0; job < jobs; ++job) {
    total += blocks(job);
  }
  const auto task = [&](std::int64_t index) {
    std::int64_t job = 0;
    for (std::int64_t count = blocks(job); index >= count; count = blocks(job)) {
      index -= count;
      ++job;
    }
    run(job, index);
  };
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(total, task);
    return;
  }
  for (std::int64_t index = 0; index < total; ++index) {
    task(index);
  }
}

}  // namespace weft::kernels
