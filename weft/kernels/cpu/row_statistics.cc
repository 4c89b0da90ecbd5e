// for each row:  the blocks of all holders side by side, their tree sum, the quotient
//
// Bound by memory: reads 4 bytes per block of 16 columns.

#include "weft/kernels/row_statistics.h"

#include <algorithm>
#include <numeric>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

constexpr std::int64_t kStatisticRowsPerTask = 1024;

void sum_task(const RowBlocks& job, Range rows) {
  const std::int64_t blocks =
      std::accumulate(job.counts.begin(), job.counts.end(), std::int64_t{0});
  float* const row = ThreadScratch::get(blocks);
  for (std::int64_t u = rows.begin; u < rows.end; ++u) {
    float* to = row;
    for (std::size_t k = 0; k < job.counts.size(); ++k) {
      to = std::copy_n(job.blocks[k] + u * job.counts[k], job.counts[k], to);
    }
    job.out[u] = block_tree_sum(row, blocks) / job.divisor;
  }
}

}  // namespace

void cpu::sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        return (jobs[at(i)].rows + kStatisticRowsPerTask - 1) / kStatisticRowsPerTask;
      },
      [&](std::int64_t i, std::int64_t task) {
        const RowBlocks& job = jobs[at(i)];
        const std::int64_t first = task * kStatisticRowsPerTask;
        sum_task(job, {first, std::min(first + kStatisticRowsPerTask, job.rows)});
      });
}

}  // namespace weft::kernels
