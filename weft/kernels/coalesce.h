/// Coalescing: which entries of a step touch which row, of all tables in one call.
///
/// Entries come in a given order (block, bag, place). A stable sort by (row, part) keeps that order
/// inside every (row, part). Gradient values are not read, only their addresses noted, so it can
/// run before they exist. Ownership: ids, parts and the results are in memory of the context's
/// device; lists of blocks are the caller's. The results are views into a job's buffers and stay
/// valid until these are used again. Errors: Error(kConfig) for 2^31 - 1 entries of a table or
/// more. Cost: on the CPU per entry 8 bytes sorted in ⌈bits/11⌉ passes, bits = those of the rows,
/// and of the parts where these do not ascend in the given order; 36 bytes written. One thread a
/// table.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/layout/row_gradients.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Where the runs of some entries are written: the arrays of RowRuns.
struct RunArrays {
  std::int64_t* rows = nullptr;
  std::int32_t* row_segments = nullptr;
  std::int32_t* segment_entries = nullptr;
  std::int32_t* segment_parts = nullptr;
  const float** grads = nullptr;
  float* weights = nullptr;  ///< or null: all 1

  /// What has been written, in a store that holds all rows in their order: slots are the rows.
  [[nodiscard]] RowRuns runs(std::int64_t num_rows,
                             std::int64_t num_segments,
                             std::int64_t num_entries) const {
    return {.num_rows = num_rows,
            .num_segments = num_segments,
            .num_entries = num_entries,
            .rows = rows,
            .slots = rows,
            .row_segments = row_segments,
            .segment_entries = segment_entries,
            .segment_parts = segment_parts,
            .grads = grads,
            .weights = weights};
  }
};

/// The memory of a table's runs, kept from step to step.
class RunBuffers {
 public:
  explicit RunBuffers(Device& device)
      : grads_(device),
        weights_(device),
        rows_(device),
        row_segments_(device),
        segment_entries_(device),
        segment_parts_(device) {}

  /// Room for the runs of `entries` entries and as many `factors`, or none.
  RunArrays resize(std::int64_t entries, std::int64_t factors) {
    const auto lengths = layout::run_lengths(entries, factors);
    return {.rows = rows_.resize_for(lengths.rows),
            .row_segments = row_segments_.resize_for(lengths.row_segments),
            .segment_entries = segment_entries_.resize_for(lengths.segment_entries),
            .segment_parts = segment_parts_.resize_for(lengths.segment_parts),
            .grads = grads_.resize_for(lengths.gradients),
            .weights = factors > 0 ? weights_.resize_for(lengths.weights) : nullptr};
  }

 private:
  Buffer grads_;
  Buffer weights_;
  Buffer rows_;
  Buffer row_segments_;
  Buffer segment_entries_;
  Buffer segment_parts_;
};

/// The entries of one table. Ids lie in [0, rows), parts in [0, parts).
struct CoalesceJob {
  std::span<const GradientBlock> blocks;
  std::int64_t rows = 0;
  std::int64_t parts = 1;
  RunBuffers* buffers = nullptr;
  RowRuns* runs = nullptr;  ///< on the host: gets the result; slots are the rows
};

/// Coalesces the entries of all jobs. The counts of the runs are there when it returns.
void coalesce(Context& ctx, std::span<const CoalesceJob> jobs);

/// The numbers 0, 1, 2, ... as offsets of bags that have one id each.
struct CountUp {
  std::int64_t* out = nullptr;
  std::int64_t count = 0;
};

/// Writes the numbers of all jobs.
void count_up(Context& ctx, std::span<const CountUp> jobs);

namespace cpu {
/// In one task pool, a task per job.
void coalesce(Context& ctx, std::span<const CoalesceJob> jobs);
void count_up(Context& ctx, std::span<const CountUp> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void coalesce(Context& ctx, std::span<const CoalesceJob> jobs);
void count_up(Context& ctx, std::span<const CountUp> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void coalesce(Context& ctx, std::span<const CoalesceJob> jobs);
void count_up(Context& ctx, std::span<const CountUp> jobs);
}  // namespace reference

}  // namespace weft::kernels
