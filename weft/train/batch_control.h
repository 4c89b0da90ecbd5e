/// BatchControl: what ranks tell each other with the counts of a batch, which is what is known
/// before the batch is computed: whether to stop, the label weights that the loss divides by, and
/// whether there is a batch on all ranks.
/// What is known after it is a StepReport (step_report.h). docs/adr/0008 says why there are two.
///
/// Merging     associative, in the order of ranks, which is that of their parts, so that any tree
/// of
///             ranks may carry it. The merge of all ranks' blocks is equal on all of them.
/// Memory      buffers grow to the largest run of parts, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/run_sums.h"

namespace weft::train {

/// Adds doubles.
struct AddDoubles {
  void operator()(double& sum, const double& later) const { sum += later; }
};

/// Of one rank, or of a run of ranks.
class BatchControl {
 public:
  /// `parts` is P of the rule of parts.
  BatchControl(std::int64_t parts, std::int64_t tasks)
      : weights(parts, tasks), parts_(parts), tasks_(tasks) {}

  /// Size of a block on the wire of one of `ranks` ranks with equal shares of the parts, or of as
  /// many groups of ranks; equal for all of them. O(ranks log parts).
  [[nodiscard]] std::int64_t bytes(std::int64_t ranks) const;

  /// Takes in the block of the ranks after these.
  void append(const BatchControl& right);

  /// Writes to `out` [bytes(ranks)], and reads what another one wrote.
  void encode(std::span<std::byte> out) const;
  void decode(std::span<const std::byte> in);

  bool stop = false;                    ///< a stop request has reached one of the ranks
  bool refused = false;                 ///< one of the ranks has no batch; weights mean nothing
  RunSums<double, AddDoubles> weights;  ///< [tasks] sums of label weights of the batch

 private:
  std::int64_t parts_;
  std::int64_t tasks_;
};

}  // namespace weft::train
