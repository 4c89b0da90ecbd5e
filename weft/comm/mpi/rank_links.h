/// Private to comm/mpi: whom a rank writes to, so that all are told with O(log W) messages of each.
#pragma once

#include <vector>

namespace weft::comm {

/// Returns the rank that leads this one in the tree over ranks (weft/comm/rank_tree.h); -1 for
/// rank 0.
int tree_parent(int rank);

/// Returns the ranks that `rank` of `size` leads itself, in order: at most 7 for each of log8 W
/// levels, and none for most ranks.
std::vector<int> tree_children(int rank, int size);

/// Returns the ranks at distances 1, 2, 4, ... on either side, in a circle of all: 2 log2 W - 1 of
/// them where W is a power of two. What each rank passes on to its neighbours once reaches all in
/// at most log2 W hops. A tree loses what is below a rank that is lost; here it takes many lost
/// ranks to cut one off, and runs of them, such as the ranks of a host, cut off none.
std::vector<int> neighbours(int rank, int size);

}  // namespace weft::comm
