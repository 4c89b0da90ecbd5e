/// StepReport: what ranks tell each other after the backward pass of a step, which is what is
/// known after a batch: whether all is finite, the metric sums, and what codecs could not represent
/// in its vectors. With it travels what arose after the reports before: counts of updates that
/// overflowed, and of codecs in gradients, dense sums and syncs, tagged with the last step that
/// they are of. Engine::flush() brings the last of these.
///
/// Place       the report is agreed on after the backward pass and before every update. By
///             contract it has a content and this place in the order, and no exchange of its own:
///             it may ride on another one.
/// Merging     associative, in the order of ranks, which is that of their parts, so that any tree
/// of
///             ranks may carry it. The merge of all ranks' blocks is equal on all of them.
/// Figures     of a step are in its own report, however far the exchange of ids runs ahead.
/// Memory      buffers grow to the largest run of parts, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/run_sums.h"
#include "weft/kernels/codec.h"
#include "weft/metrics/binary.h"
#include "weft/sharding/sharded_embeddings.h"

namespace weft::train {

/// The first sample, by position in the global batch, whose loss or gradient is not finite.
/// Trivially copyable: ranks exchange it as bytes.
struct NonFinite {
  std::int64_t position = -1;  ///< -1: all finite
  std::int64_t sample = -1;    ///< its id in the source; -1: a vector before it was encoded
  std::int64_t rank = -1;
};

/// Counts of values that codecs have clipped or found non-finite.
struct CodecReport {
  sharding::TableClips clips;
  std::int64_t table = -1;  ///< the first that has any
  kernels::CodecClips dense;
  sharding::SyncClips sync;

  /// Adds counts of other ranks or of later steps.
  CodecReport& operator+=(const CodecReport& other);
};

/// Adds the metric sums of parts in their order; a part without samples changes nothing.
struct MergeSums {
  void operator()(metrics::BinarySums& sums, const metrics::BinarySums& later) const;
};

/// Of one rank, or of a run of ranks.
class StepReport {
 public:
  /// `parts` is P of the rule of parts.
  StepReport(std::int64_t parts, std::int64_t tasks)
      : sums(parts, tasks), parts_(parts), tasks_(tasks) {}

  /// Size of a block on the wire, equal for all ranks.
  [[nodiscard]] std::int64_t bytes() const;

  /// Forgets all but the size, before a report is filled in or merged.
  void clear();

  /// Takes in the block of the ranks after these.
  void append(const StepReport& right);

  /// Writes to `out` [bytes()], and reads what another one wrote.
  void encode(std::span<std::byte> out) const;
  void decode(std::span<const std::byte> in);

  NonFinite non_finite;                          ///< the first of the step
  RunSums<metrics::BinarySums, MergeSums> sums;  ///< [tasks] of the step; flush(): none
  /// Forward: of the step. The others: after the reports before.
  CodecReport codecs;
  std::int64_t late_step = 0;        ///< the last step that these and the overflows are of
  sharding::TableOverflow overflow;  ///< since the start of the run; table -1: a dense parameter
  std::int64_t overflow_rank = -1;   ///< position of the first rank that has any

 private:
  std::int64_t parts_;
  std::int64_t tasks_;
};

}  // namespace weft::train
