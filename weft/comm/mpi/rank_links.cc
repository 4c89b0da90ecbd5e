#include "weft/comm/mpi/rank_links.h"

#include <algorithm>

#include "weft/comm/rank_tree.h"

namespace weft::comm {

int tree_parent(int rank) {
  if (rank == 0) {
    return -1;
  }
  int span = kTreeFan;
  while (rank % span == 0) {
    span *= kTreeFan;
  }
  return rank - rank % span;
}

std::vector<int> tree_children(int rank, int size) {
  std::vector<int> children;
  for (int span = 1; span < size && rank % (span * kTreeFan) == 0; span *= kTreeFan) {
    for (int i = 1; i < kTreeFan && rank + i * span < size; ++i) {
      children.push_back(rank + i * span);
    }
  }
  return children;
}

std::vector<int> neighbours(int rank, int size) {
  std::vector<int> ranks;
  for (int distance = 1; distance < size; distance *= 2) {
    ranks.push_back((rank + distance) % size);
    ranks.push_back((rank + size - distance) % size);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace weft::comm
