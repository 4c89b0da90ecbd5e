#include "weft/embedding/partial_sums.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/kernels/sparse_update.h"
#include "weft/kernels/tasks.h"

namespace weft::embedding {

PartialSums::PartialSums(Device& device, std::int64_t parts)
    : parts_(parts), rows_(device), nodes_(device), segments_(device), vectors_(device) {
}

/// The subtrees of the rank's run of parts; made again only when the run changes.
void PartialSums::find_nodes(Range own_parts) {
  if (own_parts == run_ && !subtrees_.empty()) {
    return;
  }
  run_ = own_parts;
  subtrees_ = maximal_subtrees(parts_, own_parts);
  node_of_part_.assign(static_cast<std::size_t>(parts_), -1);
  for (std::size_t node = 0; node < subtrees_.size(); ++node) {
    for (std::int64_t part = subtrees_[node].begin; part < subtrees_[node].end; ++part) {
      node_of_part_[static_cast<std::size_t>(part)] = static_cast<std::int32_t>(node);
    }
  }
}

/// Cuts the segments into runs of one (row, node).
void PartialSums::cut(const kernels::RowRuns& runs) {
  auto* const rows = rows_.resize_for<std::int64_t>(runs.num_segments);
  auto* const nodes = nodes_.resize_for<std::int32_t>(runs.num_segments);
  auto* const segments = segments_.resize_for<std::int64_t>(runs.num_segments + 1);
  std::int64_t count = 0;
  for (std::int64_t u = 0; u < runs.num_rows; ++u) {
    std::int32_t last = -1;
    for (std::int64_t s = runs.row_segments[u]; s < runs.row_segments[u + 1]; ++s) {
      const std::int32_t part = runs.segment_parts[s];
      const std::int32_t node = node_of_part_[static_cast<std::size_t>(part)];
      WEFT_CHECK(node >= 0, "part {} is outside the rank's parts [{}, {})", part, run_.begin,
                 run_.end);
      if (node != last) {
        rows[count] = runs.rows[u];
        nodes[count] = static_cast<std::int32_t>(subtrees_[static_cast<std::size_t>(node)].begin);
        segments[count] = s;
        ++count;
        last = node;
      }
    }
  }
  segments[count] = runs.num_segments;
  count_ = count;
}

void PartialSums::sum(Context& ctx,
                      const kernels::RowRuns& runs,
                      std::int64_t cols,
                      Range own_parts) {
  find_nodes(own_parts);
  cut(runs);
  kernels::SparseUpdate update;
  update.table.cols = cols;
  update.runs = runs;
  update.parts = parts_;
  auto* const vectors = vectors_.resize_for<float>(count_ * cols);
  const auto* const segments = segments_.as<const std::int64_t>();
  const auto* const first_parts = nodes_.as<const std::int32_t>();
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return kernels::update_blocks(count_); },
      [&](std::int64_t, std::int64_t block) {
        const std::int64_t begin = block * kernels::kRowsPerTask;
        const std::int64_t end = std::min(begin + kernels::kRowsPerTask, count_);
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int32_t node = node_of_part_[static_cast<std::size_t>(first_parts[i])];
          kernels::sum_segments(update, {segments[i], segments[i + 1]},
                                subtrees_[static_cast<std::size_t>(node)], vectors + i * cols);
        }
      });
}

PartialRows PartialSums::rows() const {
  return {.count = count_,
          .rows = rows_.as<const std::int64_t>(),
          .nodes = nodes_.as<const std::int32_t>(),
          .vectors = vectors_.as<const float>()};
}

}  // namespace weft::embedding
