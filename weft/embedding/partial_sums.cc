#include "weft/embedding/partial_sums.h"

#include <cstddef>

#include "weft/base/at.h"
#include "weft/layout/row_gradients.h"

namespace weft::embedding {

PartialSums::PartialSums(Device& device, std::int64_t parts)
    : parts_(parts),
      rows_(device),
      nodes_(device),
      segments_(device),
      vectors_(device),
      subtrees_(device),
      node_of_part_(device) {
}

/// The subtrees of the rank's run of parts; made again only when the run changes.
void PartialSums::find_nodes(Context& ctx, Range own_parts) {
  if (own_parts == run_ && subtrees_.bytes() > 0) {
    return;
  }
  run_ = own_parts;
  const std::vector<Range> subtrees = maximal_subtrees(parts_, own_parts);
  std::vector<std::int32_t> node_of_part(at(parts_), -1);
  for (std::size_t node = 0; node < subtrees.size(); ++node) {
    for (std::int64_t part = subtrees[node].begin; part < subtrees[node].end; ++part) {
      node_of_part[at(part)] = static_cast<std::int32_t>(node);
    }
  }
  const auto place = [&ctx](Buffer& buffer, const void* from, std::size_t bytes) {
    buffer.resize(static_cast<std::int64_t>(bytes));
    buffer.device()->copy_to_device(ctx, buffer.as<void>(), from, buffer.bytes());
  };
  place(subtrees_, subtrees.data(), std::span(subtrees).size_bytes());
  place(node_of_part_, node_of_part.data(), std::span(node_of_part).size_bytes());
}

kernels::PartNodes PartialSums::nodes() const {
  return {.subtrees = subtrees_.as<const Range>(),
          .node_of_part = node_of_part_.as<const std::int32_t>()};
}

kernels::PartialCut PartialSums::cut(const kernels::RowRuns& runs) {
  const auto lengths = layout::partial_cut_lengths(runs.num_segments);
  return {.runs = runs,
          .nodes = nodes(),
          .rows = rows_.resize_for(lengths.rows),
          .first_parts = nodes_.resize_for(lengths.nodes),
          .segments = segments_.resize_for(lengths.segments),
          .count = &count_};
}

kernels::PartialSum PartialSums::add(const Work& work) {
  return {.runs = *work.runs,
          .cols = work.cols,
          .parts = parts_,
          .count = count_,
          .segments = segments_.as<const std::int64_t>(),
          .vectors = vectors_.resize_for(layout::vectors(count_, work.cols))};
}

void PartialSums::sum(Context& ctx, std::span<const Work> all, Range own_parts) {
  if (all.empty()) {
    return;
  }
  std::vector<kernels::PartialCut>& cuts = all.front().sums->cuts_;
  std::vector<kernels::PartialSum>& adds = all.front().sums->adds_;
  cuts.clear();
  adds.clear();
  for (const Work& work : all) {
    work.sums->find_nodes(ctx, own_parts);
    cuts.push_back(work.sums->cut(*work.runs));
  }
  kernels::cut_partial_sums(ctx, cuts);
  for (const Work& work : all) {
    adds.push_back(work.sums->add(work));
  }
  kernels::add_partial_sums(ctx, adds);
}

PartialRows PartialSums::rows() const {
  return {.count = count_,
          .rows = rows_.as<const std::int64_t>(),
          .nodes = nodes_.as<const std::int32_t>(),
          .vectors = vectors_.as<const float>()};
}

}  // namespace weft::embedding
