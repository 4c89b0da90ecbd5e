/// ServedIds: the ids that other ranks ask of this one in a batch, widened and behind each other.
/// IdReceiver fills it.
///
/// Memory      buffers grow to the longest batch that has been seen, and are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/comm/collective.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/task_list.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

/// The runs of rows of all ranks (unique_rows.h), which are static: of each the first part of its
/// subtree, in the order of ranks.
class RunParts {
 public:
  explicit RunParts(const Routing& routing);

  /// Runs of a rank's rows: R + N.
  [[nodiscard]] std::int64_t runs(std::int64_t rank) const {
    return begins_[at(rank) + 1] - begins_[at(rank)];
  }

  /// Those whose rows get a vector: the first R.
  [[nodiscard]] std::int64_t with_vectors(std::int64_t rank) const {
    return cut_begins_[at(rank)].back();
  }

  /// Of these, those of a micro-batch.
  [[nodiscard]] Range of_cut(std::int64_t rank, std::int64_t cut) const {
    const std::vector<std::int64_t>& begins = cut_begins_[at(rank)];
    return {begins[at(cut)], begins[at(cut) + 1]};
  }

  /// The parts of a micro-batch of a rank.
  [[nodiscard]] Range cut_parts(std::int64_t rank, std::int64_t cut) const {
    const std::size_t first = at(rank * (cuts_ + 1) + cut);
    return {cut_parts_[first], cut_parts_[first + 1]};
  }

  /// Index of a rank's first run.
  [[nodiscard]] std::int64_t begin(std::int64_t rank) const { return begins_[at(rank)]; }

  /// The first part of each run's subtree, of all ranks.
  [[nodiscard]] std::span<const std::int32_t> parts() const { return parts_; }

  /// Those of one rank.
  [[nodiscard]] std::span<const std::int32_t> of(std::int64_t rank) const {
    return parts().subspan(at(begin(rank)), at(runs(rank)));
  }

 private:
  std::vector<std::int64_t> begins_;                   // [W + 1]
  std::vector<std::vector<std::int64_t>> cut_begins_;  // [W][micro-batches + 1]
  std::vector<std::int32_t> parts_;
  std::int64_t cuts_;
  std::vector<std::int32_t> cut_parts_;  // [W][micro-batches + 1] where the parts of each begin
};

/// What one rank asks of a slot that this one serves: it has ids.
struct ArrivedSlot {
  std::int32_t source = 0;
  std::int32_t slot = 0;
  SlotCounts counts = {};
  const std::byte* section = nullptr;  ///< in a packed lane (id_lanes.h), while that is here
};

/// How many vectors the block of an ArrivedSlot has, and gradients.
struct ArrivedVectors {
  std::int32_t vectors = 0;
  std::int32_t gradients = 0;
};

/// A block that this rank serves, found.
struct ServedBlock {
  SlotAddress address;
  std::int64_t source = 0;
  /// IncomingBlocks::place(); of replicated slots their numbers, behind all blocks.
  std::int64_t place = 0;
  const IncomingBlock& block;
};

struct ServedIds {
  /// What a rank asks, in the order of slots.
  [[nodiscard]] std::span<const ArrivedSlot> arrived_of(std::int64_t source) const {
    return std::span(arrived).subspan(
        at(arrived_begins[at(source)]),
        at(arrived_begins[at(source) + 1] - arrived_begins[at(source)]));
  }

  /// The samples of a rank, as Routing::own_samples().
  [[nodiscard]] Range samples_from(std::int64_t source) const {
    return {sample_begins[at(source)], sample_begins[at(source) + 1]};
  }

  /// The numbers of these in `arrived`.
  [[nodiscard]] Range arrivals_of(std::int64_t source) const {
    return {arrived_begins[at(source)], arrived_begins[at(source) + 1]};
  }

  [[nodiscard]] std::span<const std::int64_t> used_ids() const { return {ids.data(), at(num_ids)}; }

  [[nodiscard]] std::span<const std::int64_t> used_offsets() const {
    return {offsets.data(), at(num_offsets)};
  }

  [[nodiscard]] std::span<const float> used_weights() const {
    return {weights.data(), is_weighted ? at(num_ids) : 0};
  }

  [[nodiscard]] std::span<const std::int32_t> used_parts() const {
    return {parts.data(), at(num_parts)};
  }

  /// [bags] the global sample of each bag of a block from another rank, where keeps_samples.
  [[nodiscard]] const std::int32_t* samples_of(const IncomingBlock& block) const {
    return samples.data() + block.lookup.offsets_begin;
  }

  /// The part of a sample of the global batch.
  [[nodiscard]] std::int32_t part_of(std::int64_t sample) const {
    if (part_size == 0) {
      return parts[at(sample)];
    }
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sample) / part_size);
  }

  /// Where the parts of the runs of rows from `source` begin in `parts`.
  [[nodiscard]] std::int64_t run_parts_begin(const RunParts& runs, std::int64_t source) const {
    return global_size + runs.begin(source);
  }

  bool keeps_samples = false;     ///< set once
  std::int64_t global_size = -1;  ///< samples of the global batch
  std::int64_t parts_of = -1;     ///< the global size that `parts` begins with
  /// Samples of a part, where all have as many; else 0. Of thousands of ranks no cache keeps
  /// `parts` from step to step, and a division is faster than memory.
  std::uint32_t part_size = 0;
  std::vector<std::int64_t> sample_begins;  ///< [W + 1] of each rank's samples, of that size
  IdLanes lanes;                            ///< from each rank; a packed lane has one piece or none
  std::vector<ArrivedSlot> arrived;         ///< of other ranks, by source, then slot
  std::vector<std::int64_t> arrived_begins;  ///< [W + 1] in these
  std::vector<std::int32_t> block_arrivals;  ///< by place of a block in these; -1: an own one
  std::vector<std::int32_t> arrival_blocks;  ///< [arrived] the place of each one's block
  /// [arrived] Once they are unpacked: the blocks lie in another order.
  std::vector<ArrivedVectors> arrival_vectors;
  std::vector<std::byte> bytes;  ///< where they are received, unless lent
  TaskList tasks;                ///< of blocks
  std::vector<std::int64_t> ids;
  /// Where bags begin in `ids`. Blocks lie behind each other: the last offset of one is the first
  /// of the next, and is written with the block that it ends.
  std::vector<std::int64_t> offsets;
  std::vector<float> weights;  ///< as `ids`, where some block is weighted
  /// The part of every sample of the global batch, then RunParts::parts(), then the parts of the
  /// blocks' bags.
  std::vector<std::int32_t> parts;
  std::vector<std::int32_t> samples;  ///< of bags, as offsets
  bool is_weighted = false;           ///< some block of the batch is
  std::int64_t num_ids = 0, num_offsets = 0, num_parts = 0;
};

}  // namespace weft::sharding
