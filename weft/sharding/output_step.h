/// OutputStep: the vectors and gradients of one batch, in matrices and on their way. OutputDist
/// fills it.
///
/// Places      a block of a slot has a place of its own per source rank, for its vectors and for
/// its
///             gradients, so that a run of its bags is a run of either.
/// Memory      buffers grow to the longest batch that has been seen, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/comm/collective.h"
#include "weft/comm/piece_list.h"
#include "weft/embedding/partial_sums.h"
#include "weft/kernels/assemble_bags.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/layout/feature_vectors.h"
#include "weft/sharding/batch_matrices.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/vector_wire.h"
#include "weft/spec/config.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// The rows of one table that is pooled at the sample, and their partial gradients.
struct FetchedTable {
  Buffer vectors;         ///< [rows, D] by place among the unique rows
  std::int64_t rows = 0;  ///< U
  kernels::RunBuffers buffers;
  std::vector<kernels::GradientBlock> blocks;  ///< per feature
  kernels::RowRuns runs;
  embedding::PartialSums sums;
  bool is_coalesced = false;  ///< the batch in hand
};

/// Jobs of kernels::assemble_bags(), and their lists of cuts.
struct BagJobs {
  /// Takes room for so many cuts in one step, which is known beforehand: jobs point to theirs.
  void reserve(std::int64_t cuts) { all_cuts.reserve(at(cuts)); }

  /// Begins the list of another call.
  void clear() {
    jobs.clear();
    all_cuts.clear();
  }

  /// The cuts of the next job.
  std::span<kernels::BagVectors> take_cuts(std::int64_t count);

  std::vector<kernels::BagAssembly> jobs;
  std::vector<kernels::BagVectors> all_cuts;
};

/// The lanes of an exchange, from rank 0 on, whose pieces are one list. Lanes without a byte are
/// silent.
class PeerLanes {
 public:
  /// Begins the lanes of another exchange.
  void clear() {
    pieces_.clear();
    ends_.clear();
    bytes_ = 0;
  }

  /// Appends a piece to the lane in hand.
  void add(const comm::Piece& piece) {
    pieces_.add(piece);
    bytes_ += piece.bytes;
  }

  /// Ends the lane in hand.
  void end_lane() { ends_.push_back({pieces_.size(), std::exchange(bytes_, 0)}); }

  /// Valid until the next clear().
  std::span<const comm::Lane> lanes();

 private:
  struct End {
    std::size_t pieces = 0;  // of this lane and those before
    std::int64_t bytes = 0;  // of this one
  };

  comm::PieceList pieces_;
  std::vector<End> ends_;
  std::int64_t bytes_ = 0;  // of the lane in hand
  std::vector<comm::Lane> lanes_;
};

/// What a micro-batch has of a block between this rank and another one, by number.
struct PeerCut {
  std::int32_t vectors_begin = 0, vectors_end = 0;
  std::int32_t gradients_begin = 0, gradients_end = 0;
};

struct OutputStep {
  /// `shared`: see BatchMatrices.
  OutputStep(const spec::Config& config,
             const Routing& routing,
             Device& device,
             const SparseStepOptions& options,
             const BatchMatrices* shared);

  /// Whether whole bags and single vectors have been decoded to where they belong.
  [[nodiscard]] bool is_decoded() const { return forward_wire.is_on(); }

  /// Where the vectors of the slot with this AskedIds::place() lie, behind each other. Those of the
  /// micro-batch in hand have come.
  [[nodiscard]] const float* arrived(std::int64_t place) const { return arrived_at[at(place)]; }

  /// Adds the job that makes the slot's columns of a micro-batch's bags of `cuts`, the vectors by
  /// cut of rows, and divides those of means.
  void add_bags(const Routing& routing,
                const InputStep& input,
                std::int64_t cut,
                const SlotKind& slot,
                std::span<const kernels::BagVectors> cuts);

  std::int64_t rank = 0;
  BatchMatrices matrices;

  Buffer served;  ///< vectors of this rank's slots, by source; then their gradients
  Buffer asked;   ///< vectors of this rank's samples, where not lent; decoded partial sums
  std::int64_t cleared = 0;  ///< capacity of all buffers at the last clear_grown()
  /// [blocks], then [replicated slots]: where they begin in `served`, in floats.
  std::vector<layout::ServedFloats<std::int64_t>> served_places;
  /// The same of what other ranks ask, as ServedIds::arrived, with the micro-batches of each: what
  /// is sent to a rank or comes from it is read in one go.
  std::vector<layout::ServedFloats<std::int64_t>> peer_places;
  std::vector<PeerCut> peer_cuts;         ///< [arrived][micro-batches]
  std::vector<Range> served_run;          ///< [W] floats; this rank's ends with hot rows
  std::vector<std::int64_t> asked_begin;  ///< by AskedIds::place(): floats, of a server's run
  std::vector<Range> asked_run;           ///< [W] floats
  /// As AskedIds::server_slots, where batches are cut: what each micro-batch has of what this rank
  /// asks of others.
  std::vector<PeerCut> asked_cuts;       ///< [server slots][micro-batches]
  std::vector<const float*> arrived_at;  ///< likewise

  VectorWire forward_wire, backward_wire;
  PeerLanes send, recv;  ///< [W], of what is not encoded
  /// By kind of slot, where the gradients lie that other ranks are sent; null until one is asked.
  std::vector<VectorPlace> gradient_places;

  BagJobs assembly;                   ///< of the vectors that have come, then of fetched means
  BagJobs changes;                    ///< of gradients
  std::vector<std::int64_t> changed;  ///< features whose gradients are divided or copied, static
  std::vector<FetchedTable> fetched;  ///< [fetches]
  std::vector<kernels::BagLookup> fetched_lookups;
  std::vector<kernels::CoalesceJob> fetched_coalesces;
  std::vector<embedding::PartialSums::Work> fetched_sums;
  std::vector<std::int64_t> fetched_means;  ///< features of fetched tables, static
};

}  // namespace weft::sharding
