/// Memory of the dense side of a training step on one rank (weft/train/dense_pass.h): the sum of
/// the lengths by which it is allocated (weft/layout/dense_memory.h, reduce.h).
///   parameters  weights and their gradient, the optimizer's state and its scan of the gradient,
///               and what their all-reduce has
///   packed      every layer's weights twice, as products read them
///   batch       dense values, labels and weights of samples, logits and their gradients, offsets
///               of sequences
///   sums        of several micro-batches, sums of gradients that wait for others; words that say
///               where a sum is not finite
///   slices      of each slice the operands of its weights' gradients, and the gradients of biases
///   lanes       of each thread the layers' values of the largest slice
///   scratch     of each thread copies of operands that are not compact or of another type than is
///               multiplied, and partial sums of a tile of weights: host memory of no device
/// What is not counted: oneDNN's scratch memory, which its primitives ask for by themselves, and
/// what lies in std::vector. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/base/micro_batches.h"
#include "weft/layout/products.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"

namespace weft::planner {

/// The rank whose memory is asked for, and its surroundings: it is `rank` of `ranks` that share
/// `parts` parts of the global batch, and its pool has `threads` threads. REQUIRES: 0 <= rank <
/// ranks <= parts.
struct DenseMemoryShape {
  std::int64_t parts = 8;
  std::int64_t ranks = 1;
  std::int64_t rank = 0;
  std::int64_t threads = 1;
  bool lent = true;                       ///< as layout::ReduceShape
  std::vector<std::int64_t> hosts = {};   ///< [ranks] where gradients are summed hierarchically
  Crossing crossing = Crossing::kDirect;  ///< between these hosts
  std::optional<layout::Packing> packing = {};  ///< none: that of numerics.target, or of AMX
};

/// Bytes as the allocators count them.
struct DenseMemory {
  double parameters = 0.0;
  double packed = 0.0;
  double batch = 0.0;
  double sums = 0.0;
  double slices = 0.0;
  double lanes = 0.0;
  double scratch = 0.0;

  /// Of the rank's device.
  [[nodiscard]] double device() const {
    return parameters + packed + batch + sums + slices + lanes;
  }

  [[nodiscard]] double bytes() const { return device() + scratch; }
};

/// The most that DenseMemory::sums is on a rank where batches are cut by `cuts`: of all ranks, or
/// of 256 of them where there are more.
double most_gradient_sums(const spec::Config& config,
                          std::int64_t parts,
                          std::int64_t ranks,
                          const MicroBatches& cuts);

/// Under any plan, with the micro-batches of config.pipeline and the sums of the rank with most;
/// sequences are as long as the workload says on average. Requires a valid configuration with its
/// defaults filled in. O(layers · slices + features + parts + ranks).
DenseMemory dense_memory(const spec::Config& config,
                         const Workload& workload,
                         const DenseMemoryShape& shape);

}  // namespace weft::planner
