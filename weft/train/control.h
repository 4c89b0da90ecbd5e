/// The control block: what ranks tell each other with the counts of every step, so that stopping,
/// loss denominators, metrics and overflows cost no collective of their own.
///
/// Layout     per rank, fixed size: header, then for each of its parts (padded to ⌈P/W⌉ parts) and
///            each task the sum of label weights of this batch, then the metric sums of the step
///            before.
/// Merging    sums over samples go up the tree of parts; the result is equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/metrics/binary.h"
#include "weft/sharding/sharded_embeddings.h"

namespace weft::train {

/// Counts of values that codecs have clipped or found non-finite since the start of the run.
struct CodecReport {
  sharding::TableClips clips;
  std::int64_t table = -1;  ///< the first that has any
  kernels::CodecClips dense;
  sharding::SyncClips sync;
};

/// What one rank says.
struct LocalControl {
  bool stop = false;                 ///< a stop request has reached this rank
  sharding::TableOverflow overflow;  ///< since the start of the run
  std::vector<double> weights;       ///< [own parts][T] sums of label weights of this batch
  CodecReport codecs;
  bool has_previous = false;                  ///< whether `previous` holds a step's sums
  std::vector<metrics::BinarySums> previous;  ///< [own parts][T]
};

/// What all ranks said.
struct GlobalControl {
  bool stop = false;
  sharding::TableOverflow overflow;  ///< count over all ranks; the first rank's table and row
  std::int64_t overflow_rank = -1;
  CodecReport codecs;           ///< of all ranks
  std::vector<double> weights;  ///< [T]
  bool has_previous = false;
  std::vector<metrics::BinarySums> previous;  ///< [T], of the global batch of the step before
};

/// Writes a rank's control block and merges those of all ranks. Blocks are bytes of the machine's
/// own order. merge() uses memory of its own, so one thread calls it at a time.
class ControlCodec {
 public:
  ControlCodec(std::int64_t parts, std::int64_t ranks, std::int64_t tasks);

  /// Size of a rank's block, equal for all ranks.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Writes `local` of `rank` into `out` [bytes()].
  void encode(const LocalControl& local, std::int64_t rank, std::span<std::byte> out) const;

  /// Merges the blocks of all ranks into `global`, whose memory is reused; block(r) is that of rank
  /// r.
  void merge(const std::function<std::span<const std::byte>(std::int64_t)>& block,
             GlobalControl& global);

 private:
  std::int64_t parts_;
  std::int64_t ranks_;
  std::int64_t tasks_;
  std::int64_t parts_per_rank_;
  std::int64_t bytes_;
  std::vector<std::vector<double>> weights_;            // [T][P], of the merge in hand
  std::vector<std::vector<metrics::BinarySums>> sums_;  // [T][P]
};

}  // namespace weft::train
