#include "weft/sharding/vector_layout.h"

#include "weft/base/at.h"
#include "weft/layout/feature_vectors.h"

namespace weft::sharding {

VectorLayout::VectorLayout(const Paths& paths, Delivery delivery)
    : paths_(paths), routing_(paths.routing()), rank_(paths.rank()), delivery_(delivery) {
}

void VectorLayout::prepare(const InputStep& input, OutputStep& step) const {
  place_served(input, step);
  place_asked(input, step);
}

void VectorLayout::place_served(const InputStep& input, OutputStep& step) const {
  step.blocks = &input.incoming.blocks;
  step.served_places.resize(at(step.blocks->size() + routing_.num_slots(routing_.replicated())));
  layout::ServedFloats<std::int64_t> next;
  const auto place = [&](const SlotAddress& address, std::int64_t source) {
    step.served_places[served_index(step, address, source)] = next;
    if (paths_.of(address, source).block(address, source).moves_vectors()) {
      const IncomingBlock& block = input.block(address, source);
      next.add(block.vectors, block.gradients, routing_.kind(address).dim());
    }
    if (routing_.micro_batches.count() > 1) {
      next.join();
    }
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    step.served_run[at(r)].begin = next.vectors;
    for (const ArrivedSlot& one : input.served.arrived_of(r)) {
      place({rank_, one.slot}, r);
    }
    if (r == rank_) {
      for_slots(routing_, rank_, [&](const SlotAddress& address) { place(address, r); });
      for_slots(routing_, routing_.replicated(),
                [&](const SlotAddress& address) { place(address, r); });
    }
    step.served_run[at(r)].end = next.vectors;
  }
  step.served.resize_for(next.buffer());
}

void VectorLayout::place_asked(const InputStep& input, OutputStep& step) const {
  const layout::VectorExchange exchange{.encoded = step.is_decoded(),
                                        .copied = delivery_ == Delivery::kCopied};
  std::int64_t received = 0;
  step.asked_begin.resize(at(input.asked.num_places));
  step.arrived_at.assign(at(input.asked.num_places), nullptr);
  std::int64_t floats = 0;
  const auto place = [&](const SlotAddress& address, std::int64_t where) {
    const bool has_place = exchange.has_asked(paths_.of(address, rank_).block(address, rank_));
    step.asked_begin[at(where)] = floats;
    floats += has_place ? input.asked.slots[at(where)].vectors * routing_.kind(address).dim() : 0;
  };
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    floats = 0;
    if (r == rank_) {
      const auto own = [&](const SlotAddress& address) {
        place(address, input.asked.place(address));
      };
      for_slots(routing_, r, own);
      for_slots(routing_, routing_.replicated(), own);
    } else {
      input.asked.for_slots_with_ids(r, place);
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

std::size_t VectorLayout::served_index(const OutputStep& step,
                                       const SlotAddress& address,
                                       std::int64_t source) const {
  return at(address.server == routing_.replicated() ? step.blocks->size() + address.slot
                                                    : step.blocks->place(address.slot, source));
}

VectorPlace VectorLayout::output(const OutputStep& step,
                                 const SlotAddress& address,
                                 std::int64_t source) const {
  const SlotKind& slot = routing_.kind(address);
  if (!paths_.of(address, source).block(address, source).moves_vectors()) {
    return step.matrices.vectors_of(slot);
  }
  return {step.served.as<float>() + step.served_places[served_index(step, address, source)].vectors,
          slot.dim()};
}

float* VectorLayout::asked(const OutputStep& step,
                           const SlotAddress& address,
                           std::int64_t place) const {
  const std::int64_t from = address.server == routing_.replicated() ? rank_ : address.server;
  auto* const all = step.asked.as<float>();
  return all == nullptr ? nullptr
                        : all + step.asked_run[at(from)].begin + step.asked_begin[at(place)];
}

VectorPlace VectorLayout::gradient(const OutputStep& step,
                                   const SlotAddress& address,
                                   std::int64_t source) const {
  const SlotKind& slot = routing_.kind(address);
  if (!gradient_travels(address, source)) {
    return step.matrices.gradients_of(slot);
  }
  return {
      step.served.as<float>() + step.served_places[served_index(step, address, source)].gradients,
      slot.dim()};
}

bool VectorLayout::gradient_travels(const SlotAddress& address, std::int64_t source) const {
  return paths_.of(address, source).block(address, source).moves_gradients();
}

}  // namespace weft::sharding
