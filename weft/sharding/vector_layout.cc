#include "weft/sharding/vector_layout.h"

#include "weft/base/at.h"
#include "weft/layout/feature_vectors.h"
#include "weft/sharding/turns_ahead.h"

namespace weft::sharding {
namespace {

PeerCut peer_cut_of(const Range& vectors, const Range& gradients) {
  return {.vectors_begin = static_cast<std::int32_t>(vectors.begin),
          .vectors_end = static_cast<std::int32_t>(vectors.end),
          .gradients_begin = static_cast<std::int32_t>(gradients.begin),
          .gradients_end = static_cast<std::int32_t>(gradients.end)};
}

}  // namespace

VectorLayout::VectorLayout(const Paths& paths, Delivery delivery)
    : paths_(paths), routing_(paths.routing()), rank_(paths.rank()), delivery_(delivery) {
  for (const SlotKind& slot : routing_.kinds) {
    flows_.push_back({.dim = static_cast<std::int32_t>(slot.dim()),
                      .block = {.path = slot.path, .own = false, .sequence = slot.sequence}});
  }
}

void VectorLayout::prepare(const InputStep& input, OutputStep& step) const {
  place_served(input, step);
  place_asked(input, step);
}

void VectorLayout::place_served(const InputStep& input, OutputStep& step) const {
  step.served_places.resize(
      at(input.incoming.blocks.size() + routing_.num_slots(routing_.replicated())));
  step.peer_places.resize(input.served.arrived.size());
  step.peer_cuts.resize(input.served.arrived.size() * at(routing_.micro_batches.count()));
  const std::int64_t all = std::ssize(input.served.arrived);
  layout::ServedFloats<std::int64_t> next;
  const bool is_cut = routing_.micro_batches.count() > 1;
  const auto place = [&](std::int64_t vectors, std::int64_t gradients, bool moves,
                         std::int64_t dim) {
    if (moves) {
      next.add(vectors, gradients, dim);
    }
    if (is_cut) {
      next.join();
    }
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    step.served_run[at(r)].begin = next.vectors;
    const Range arrivals = input.served.arrivals_of(r);
    for (std::int64_t i = arrivals.begin; i < arrivals.end; ++i) {
      if (i + kTurnsAhead < all) {
        const std::int64_t ahead = input.served.arrival_blocks[at(i + kTurnsAhead)];
        __builtin_prefetch(&step.served_places[at(ahead)], 1);
        if (is_cut) {
          input.incoming.blocks.prefetch(ahead);
        }
      }
      const PeerFlow& moves = flow_of({rank_, input.served.arrived[at(i)].slot});
      step.peer_places[at(i)] = step.served_places[at(input.served.arrival_blocks[at(i)])] = next;
      const ArrivedVectors& has = input.served.arrival_vectors[at(i)];
      place(has.vectors, has.gradients, moves.block.moves_vectors(), moves.dim);
      cut_peer(input, i, step);
    }
    if (r == rank_) {
      for_served(input, r, [&](const ServedBlock& one) {
        step.served_places[at(one.place)] = next;
        place(one.block.vectors, one.block.gradients, vector_travels(one.address, r),
              routing_.kind(one.address).dim());
      });
    }
    step.served_run[at(r)].end = next.vectors;
  }
  step.served.resize_for(next.buffer());
}

/// What the micro-batches have of a block that another rank asks.
void VectorLayout::cut_peer(const InputStep& input, std::int64_t arrival, OutputStep& step) const {
  const std::int64_t cuts = routing_.micro_batches.count();
  if (cuts == 1) {
    const ArrivedVectors& all = input.served.arrival_vectors[at(arrival)];
    step.peer_cuts[at(arrival)] = {.vectors_end = all.vectors, .gradients_end = all.gradients};
    return;
  }
  const ServedBlock of = input.arrived_block(arrival);
  const SlotPath& path = paths_.of(of.address, of.source);
  for (std::int64_t cut = 0; cut < cuts; ++cut) {
    const BlockCut some = path.served_cut(input, of, cut);
    step.peer_cuts[at(arrival * cuts + cut)] = peer_cut_of(some.vectors, some.gradients);
  }
}

const PeerCut& VectorLayout::peer_cut(const OutputStep& step,
                                      std::int64_t arrival,
                                      std::int64_t cut) const {
  return step.peer_cuts[at(arrival * routing_.micro_batches.count() + cut)];
}

void VectorLayout::add_pieces(const InputStep& input,
                              const OutputStep& step,
                              std::int64_t rank,
                              std::int64_t cut,
                              Flow flow,
                              PeerLanes& lanes) const {
  const bool forward = flow == Flow::kVectors;
  const auto add = [&](float* rows, const Range& some, std::int64_t dim) {
    lanes.add({rows + some.begin * dim, 4 * some.size() * dim});
  };
  if (rank == rank_) {
    for_served(input, rank, [&](const ServedBlock& one) {
      if (forward ? vector_travels(one.address, rank) : gradient_travels(one.address, rank)) {
        const BlockCut some = paths_.served_cut(input, one, cut);
        add(forward ? output(step, one).data : gradient(step, one).data,
            forward ? some.vectors : some.gradients, routing_.kind(one.address).dim());
      }
    });
    return;
  }
  const Range arrivals = input.served.arrivals_of(rank);
  for (std::int64_t i = arrivals.begin; i < arrivals.end; ++i) {
    const PeerFlow& moves = flow_of({rank_, input.served.arrived[at(i)].slot});
    if (forward ? moves.block.moves_vectors() : moves.block.moves_gradients()) {
      const layout::ServedFloats<std::int64_t>& place = step.peer_places[at(i)];
      const PeerCut& some = peer_cut(step, i, cut);
      add(step.served.as<float>() + (forward ? place.vectors : place.gradients),
          forward ? Range{some.vectors_begin, some.vectors_end}
                  : Range{some.gradients_begin, some.gradients_end},
          moves.dim);
    }
  }
}

void VectorLayout::place_asked(const InputStep& input, OutputStep& step) const {
  const layout::VectorExchange exchange{.encoded = step.is_decoded(),
                                        .copied = delivery_ == Delivery::kCopied};
  const std::int64_t cuts = routing_.micro_batches.count();
  step.asked_cuts.resize(cuts == 1 ? 0 : at(input.asked.server_begins.back() * cuts));
  std::int64_t received = 0;
  step.asked_begin.resize(at(input.asked.num_places));
  step.arrived_at.assign(at(input.asked.num_places), nullptr);
  std::int64_t floats = 0;
  const auto place = [&](bool has_place, std::int64_t dim, std::int64_t where) {
    step.asked_begin[at(where)] = floats;
    floats += has_place ? input.asked.slots[at(where)].vectors * dim : 0;
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    floats = 0;
    if (r == rank_) {
      const auto own = [&](const SlotAddress& address) {
        place(exchange.has_asked(paths_.of(address, r).block(address, r)),
              routing_.kind(address).dim(), input.asked.place(address));
      };
      for_slots(routing_, r, own);
      for_slots(routing_, routing_.replicated(), own);
    } else {
      std::int64_t number = input.asked.server_begins[at(r)];
      input.asked.for_slots_with_ids(r, [&](const SlotAddress& address, std::int64_t where) {
        const PeerFlow& moves = flow_of(address);
        place(exchange.has_asked(moves.block), moves.dim, where);
        if (cuts > 1) {
          cut_asked(input, address, where, number++, step);
        }
      });
    }
    const bool lies_here = r != rank_ || exchange.has_own();
    const std::int64_t begin = lies_here ? received : 0;
    received += lies_here ? floats : 0;
    step.asked_run[at(r)] = {begin, begin + floats};
  }
  if (exchange.keeps_asked()) {
    step.asked.resize_for(layout::vectors(received, 1));
  }
}

/// What the micro-batches have of a slot that this rank asks of another.
void VectorLayout::cut_asked(const InputStep& input,
                             const SlotAddress& address,
                             std::int64_t place,
                             std::int64_t number,
                             OutputStep& step) const {
  const std::int64_t cuts = routing_.micro_batches.count();
  const SlotPath& path = paths_.of(address, rank_);
  for (std::int64_t cut = 0; cut < cuts; ++cut) {
    const AskedCut some = path.asked_cut(input, address, input.asked.slot_at(place), cut);
    step.asked_cuts[at(number * cuts + cut)] = peer_cut_of(some.vectors, some.gradients);
  }
}

AskedCut VectorLayout::asked_cut(const InputStep& input,
                                 const OutputStep& step,
                                 const AskedPlace& of,
                                 std::int64_t cut) const {
  const AskedSlot& asked = input.asked.slot_at(of.place);
  const std::int64_t cuts = routing_.micro_batches.count();
  if (cuts == 1) {
    return {.vectors = {0, asked.vectors}, .gradients = {0, asked.gradients}};
  }
  if (of.number < 0) {
    return paths_.of(of.address, rank_).asked_cut(input, of.address, asked, cut);
  }
  const PeerCut& known = step.asked_cuts[at(of.number * cuts + cut)];
  return {.vectors = {known.vectors_begin, known.vectors_end},
          .gradients = {known.gradients_begin, known.gradients_end}};
}

VectorPlace VectorLayout::output(const OutputStep& step, const ServedBlock& of) const {
  if (!vector_travels(of.address, of.source)) {
    return step.matrices.vectors_of(routing_.kind(of.address));
  }
  return {step.served.as<float>() + step.served_places[at(of.place)].vectors,
          flow_of(of.address).dim};
}

float* VectorLayout::asked(const OutputStep& step,
                           const SlotAddress& address,
                           std::int64_t place) const {
  const std::int64_t from = address.server == routing_.replicated() ? rank_ : address.server;
  auto* const all = step.asked.as<float>();
  return all == nullptr ? nullptr
                        : all + step.asked_run[at(from)].begin + step.asked_begin[at(place)];
}

VectorPlace VectorLayout::gradient(const OutputStep& step, const ServedBlock& of) const {
  if (!gradient_travels(of.address, of.source)) {
    return step.matrices.gradients_of(routing_.kind(of.address));
  }
  return {step.served.as<float>() + step.served_places[at(of.place)].gradients,
          flow_of(of.address).dim};
}

}  // namespace weft::sharding
