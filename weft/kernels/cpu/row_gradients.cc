// sum_gradients:     tasks of rows and entries; sums in row_gradient_blocks.cc
// cut_partial_sums:  one task per table, one pass over its segments
// add_partial_sums:  tasks of 128 sums

#include "weft/kernels/row_gradients.h"

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/sparse_update_blocks.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

// A row counts as much as an entry: 128 rows of one entry each, as many as in other tasks.
constexpr std::int64_t kCostPerUpdateTask = 2 * kRowsPerTask;

/// The first row at or behind `cost`: that of rows and entries before it.
std::int64_t row_behind(const RowRuns& runs, std::int64_t cost) {
  std::int64_t begin = 0;
  std::int64_t end = runs.num_rows;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (middle + runs.segment_entries[runs.row_segments[middle]] < cost) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

void cut_segments(const PartialCut& job) {
  const RowRuns& runs = job.runs;
  std::int64_t count = 0;
  for (std::int64_t u = 0; u < runs.num_rows; ++u) {
    std::int32_t last = -1;
    for (std::int64_t s = runs.row_segments[u]; s < runs.row_segments[u + 1]; ++s) {
      const std::int32_t part = runs.segment_parts[s];
      const std::int32_t node = job.nodes.node_of_part[part];
      WEFT_CHECK(node >= 0, "part {} is not among the rank's parts", part);
      if (node != last) {
        job.rows[count] = runs.rows[u];
        job.first_parts[count] = static_cast<std::int32_t>(job.nodes.subtrees[node].begin);
        job.segments[count] = s;
        ++count;
        last = node;
      }
    }
  }
  job.segments[count] = runs.num_segments;
  *job.count = count;
}

}  // namespace

std::int64_t update_tasks(const RowRuns& runs) {
  return (runs.num_rows + runs.num_entries + kCostPerUpdateTask - 1) / kCostPerUpdateTask;
}

Range update_task(const RowRuns& runs, std::int64_t task) {
  return {row_behind(runs, task * kCostPerUpdateTask),
          row_behind(runs, (task + 1) * kCostPerUpdateTask)};
}

void cpu::sum_gradients(Context& ctx, std::span<const GradientSum> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return update_tasks(jobs[at(i)].runs); },
      [&](std::int64_t i, std::int64_t task) {
        const GradientSum& job = jobs[at(i)];
        sum_gradient_block(job, update_task(job.runs, task));
      });
}

void cpu::cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) { cut_segments(jobs[at(i)]); });
}

void cpu::add_partial_sums(Context& ctx, std::span<const PartialSum> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return row_tasks(jobs[at(i)].count); },
      [&](std::int64_t i, std::int64_t task) {
        const PartialSum& job = jobs[at(i)];
        sum_partial_block(job, row_task(job.count, task));
      });
}

}  // namespace weft::kernels
