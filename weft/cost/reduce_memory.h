/// Memory of the dense all-reduce on one rank, block by block, as its forms ask for it
/// (weft/comm/flat_reduce.cc, coded_reduce.cc, hierarchical_reduce.cc).
///
/// Notation: n floats in slices of n / W, k partial sums of this rank (maximal whole subtrees of
/// its parts), t of all others, b(c) the code of c floats, 4 c without one; h host sums of this
/// rank's host, x of all other hosts, m floats of the slices for which this rank acts on its host.
/// A sum waits per depth of the tree over partial sums, but for the total.
///   both          4 k n partial sums; 4 n / W per sum that waits (hierarchical: the largest slice
///                 for which the rank acts)
///   flat          where nothing is lent t b(n / W). With a codec k slices of code for each other
///                 rank, 4 t n / W, and of the own sum 4 n / W and its code; with error feedback
///                 4 k n and 4 n / W of residuals
///   hierarchical  4 h m, 4 x n / W, and where nothing is lent inside hosts partial sums of the
///                 others there, m each. With a codec h codes of the slices of others for which the
///                 rank acts, x b(n / W), all slices' sums as code and 4 n / W; with error feedback
///                 4 h m and 4 n / W of residuals
///   feedback      4096 floats, in whole groups, of each thread
/// Pure. Cost: O(ranks + parts), hierarchical O(ranks · hosts + parts).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/cost/codec.h"

namespace weft::cost {

/// The rank whose memory is asked for, and its surroundings: it is `rank` of `ranks` that share
/// `parts` parts of the global batch, and its pool has `threads` threads. REQUIRES: 0 <= rank <
/// ranks <= parts.
struct ReduceShape {
  std::int64_t parts = 8;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t threads = 1;
  bool lent = true;  ///< whether others' memory can be read: of all ranks, or of those of a host
  std::vector<std::int64_t> hosts = {};  ///< [ranks] of the hierarchical form; empty: flat
  ReduceWire wire = {};
};

/// Bytes as the allocators count them, partial sums included.
double reduce_memory(const ReduceShape& shape, std::int64_t floats);

}  // namespace weft::cost
