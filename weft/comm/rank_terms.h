/// Private to comm/: which partial sums every rank contributes to a flat sum.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/parts.h"

namespace weft::comm {

/// What one rank contributes.
struct RankTerms {
  std::vector<Range> nodes;
  std::vector<std::uint8_t> present;  ///< where they are received, or this rank's own
  std::int64_t first_row = 0;         ///< of another rank, among the rows of all others
};

/// Of all ranks.
inline std::vector<RankTerms> terms_of(std::int64_t parts, int ranks, int self) {
  std::vector<RankTerms> all;
  std::int64_t rows = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    RankTerms& terms = all.emplace_back();
    terms.nodes = maximal_subtrees(parts, rank_parts(parts, ranks, rank));
    terms.present.resize(terms.nodes.size(), 1);
    terms.first_row = rows;
    rows += rank == self ? 0 : static_cast<std::int64_t>(terms.nodes.size());
  }
  return all;
}

/// In the order of parts.
inline std::vector<Range> nodes_of(const std::vector<RankTerms>& ranks) {
  std::vector<Range> nodes;
  for (const RankTerms& terms : ranks) {
    nodes.insert(nodes.end(), terms.nodes.begin(), terms.nodes.end());
  }
  return nodes;
}

}  // namespace weft::comm
