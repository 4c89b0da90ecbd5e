#include "weft/base/host_layout.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace weft {

HostLayout::HostLayout(std::span<const int> hosts) {
  std::map<int, int> numbers;  // of the caller's numbers
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto [known, is_new] = numbers.try_emplace(hosts[rank], static_cast<int>(ranks_.size()));
    if (is_new) {
      ranks_.emplace_back();
    }
    std::vector<int>& local = ranks_[static_cast<std::size_t>(known->second)];
    host_.push_back(known->second);
    place_.push_back(static_cast<int>(local.size()));
    local.push_back(static_cast<int>(rank));
  }
  int first = 0;
  for (const std::vector<int>& local : ranks_) {
    first_.push_back(first);
    first += static_cast<int>(local.size());
  }
}

int HostLayout::most_direct_messages() const {
  const auto smallest =
      std::min_element(ranks_.begin(), ranks_.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto size = static_cast<int>(smallest->size());
  // Each rank of a host is dealt one of its host's positions, for which it needs no deputy.
  return (ranks() + size - 1) / size - 1;
}

std::vector<Range> host_subtrees(const HostLayout& layout, std::int64_t parts, int host) {
  std::vector<Range> runs;
  for (const int rank : layout.ranks_of(host)) {
    const Range own = rank_parts(parts, layout.ranks(), rank);
    if (!runs.empty() && runs.back().end == own.begin) {
      runs.back().end = own.end;
    } else {
      runs.push_back(own);
    }
  }
  std::vector<Range> nodes;
  for (const Range& run : runs) {
    const std::vector<Range> inside = maximal_subtrees(parts, run);
    nodes.insert(nodes.end(), inside.begin(), inside.end());
  }
  return nodes;
}

}  // namespace weft
