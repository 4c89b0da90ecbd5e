/// Private to planner/: what the ranks of a plan have of vectors and gradients on their way between
/// shards and samples, added up block by block; weft/layout/feature_vectors.h has the lengths.
///
/// Of a batch in micro-batches vectors have room for all of it, and what is encoded for the largest
/// micro-batch: taken to be the same one for all blocks, as it is where sizes are equal.
///
/// Cost: add_slot() O(kinds of ranks), the rest O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/layout/feature_vectors.h"
#include "weft/planner/step_counts.h"
#include "weft/spec/config.h"

namespace weft::planner {

/// What slots have in common whose blocks are added.
struct VectorSlot {
  layout::Path path = layout::Path::kWholeBags;
  bool sequence = false;
  std::int64_t columns = 0;
};

/// Vectors of a slot for one rank's samples, and gradients that come back.
struct VectorBlock {
  Expected vectors, gradients;
  /// Shares that one micro-batch has, at most: what is encoded at once.
  double cut_of_vectors = 1.0, cut_of_gradients = 1.0;
};

class ExchangeLengths {
 public:
  /// Where what others have is read, and how a batch is cut.
  struct Options {
    bool copied = false;    ///< see layout::VectorExchange
    bool has_cuts = false;  ///< into several micro-batches
  };

  /// All outlive it.
  ExchangeLengths(const spec::Codecs& codecs, const RankKinds& ranks, const Options& options);

  /// Where what others have is read: see layout::VectorExchange.
  [[nodiscard]] bool copied() const { return exchange_.copied; }

  /// Bytes of an encoded vector, and of its gradient.
  [[nodiscard]] std::int64_t vector_bytes(std::int64_t columns) const;
  [[nodiscard]] std::int64_t gradient_bytes(std::int64_t columns) const;

  /// A slot of `rank`, and `blocks` ([kinds]) of it for the samples of each rank of a kind.
  void add_slot(std::size_t rank, const VectorSlot& slot, std::span<const VectorBlock> blocks);

  /// A slot that every rank has for itself alone, and the block of its samples.
  void add_own(std::size_t rank, const VectorSlot& slot, const VectorBlock& block);

  /// Rounds what does not move from a rank's slot to its own samples in the matrix of `use`.
  void add_rounding(std::size_t rank, const VectorSlot& slot, const FeatureUse& use);

  /// Returns how many slots each rank has for all ranks: [ranks].
  [[nodiscard]] std::vector<std::int64_t> slots() const;

  /// What buffers take whose device has this `growth`: of vectors as they are, and encoded.
  [[nodiscard]] double held_vectors(std::size_t rank, double growth) const;
  [[nodiscard]] double held_encoded(std::size_t rank, double growth) const;

 private:
  /// What comes to a rank's samples, and leaves them.
  struct SampleEnd {
    Expected asked;                      ///< floats
    Expected vectors_in, gradients_out;  ///< encoded bytes

    SampleEnd& operator+=(const SampleEnd& other);

    friend SampleEnd operator-(const SampleEnd& a, const SampleEnd& b) {
      return {.asked = a.asked - b.asked,
              .vectors_in = a.vectors_in - b.vectors_in,
              .gradients_out = a.gradients_out - b.gradients_out};
    }
  };

  /// What leaves a rank's slots, and comes back.
  struct SlotEnd {
    layout::ServedFloats<Expected> served;
    Expected vectors_out, gradients_in;           ///< encoded bytes
    Expected vectors_rounded, gradients_rounded;  ///< of matrices
    SampleEnd own;           ///< of its own slots, less what another rank would have of them
    std::int64_t slots = 0;  ///< for all ranks
  };

  void serve(std::size_t rank,
             const layout::PathBlock& way,
             const VectorBlock& block,
             std::int64_t columns,
             std::int64_t ranks);
  [[nodiscard]] SampleEnd sample_end(const layout::PathBlock& way,
                                     const VectorBlock& block,
                                     std::int64_t columns) const;
  [[nodiscard]] SampleEnd samples_of(std::size_t rank) const;

  const spec::Codecs& codecs_;
  const RankKinds& ranks_;
  layout::VectorExchange exchange_;
  bool has_cuts_;
  std::vector<SlotEnd> ends_;           // [ranks]
  std::vector<SampleEnd> sample_ends_;  // [kinds] of all slots, as if of other ranks
};

}  // namespace weft::planner
