#include "weft/layout/reduce.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/layout/blocks.h"
#include "weft/layout/products.h"

namespace weft::layout {
namespace {

/// Counts what a rank and the others contribute.
class Reduce {
 public:
  explicit Reduce(const ReduceShape& shape) : shape_(shape) {
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      terms_.push_back(maximal_subtrees(shape.parts, rank_parts(shape.parts, shape.ranks, rank)));
    }
  }

  [[nodiscard]] ReduceBuffers flat() const {
    const std::int64_t slice = slice_bytes(shape_.rank);
    const std::int64_t own = terms(shape_.rank);
    std::int64_t others = -own;  // partial sums
    std::int64_t away = 0;       // code of others' slices
    std::vector<Range> nodes;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
      nodes.insert(nodes.end(), terms_[at(rank)].begin(), terms_[at(rank)].end());
      others += terms(rank);
      away += rank == shape_.rank ? 0 : code(rank);
    }
    ReduceBuffers buffers = partial_sums();
    buffers.waiting = waiting_sums(Range{0, shape_.parts}, nodes) * slice;
    if (!shape_.is_coded()) {
      buffers.received = shape_.lent ? 0 : others * slice;
      return buffers;
    }
    buffers.received = shape_.lent ? 0 : std::max(others * code(shape_.rank), away);
    buffers.crossed = others * slice;
    buffers.sent = own * away;
    buffers.total_code = code(shape_.rank);
    add_sums(buffers, buffers.partials);
    return buffers;
  }

  [[nodiscard]] ReduceBuffers hierarchical(const HostLayout& layout) const {
    const auto self = static_cast<int>(shape_.rank);
    const int host = layout.host(self);
    std::int64_t acted = 0;    // slices for which this rank acts
    std::int64_t largest = 0;  // of them
    std::int64_t away = 0;     // code of those of others
    std::int64_t all = 0;      // code of all slices
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      all += code(rank);
      if (layout.deputy(host, rank, shape_.crossing) == self) {
        acted += slice_bytes(rank);
        largest = std::max(largest, slice_bytes(rank));
        away += rank == self ? 0 : code(rank);
      }
    }
    std::vector<Range> nodes;
    for (int h = 0; h < layout.hosts(); ++h) {
      const std::vector<Range> own = host_subtrees(layout, shape_.parts, h);
      nodes.insert(nodes.end(), own.begin(), own.end());
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    const std::vector<Range> own_nodes = host_subtrees(layout, shape_.parts, host);
    const std::int64_t crossing = std::ssize(nodes) - std::ssize(own_nodes);
    std::int64_t others = -terms(self);  // partial sums of the host's other ranks
    for (const int rank : layout.ranks_of(host)) {
      others += terms(rank);
    }
    ReduceBuffers buffers = partial_sums();
    buffers.received = shape_.lent ? 0 : others * acted;
    buffers.waiting = std::max(waiting_sums(Range{0, shape_.parts}, nodes),
                               waiting_inside(layout, host, own_nodes)) *
                      largest;
    buffers.host_sums = std::ssize(own_nodes) * acted;
    buffers.crossed = crossing * slice_bytes(self);
    buffers.passed = passed(layout, self);
    if (shape_.is_coded()) {
      buffers.sent = std::ssize(own_nodes) * away;
      buffers.crossed_code = crossing * code(self);
      buffers.total_code = all;
      add_sums(buffers, buffers.host_sums);
    }
    return buffers;
  }

 private:
  [[nodiscard]] std::int64_t slice_bytes(std::int64_t rank) const {
    return kFloatBytes * piece(shape_.floats, shape_.ranks, rank).size();
  }

  [[nodiscard]] std::int64_t code(std::int64_t rank) const {
    return code_bytes(shape_.format, shape_.group, piece(shape_.floats, shape_.ranks, rank).size());
  }

  [[nodiscard]] std::int64_t terms(std::int64_t rank) const { return std::ssize(terms_[at(rank)]); }

  [[nodiscard]] ReduceBuffers partial_sums() const {
    return {.partials = terms(shape_.rank) * kFloatBytes * shape_.floats};
  }

  [[nodiscard]] std::int64_t passed(const HostLayout& layout, int self) const {
    if (shape_.crossing == Crossing::kDirect) {
      return 0;
    }
    const int host = layout.host(self);
    std::int64_t sums = 0;
    for (int other = 0; other < layout.hosts(); ++other) {
      if (other != host && layout.relay(host, other) == self) {
        sums += std::ssize(host_subtrees(layout, shape_.parts, other));
      }
    }
    std::int64_t bytes = 0;
    for (const int rank : layout.ranks_of(host)) {
      bytes += rank == self ? 0 : shape_.is_coded() ? code(rank) : slice_bytes(rank);
    }
    return sums * bytes;
  }

  /// The own sum, and residuals of it and of what is encoded first.
  void add_sums(ReduceBuffers& buffers, std::int64_t encoded) const {
    buffers.total = slice_bytes(shape_.rank);
    if (shape_.error_feedback) {
      buffers.partial_residuals = encoded;
      buffers.total_residual = buffers.total;
    }
  }

  /// The most that wait for one of the host's sums.
  [[nodiscard]] std::int64_t waiting_inside(const HostLayout& layout,
                                            int host,
                                            const std::vector<Range>& nodes) const {
    std::vector<Range> local;
    for (const int rank : layout.ranks_of(host)) {
      local.insert(local.end(), terms_[at(rank)].begin(), terms_[at(rank)].end());
    }
    std::int64_t most = 0;
    for (const Range& node : nodes) {
      std::vector<Range> inside;
      std::copy_if(local.begin(), local.end(), std::back_inserter(inside), [&](const Range& term) {
        return node.begin <= term.begin && term.end <= node.end;
      });
      most = std::max(most, waiting_sums(node, inside));
    }
    return most;
  }

  const ReduceShape& shape_;
  std::vector<std::vector<Range>> terms_;  ///< [ranks] partial sums of each
};

}  // namespace

std::int64_t waiting_sums(Range root, const std::vector<Range>& nodes) {
  std::size_t next = 0;
  const auto leaf = [&](const Range& node, int) {
    const bool found = next < nodes.size() && nodes[next] == node;
    next += found ? 1 : 0;
    return found;
  };
  std::int64_t most = 0;
  std::int64_t last = 0;  // the last addition makes the total
  sum_tree(root, 0, leaf, [&](int depth) {
    most = std::max(most, last);
    last = depth + 1;
  });
  return most;
}

std::int64_t ReduceBuffers::counted_bytes() const {
  std::int64_t bytes = 0;
  for (const std::int64_t block :
       {partials, received, waiting, host_sums, crossed, passed, sent, crossed_code, total,
        total_code, partial_residuals, total_residual}) {
    bytes += block_bytes(block);
  }
  return bytes;
}

ReduceBuffers reduce_buffers(const ReduceShape& shape) {
  const Reduce reduce(shape);
  if (!shape.hosts.empty()) {
    const HostLayout layout(std::vector<int>(shape.hosts.begin(), shape.hosts.end()));
    if (!layout.is_flat()) {
      return reduce.hierarchical(layout);
    }
  }
  return reduce.flat();
}

}  // namespace weft::layout
