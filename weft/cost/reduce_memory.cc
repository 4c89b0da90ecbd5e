#include "weft/cost/reduce_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/cost/memory.h"

namespace weft::cost {
namespace {

constexpr double kCodedBlock = 4096.0;  // floats of sums that are encoded at a time

/// Sums that wait in the tree below `root` over sums at `nodes`, in order, the total apart:
/// TreeSum::scratch_rows().
double waiting_sums(Range root, const std::vector<Range>& nodes) {
  std::size_t next = 0;
  std::vector<int> depths;
  const auto leaf = [&](const Range& node, int) {
    const bool found = next < nodes.size() && nodes[next] == node;
    next += found ? 1 : 0;
    return found;
  };
  sum_tree(root, 0, leaf, [&](int depth) { depths.push_back(depth); });
  int most = 0;
  for (std::size_t i = 0; i + 1 < depths.size(); ++i) {
    most = std::max(most, depths[i] + 1);
  }
  return most;
}

/// Of residuals of partial sums, of the own slice's sum, and of blocks in hand.
double feedback_bytes(const ReduceShape& shape, double partials, double slice) {
  if (!shape.wire.is_coded() || !shape.wire.error_feedback) {
    return 0.0;
  }
  const auto group = static_cast<double>(is_grouped(shape.wire.format) ? shape.wire.group : 1);
  const double block = std::ceil(kCodedBlock / group) * group;
  return block_bytes(partials) + block_bytes(slice) +
         block_bytes(static_cast<double>(shape.threads) * kFloatBytes * block);
}

class Reduce {
 public:
  Reduce(const ReduceShape& shape, std::int64_t count) : shape_(shape), floats_(count) {
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      terms_.push_back(maximal_subtrees(shape.parts, rank_parts(shape.parts, shape.ranks, rank)));
    }
  }

  [[nodiscard]] double flat() const {
    const double slice = kFloatBytes * floats(shape_.rank);
    double others = 0.0;  // partial sums
    double away = 0.0;    // code of others' slices
    std::vector<Range> nodes;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      nodes.insert(nodes.end(), terms_[at(rank)].begin(), terms_[at(rank)].end());
      others += rank == shape_.rank ? 0.0 : terms(rank);
      away += rank == shape_.rank ? 0.0 : wire(rank);
    }
    double bytes = block_bytes(waiting_sums(Range{0, shape_.parts}, nodes) * slice);
    if (shape_.ranks == 1 || !shape_.wire.is_coded()) {
      return bytes + (shape_.lent ? 0.0 : block_bytes(others * slice));
    }
    const double own = terms(shape_.rank);
    bytes += block_bytes(own * away) + block_bytes(others * slice) + block_bytes(slice) +
             block_bytes(wire(shape_.rank)) +
             (shape_.lent ? 0.0 : block_bytes(std::max(others * wire(shape_.rank), away)));
    return bytes + feedback_bytes(shape_, own * kFloatBytes * static_cast<double>(floats_), slice);
  }

  [[nodiscard]] double hierarchical(const HostLayout& layout) const {
    const auto self = static_cast<int>(shape_.rank);
    const int host = layout.host(self);
    double acted = 0.0;      // floats of the slices for which this rank acts
    double largest = 0.0;    // of them
    double deputised = 0.0;  // code of those of others
    double sums = 0.0;       // code of all slices
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      sums += wire(rank);
      if (layout.deputy(host, rank) == self) {
        acted += floats(rank);
        largest = std::max(largest, floats(rank));
        deputised += rank == self ? 0.0 : wire(rank);
      }
    }
    std::vector<Range> nodes;  // of all hosts
    for (int h = 0; h < layout.hosts(); ++h) {
      const std::vector<Range> own = host_subtrees(layout, shape_.parts, h);
      nodes.insert(nodes.end(), own.begin(), own.end());
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    const std::vector<Range> own_nodes = host_subtrees(layout, shape_.parts, host);
    double waiting = waiting_sums(Range{0, shape_.parts}, nodes);
    double others = 0.0;  // partial sums of the host's other ranks
    std::vector<Range> local;
    for (const int rank : layout.ranks_of(host)) {
      local.insert(local.end(), terms_[at(rank)].begin(), terms_[at(rank)].end());
      others += rank == self ? 0.0 : terms(rank);
    }
    for (const Range& node : own_nodes) {
      std::vector<Range> inside;
      std::copy_if(local.begin(), local.end(), std::back_inserter(inside), [&](const Range& term) {
        return node.begin <= term.begin && term.end <= node.end;
      });
      waiting = std::max(waiting, waiting_sums(node, inside));
    }
    const auto host_sums = static_cast<double>(own_nodes.size());
    const double crossed = static_cast<double>(nodes.size()) - host_sums;
    const double slice = kFloatBytes * floats(shape_.rank);
    const double bytes = (shape_.lent ? 0.0 : block_bytes(others * kFloatBytes * acted)) +
                         block_bytes(host_sums * kFloatBytes * acted) +
                         block_bytes(crossed * slice) +
                         block_bytes(waiting * kFloatBytes * largest);
    if (!shape_.wire.is_coded()) {
      return bytes;
    }
    return bytes + block_bytes(host_sums * deputised) + block_bytes(crossed * wire(shape_.rank)) +
           block_bytes(sums) + block_bytes(slice) +
           feedback_bytes(shape_, host_sums * kFloatBytes * acted, slice);
  }

  [[nodiscard]] double partial_sums() const {
    return block_bytes(terms(shape_.rank) * kFloatBytes * static_cast<double>(floats_));
  }

 private:
  [[nodiscard]] double floats(std::int64_t rank) const {
    return static_cast<double>(piece(floats_, shape_.ranks, rank).size());
  }

  [[nodiscard]] double wire(std::int64_t rank) const {
    return static_cast<double>(shape_.wire.bytes(piece(floats_, shape_.ranks, rank).size()));
  }

  [[nodiscard]] double terms(std::int64_t rank) const {
    return static_cast<double>(terms_[at(rank)].size());
  }

  const ReduceShape& shape_;
  std::int64_t floats_;
  std::vector<std::vector<Range>> terms_;  ///< [ranks] partial sums of each
};

}  // namespace

double reduce_memory(const ReduceShape& shape, std::int64_t floats) {
  const Reduce reduce(shape, floats);
  if (!shape.hosts.empty()) {
    const HostLayout layout(std::vector<int>(shape.hosts.begin(), shape.hosts.end()));
    if (!layout.is_flat()) {
      return reduce.partial_sums() + reduce.hierarchical(layout);
    }
  }
  return reduce.partial_sums() + reduce.flat();
}

}  // namespace weft::cost
