/// Private to sharding/: where the vectors and gradients of every slot lie in the buffers of their
/// exchange, at both ends.
///
/// Served      per source rank a run of blocks in the order of slots, this rank's ends with
///             replicated slots; what does not move has no room in it. Gradients have a layout of
///             their own in the same memory, which vectors have left by then; where batches are cut
///             into micro-batches, a block's gradients take the place of its own vectors: of those
///             of the same micro-batch, or of all where they come with the last one.
/// Asked       per server a run of vectors, where the exchange does not lend the sender's memory;
///             encoded ones have room where they are partial sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"
#include "weft/sharding/paths/paths.h"

namespace weft::sharding {

/// How the exchange of vectors moves them.
enum class Delivery : std::uint8_t {
  kLent,  ///< the receiver reads the sender's memory
  kCopied,
};

/// Calls visit(address) for all slots of a server.
template <typename Visit>
void for_slots(const Routing& routing, std::int64_t server, const Visit& visit) {
  const std::int64_t slots = routing.num_slots(server);
  for (std::int64_t j = 0; j < slots; ++j) {
    visit(SlotAddress{server, j});
  }
}

/// A slot that this rank asks, found.
struct AskedPlace {
  SlotAddress address;
  std::int64_t place = 0;    ///< AskedIds::place()
  std::int64_t number = -1;  ///< in AskedIds::server_slots; -1 where this rank serves itself
};

class VectorLayout {
 public:
  /// `paths` outlives it.
  VectorLayout(const Paths& paths, Delivery delivery);

  /// Places all blocks of the batch of `input`, and sizes the buffers.
  void prepare(const InputStep& input, OutputStep& step) const;

  /// Calls visit(block) for the blocks of this rank's slots that have samples of `source`, in the
  /// order of the wire: of its own all, replicated ones behind the others.
  template <typename Visit>
  void for_served(const InputStep& input, std::int64_t source, const Visit& visit) const {
    const Range arrivals = input.served.arrivals_of(source);
    for (std::int64_t i = arrivals.begin; i < arrivals.end; ++i) {
      visit(input.arrived_block(i));
    }
    if (source != rank_) {
      return;
    }
    for (const std::int64_t server : {rank_, routing_.replicated()}) {
      for_slots(routing_, server,
                [&](const SlotAddress& address) { visit(input.served_block(address, source)); });
    }
  }

  /// What travels between a server of vectors and the rank of their samples.
  enum class Flow : std::uint8_t { kVectors, kGradients };

  /// Adds where a micro-batch's vectors for a rank lie, or its gradients from there, a piece per
  /// slot.
  void add_pieces(const InputStep& input,
                  const OutputStep& step,
                  std::int64_t rank,
                  std::int64_t cut,
                  Flow flow,
                  PeerLanes& lanes) const;

  /// Where the server writes the vectors of a block: one per bag of block.lookup, or per id of a
  /// sequence.
  [[nodiscard]] VectorPlace output(const OutputStep& step, const ServedBlock& of) const;

  /// Where the vectors and the gradients begin in OutputStep::served, in floats, of a block from
  /// another rank that has this place.
  [[nodiscard]] static const layout::ServedFloats<std::int64_t>& received(const OutputStep& step,
                                                                          std::int64_t place) {
    return step.served_places[at(place)];
  }

  /// Where the vectors of a slot that this rank asks, which has this AskedIds::place(), are
  /// received, or decoded to be added: from the first of the batch on. Null where the exchange
  /// lends the sender's memory.
  [[nodiscard]] float* asked(const OutputStep& step,
                             const SlotAddress& address,
                             std::int64_t place) const;

  /// What a micro-batch has of a slot that this rank asks: SlotPath::asked_cut(), found out once.
  [[nodiscard]] AskedCut asked_cut(const InputStep& input,
                                   const OutputStep& step,
                                   const AskedPlace& of,
                                   std::int64_t cut) const;

  /// Where it finds the gradients after backward(): one per bag of block.gradient, or per id.
  [[nodiscard]] VectorPlace gradient(const OutputStep& step, const ServedBlock& of) const;

  /// Returns whether vectors of a slot travel from its server to `source`, itself perhaps; the
  /// others are where they belong at once.
  [[nodiscard]] bool vector_travels(const SlotAddress& address, std::int64_t source) const {
    return is_between_ranks(address, source)
               ? flow_of(address).block.moves_vectors()
               : paths_.of(address, source).block(address, source).moves_vectors();
  }

  /// Whether gradients go from `source` to the slot's server, itself perhaps; the others are read
  /// where they are.
  [[nodiscard]] bool gradient_travels(const SlotAddress& address, std::int64_t source) const {
    return is_between_ranks(address, source)
               ? flow_of(address).block.moves_gradients()
               : paths_.of(address, source).block(address, source).moves_gradients();
  }

 private:
  /// PeerFlow is what travels between different ranks of slots of a kind. It is small, so that
  /// loops over many slots find it in a near cache.
  struct PeerFlow {
    std::int32_t dim = 0;
    layout::PathBlock block;
  };

  [[nodiscard]] bool is_between_ranks(const SlotAddress& address, std::int64_t source) const {
    return !routing_.served_by(address, source);
  }

  [[nodiscard]] const PeerFlow& flow_of(const SlotAddress& address) const {
    return flows_[routing_.kind_number(address)];
  }

  void place_served(const InputStep& input, OutputStep& step) const;
  void place_asked(const InputStep& input, OutputStep& step) const;
  void cut_asked(const InputStep& input,
                 const SlotAddress& address,
                 std::int64_t place,
                 std::int64_t number,
                 OutputStep& step) const;
  void cut_peer(const InputStep& input, std::int64_t arrival, OutputStep& step) const;
  [[nodiscard]] const PeerCut& peer_cut(const OutputStep& step,
                                        std::int64_t arrival,
                                        std::int64_t cut) const;

  const Paths& paths_;
  const Routing& routing_;
  std::int64_t rank_;
  Delivery delivery_;
  std::vector<PeerFlow> flows_;  // by kind
};

}  // namespace weft::sharding
