#include "weft/sharding/paths/bag_slots.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/sharding/input_step.h"

namespace weft::sharding {
void BagSlots::narrow(AskedIds& asked, std::span<const SlotAddress> addresses) {
  AskedBags& bags = asked.bags;
  const std::int32_t bytes =
      narrow_lengths(bags.lengths(bags.section(addresses.front())), asked.batch.sparse.batch);
  for (const SlotAddress& address : addresses) {
    asked.slot(address).length_bytes = bytes;
  }
}

void BagSlots::add_pieces(const AskedIds& asked,
                          const SlotAddress& address,
                          std::vector<comm::Piece>& pieces) const {
  const Slot& slot = routing_.slot(address);
  const AskedSlot& sizes = asked.slot(address);
  const AskedBags::Section& section = asked.bags.section(address);
  // The sending side only reads.
  auto* const bytes = const_cast<std::byte*>(asked.bags.bytes.data());
  pieces.push_back({bytes + section.lengths_at, sizes.length_bytes * asked.batch.sparse.batch});
  pieces.push_back({bytes + section.ids_at, slot.id_bytes * sizes.ids});
  if (slot.weighted && section.weights_at < 0) {
    const float* const weights = asked.batch.sparse.weights.data() +
                                 asked.batch.sparse.feature(slot.feature).offsets.front();
    pieces.push_back({const_cast<float*>(weights), 4 * sizes.ids});
  } else if (slot.weighted) {
    pieces.push_back({bytes + section.weights_at, 4 * sizes.ids});
  }
}

/// With room for as many bags as there are samples.
void BagSlots::expect_block(ServedIds& served,
                            const ArrivedBlock& from,
                            const SlotCounts& counts,
                            IncomingBlock& block) const {
  block = {.origin = IdOrigin::kReceived, .ids_begin = served.num_ids, .num_ids = counts.ids};
  served.num_ids += counts.ids;
  block.rows_read = counts.ids;
  block.weights_begin = from.slot->weighted ? served.num_weights : -1;
  served.num_weights += from.slot->weighted ? counts.ids : 0;
  block.lookup = block.gradient = {0, served.num_offsets};
  served.num_offsets += counts.batch + 1;
  block.parts_begin = served.num_parts;
  served.num_parts += counts.batch;
}

void BagSlots::add_expected(const ArrivedBlock& from,
                            const SlotCounts& counts,
                            std::vector<comm::Piece>& pieces) const {
  pieces.push_back({nullptr, std::int64_t{counts.length_bytes} * counts.batch});
  pieces.push_back({nullptr, from.slot->id_bytes * counts.ids});
  if (from.slot->weighted) {
    pieces.push_back({nullptr, std::int64_t{4} * counts.ids});
  }
}

/// One for all lengths, then runs of ids.
std::int64_t BagSlots::unpack_tasks(const Slot& /*slot*/, const SlotCounts& counts) const {
  return 1 + task_count(counts.ids, kIdsPerTask);
}

void BagSlots::unpack(ServedIds& served,
                      const ArrivedBlock& from,
                      std::int64_t task,
                      IncomingBlock& block) const {
  if (task == 0) {
    unpack_lengths(served, from, block);
  } else {
    unpack_ids(served, from, block,
               {(task - 1) * kIdsPerTask, std::min(task * kIdsPerTask, block.num_ids)});
  }
}

void BagSlots::unpack_lengths(ServedIds& served,
                              const ArrivedBlock& from,
                              IncomingBlock& block) const {
  const comm::Piece& lengths = from.pieces[0];
  const std::int64_t batch = routing_.own_samples(served.global_size, from.source).size();
  if (lengths.bytes == 0) {
    const std::int64_t each = batch == 0 ? 0 : block.num_ids / batch;
    unpack_bags(served, [each](std::int64_t) { return each; }, from, block);
    return;
  }
  visit_width(lengths.bytes / batch, [&]<typename T>(T) {
    const auto* const length = static_cast<const T*>(lengths.data);
    unpack_bags(
        served, [length](std::int64_t b) { return static_cast<std::int64_t>(length[b]); }, from,
        block);
  });
}

/// Lengths become offsets; empty bags are left out.
template <typename Length>
void BagSlots::unpack_bags(ServedIds& served,
                           const Length& length,
                           const ArrivedBlock& from,
                           IncomingBlock& block) const {
  const Range samples = routing_.own_samples(served.global_size, from.source);
  const std::int32_t* const part = served.parts.data() + samples.begin;
  std::int32_t* const parts = served.parts.data() + block.parts_begin;
  std::int64_t* const offsets = served.offsets.data() + block.lookup.offsets_begin;
  std::int64_t offset = 0;
  std::int64_t bags = 0;
  offsets[0] = 0;
  for (std::int64_t b = 0; b < samples.size(); ++b) {
    const std::int64_t ids = length(b);
    if (ids > block.num_ids - offset) {
      fail(ErrorCode::kComm, "id exchange: bag lengths exceed the announced {} ids", block.num_ids);
    }
    offset += ids;
    parts[bags] = part[b];
    bags += ids > 0 ? 1 : 0;
    offsets[bags] = offset;  // an empty bag leaves it as it is
  }
  if (offset != block.num_ids) {
    fail(ErrorCode::kComm, "id exchange: bag lengths sum to {}, {} ids announced", offset,
         block.num_ids);
  }
  block.lookup.bags = block.gradient.bags = bags;
  if (served.keeps_samples) {
    std::int32_t* sample = served.samples.data() + block.lookup.offsets_begin;
    for (std::int64_t b = 0; b < samples.size(); ++b) {
      if (length(b) > 0) {
        *sample++ = static_cast<std::int32_t>(samples.begin + b);
      }
    }
  }
  block.vectors = block.gradients = from.slot->sequence ? block.num_ids : bags;
}

void BagSlots::unpack_ids(ServedIds& served,
                          const ArrivedBlock& from,
                          const IncomingBlock& block,
                          Range ids) {
  widen_ids(from.pieces[1].data, *from.slot, ids, served.ids.data() + block.ids_begin);
  if (from.slot->weighted) {
    std::memcpy(served.weights.data() + block.weights_begin + ids.begin,
                static_cast<const float*>(from.pieces[2].data) + ids.begin, at(4 * ids.size()));
  }
}

IncomingBlock BagSlots::own_block(const InputStep& input, const SlotAddress& address) const {
  IncomingBlock block = input.asked.own.blocks[input.asked.own_index(address)];
  block.parts_begin = routing_.own_samples(input.asked.batch.global_size, rank_).begin;
  return block;
}

BlockCut BagSlots::served_cut(const InputStep& input,
                              const SlotAddress& address,
                              std::int64_t source,
                              std::int64_t cut) const {
  const Slot& slot = routing_.slot(address);
  const IncomingBlock& block = input.block(address, source);
  if (is_own(source)) {
    if (slot.sequence) {
      return cut_of_all_bags(input, block, true, cut);
    }
    const Range vectors = asked_cut(input, address, cut).vectors;  // one for each bag of lookups
    return {.bags = vectors, .vectors = vectors, .gradients = vectors};
  }
  const Range parts = routing_.cut_parts(source, cut);
  const std::int32_t* const first = input.served.parts.data() + block.parts_begin;
  const std::int32_t* const last = first + block.lookup.bags;
  const Range bags{std::lower_bound(first, last, parts.begin) - first,
                   std::lower_bound(first, last, parts.end) - first};
  const Range vectors = slot.sequence ? input.values_of(block.lookup, block.origin, bags) : bags;
  return {.bags = bags, .vectors = vectors, .gradients = vectors};
}

AskedCut BagSlots::asked_cut(const InputStep& input,
                             const SlotAddress& address,
                             std::int64_t cut) const {
  const Slot& slot = routing_.slot(address);
  const AskedSlot& asked = input.asked.slot(address);
  Range rows = routing_.cut_bags(input.batch().global_size, rank_, cut);
  if (slot.sequence) {
    const IncomingBlock all = input.batch_block(routing_, slot.feature, rank_);
    rows = input.values_of(all.lookup, all.origin, rows);
  }
  if (asked.rows != nullptr) {
    const std::int32_t* const last = asked.rows + asked.vectors;
    rows = {std::lower_bound(asked.rows, last, rows.begin) - asked.rows,
            std::lower_bound(asked.rows, last, rows.end) - asked.rows};
  }
  return {.vectors = rows, .gradients = rows};
}

VectorDraws BagSlots::vector_draws(const InputStep& input,
                                   const SlotAddress& address,
                                   std::int64_t source) const {
  const Slot& slot = routing_.slot(address);
  const IncomingBlock& block = input.block(address, source);
  const kernels::Bags bags = input.incoming.bags(block, block.lookup);
  VectorDraws draws{.ids = bags.ids, .offsets = bags.offsets, .rows = slot.rows};
  if (slot.sequence) {
    draws.of = VectorDraws::Of::kRows;
    draws.key = keys_.rows[at(slot.table)];
    return draws;
  }
  draws.of = VectorDraws::Of::kBags;
  draws.key = keys_.vectors[at(slot.feature)];
  if (is_own(source)) {
    draws.first_sample = routing_.own_samples(input.asked.batch.global_size, rank_).begin;
    draws.places = input.asked.slot(address).rows;
  } else {
    draws.places = input.served.samples_of(block);
  }
  return draws;
}

VectorDraws BagSlots::gradient_draws(const InputStep& input, const SlotAddress& address) const {
  VectorDraws draws = own_gradient_draws(input, routing_.slot(address));
  draws.places = input.asked.slot(address).gradient_rows;
  return draws;
}

}  // namespace weft::sharding
