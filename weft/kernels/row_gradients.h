/// The gradients of touched rows: sums of the entries of a step, coalesced
/// (weft/kernels/coalesce.h).
///
/// Inside a part the entries of a row are added one after the other in their order (weighted:
/// factor · vector, rounded, then added); the parts go up the tree of weft/base/parts.h over [0,
/// P), absent parts skipped. All in fp32 without fused multiply-add: the bits of every device,
/// target and number of threads are those of the plain loops. A partial sum is what the entries of
/// one row in one node of the tree come to, a maximal whole subtree of the parts that a rank has
/// seen; from the partial sums of all ranks the tree above them makes the row's gradient.
/// Ownership: pointers are to memory of the context's device, but where it says host; jobs are the
/// caller's, and are read before a call returns. Outputs of different jobs do not overlap.
/// Cost: one read of every entry's vector, one write per sum. A row is one task's.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// The gradients of a table's rows, each multiplied by the factor.
struct GradientSum {
  RowRuns runs;
  std::int64_t cols = 0;
  std::int64_t parts = 1;  ///< P
  float factor = 1.0F;
  float* out = nullptr;  ///< [U, cols]
};

/// Sums the gradients of all jobs.
void sum_gradients(Context& ctx, std::span<const GradientSum> jobs);

/// The nodes of a rank's parts.
struct PartNodes {
  const Range* subtrees = nullptr;             ///< [nodes] the parts of each
  const std::int32_t* node_of_part = nullptr;  ///< [P] the node of a part; -1: not the rank's
};

/// The cut of a table's segments into runs of one (row, node), where the partial sums will be.
struct PartialCut {
  RowRuns runs;
  PartNodes nodes;
  std::int64_t* rows = nullptr;         ///< [S] the row of each partial sum
  std::int32_t* first_parts = nullptr;  ///< [S] the first part of its node
  std::int64_t* segments = nullptr;     ///< [S + 1] its first segment
  std::int64_t* count = nullptr;        ///< on the host: the number of partial sums, at most S
};

/// Cuts the segments of all jobs; `*count` is there when it returns. Throws Error(kInternal) for a
/// part that is not the rank's.
void cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs);

/// The partial sums of a table, as cut.
struct PartialSum {
  RowRuns runs;
  std::int64_t cols = 0;
  std::int64_t parts = 1;  ///< P
  std::int64_t count = 0;
  const std::int64_t* segments = nullptr;  ///< [count + 1]
  float* vectors = nullptr;                ///< [count, cols]
};

/// Adds the partial sums of all jobs.
void add_partial_sums(Context& ctx, std::span<const PartialSum> jobs);

namespace cpu {
/// In one task pool, cut by rows and entries.
void sum_gradients(Context& ctx, std::span<const GradientSum> jobs);
void cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs);
void add_partial_sums(Context& ctx, std::span<const PartialSum> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void sum_gradients(Context& ctx, std::span<const GradientSum> jobs);
void cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs);
void add_partial_sums(Context& ctx, std::span<const PartialSum> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void sum_gradients(Context& ctx, std::span<const GradientSum> jobs);
void cut_partial_sums(Context& ctx, std::span<const PartialCut> jobs);
void add_partial_sums(Context& ctx, std::span<const PartialSum> jobs);
}  // namespace reference

}  // namespace weft::kernels
