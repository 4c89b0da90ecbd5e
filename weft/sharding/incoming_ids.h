/// What a rank serves in a step: the ids of its slots, where they lie, and whose bags they are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/jagged/keyed_jagged_tensor.h"
#include "weft/kernels/rows.h"
#include "weft/sharding/turns_ahead.h"

namespace weft::sharding {

/// This rank's part of a global batch, in the caller's memory, which stays as it is until the end
/// of the step.
struct BatchView {
  KeyedJaggedView sparse = {};  ///< ids are table rows; a KeyedJaggedTensor will do
  std::int64_t step = 0;
  std::int64_t global_size = 0;                   ///< samples of the global batch
  std::span<const std::int64_t> sample_ids = {};  ///< for messages; may be empty
};

/// Whose arrays a block's ids lie in.
enum class IdOrigin : std::uint8_t {
  kBatch,     ///< the batch itself: every bag is there, empty ones too
  kPacked,    ///< what this rank has sorted out of its batch for its own row shard
  kReceived,  ///< of other ranks
  kPlaces,    ///< the batch itself, but ids of fetched tables are places among the unique rows
};

/// Arrays on the device.
struct IdArrays {
  const std::int64_t* ids = nullptr;  ///< counted within the shard's rows
  const std::int64_t* offsets = nullptr;
  const float* weights = nullptr;
};

/// Bags as offsets into the ids of the origin's arrays.
struct BagRun {
  std::int64_t bags = 0;
  std::int64_t offsets_begin = 0;  ///< [bags + 1]

  /// Some of them.
  [[nodiscard]] BagRun part(const Range& of) const { return {of.size(), offsets_begin + of.begin}; }
};

/// The ids of one slot from one source rank. Positions are into the origin's arrays, whose ids and
/// weights lie alike.
struct IncomingBlock {
  IdOrigin origin = IdOrigin::kReceived;
  bool weighted = false;
  std::int64_t ids_begin = 0;
  std::int64_t num_ids = 0;
  std::int64_t rows_read = 0;    ///< by lookups: one per id, or per unique row
  BagRun lookup = {};            ///< bags that get a vector
  BagRun gradient = {};          ///< bags whose gradients OutputDist knows the place of
  std::int64_t vectors = 0;      ///< that lookups make: one per bag, or per id of a sequence
  std::int64_t gradients = 0;    ///< that come for them
  std::int64_t parts_begin = 0;  ///< of the bags of `gradient`
};

/// The blocks of a rank's slots: of its own samples all, of other ranks' those that have ids. They
/// lie by slot, then source. What is kept grows with what is there, and with the rank's slots.
/// Reused from step to step.
class IncomingBlocks {
 public:
  /// Forgets all. Slots are below this number from now on.
  void begin(std::int64_t slots) { begins_.assign(at(slots) + 1, 0); }

  /// Counts one block of a slot.
  void expect(std::int64_t slot) { ++begins_[at(slot) + 1]; }

  /// Once all are counted: makes room for them. What is in it is of another batch.
  void make() {
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    next_.assign(begins_.begin(), begins_.end() - 1);
    blocks_.resize(at(begins_.back()));
    sources_.resize(blocks_.size());
  }

  /// Gives a source the next block of a slot, and returns its place. The sources of a slot ascend.
  std::int64_t add(std::int64_t slot, std::int64_t source) {
    const std::int64_t place = next_[at(slot)]++;
    sources_[at(place)] = static_cast<std::int32_t>(source);
    return place;
  }

  /// Asks for the memory of the block at a place.
  void prefetch(std::int64_t place) const { sharding::prefetch(&blocks_[at(place)]); }

  [[nodiscard]] std::int64_t size() const { return std::ssize(blocks_); }

  /// Its number among all blocks, or kNowhere. Cost: a search among the sources of the slot.
  [[nodiscard]] std::int64_t place(std::int64_t slot, std::int64_t source) const {
    const auto begin = sources_.begin() + begins_[at(slot)];
    const auto end = sources_.begin() + begins_[at(slot) + 1];
    const auto found = std::lower_bound(begin, end, source);
    return found == end || *found != source ? kNowhere : found - sources_.begin();
  }

  [[nodiscard]] IncomingBlock& at_place(std::int64_t place) { return blocks_[at(place)]; }

  [[nodiscard]] const IncomingBlock& at_place(std::int64_t place) const {
    return blocks_[at(place)];
  }

  /// One without ids where there is none.
  [[nodiscard]] const IncomingBlock& of(std::int64_t slot, std::int64_t source) const {
    static constexpr IncomingBlock kNone{};
    const std::int64_t found = place(slot, source);
    return found == kNowhere ? kNone : blocks_[at(found)];
  }

  /// Calls visit(source, place) for the blocks of a slot, by source.
  template <typename Visit>
  void for_slot(std::int64_t slot, const Visit& visit) const {
    for (std::int64_t place = begins_[at(slot)]; place < begins_[at(slot) + 1]; ++place) {
      visit(std::int64_t{sources_[at(place)]}, place);
    }
  }

  /// In place of a place.
  static constexpr std::int64_t kNowhere = -1;

 private:
  std::vector<std::int64_t> begins_;   // [slots + 1] in the lists below
  std::vector<std::int64_t> next_;     // [slots] the place that add() gives
  std::vector<IncomingBlock> blocks_;  // by place
  std::vector<std::int32_t> sources_;  // of these
};

/// The ids that this rank looks up in a step. Blocks say which part of the arrays is theirs; the
/// arrays belong to the batch and to its InputStep, and hold until the next exchange_counts().
struct IncomingIds {
  IncomingBlocks blocks;                  ///< of own slots
  std::vector<IncomingBlock> replicated;  ///< [replicated slots], from this rank alone
  std::vector<IncomingBlock> fetched;     ///< [F] this rank's own, of features of fetched tables
  std::array<IdArrays, 4> arrays;         ///< by IdOrigin
  const std::int32_t* parts = nullptr;    ///< global part of each bag, on the device

  [[nodiscard]] const IdArrays& arrays_of(const IncomingBlock& block) const {
    return arrays[static_cast<std::size_t>(block.origin)];
  }

  /// Returns the bags of `run`, which is block.lookup or block.gradient, as pointers into the
  /// arrays. Nothing is copied.
  [[nodiscard]] kernels::Bags bags(const IncomingBlock& block, const BagRun& run) const {
    const IdArrays& from = arrays_of(block);
    return {.ids = from.ids,
            .offsets = from.offsets + run.offsets_begin,
            .weights = block.weighted ? from.weights : nullptr,
            .bags = run.bags};
  }
};

}  // namespace weft::sharding
