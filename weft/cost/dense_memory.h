/// Memory of the dense side of a training step on one rank (weft/train/dense_pass.h), block by
/// block.
///
/// Notation: B samples of the rank, b of a slice, Dn dense values, T tasks, e bytes of a value in
/// the model's precision, p floats of parameters, each filled up to 16; k maximal whole subtrees of
/// the rank's parts.
///   parameters  p and their gradient, the optimizer's state, and what their all-reduce has
///               (reduce_memory.h)
///   packed      every layer's weights twice, in whole panels of 64 columns and 16 (bf16: 32) rows;
///               bf16 as fp32 where numerics.target names a target without products of bf16
///   batch       B (Dn + 4 T) floats, offsets of sequences
///   slices      of each slice the operands of its weights' gradients: dy transposed, and x in
///               panels as the weights are, in an arena
///   lanes       of each thread the layers' values of a slice, in an arena, in the order in which
///               forward and backward ask for them; copies of operands that are not compact or of
///               another type than is multiplied;
///               partial sums of a tile of weights
/// What is not counted: oneDNN's scratch memory, which its primitives ask for by themselves.
/// Where a target packs no panels (below AVX-512) the packed weights are smaller than said here.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/spec/config.h"

namespace weft::cost {

/// The rank whose memory is asked for, and its surroundings: it is `rank` of `ranks` that share
/// `parts` parts of the global batch, and its pool has `threads` threads. REQUIRES: 0 <= rank <
/// ranks <= parts, and one of `elements` per sparse feature.
struct DenseMemoryShape {
  std::int64_t parts = 8;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t threads = 1;
  std::vector<double> elements;  ///< [features] of a sample of a sequence feature, on average
  bool lent = true;              ///< as ReduceShape
  std::vector<std::int64_t> hosts = {};  ///< [ranks] where gradients are summed hierarchically
};

/// Bytes as the allocators count them.
struct DenseMemory {
  double parameters = 0.0;
  double packed = 0.0;
  double batch = 0.0;
  double slices = 0.0;
  double lanes = 0.0;

  [[nodiscard]] double bytes() const { return parameters + packed + batch + slices + lanes; }
};

/// Requires a valid configuration with its defaults filled in. O(layers + features).
DenseMemory dense_memory(const spec::Config& config, const DenseMemoryShape& shape);

}  // namespace weft::cost
