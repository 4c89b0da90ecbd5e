#include "weft/sharding/paths/bag_slots.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/sharding/input_step.h"

namespace weft::sharding {
namespace {

/// Bytes of a block's first piece, which says what bags its ids are of.
std::int64_t bags_bytes(const SlotCounts& counts) {
  return counts.is_listed() ? std::int64_t{counts.bag_bytes} * counts.ids
                            : std::int64_t{counts.length_bytes} * counts.batch;
}

}  // namespace

void BagSlots::narrow_bags(AskedIds& asked, Range places) {
  AskedBags& all = asked.bags;
  std::int32_t* const bags = all.bags(all.sections[at(places.begin)]);
  const AskedSlot& first = asked.slots[at(places.begin)];
  if (first.bag_bytes > 0) {
    narrow(bags, first.ids, first.bag_bytes);
    return;
  }
  const std::int32_t bytes = narrow_lengths(bags, asked.batch.sparse.batch);
  for (std::int64_t p = places.begin; p < places.end; ++p) {
    asked.slots[at(p)].length_bytes = static_cast<std::int16_t>(bytes);
  }
}

void BagSlots::add_pieces(const AskedIds& asked,
                          const SlotAddress& address,
                          std::int64_t place,
                          SlotPieces& pieces) const {
  const SlotKind& slot = routing_.kind(address);
  const AskedSlot& sizes = asked.slots[at(place)];
  const AskedBags::Section& section = asked.bags.sections[at(place)];
  // The sending side only reads.
  auto* const bytes = const_cast<std::byte*>(asked.bags.bytes.data());
  pieces.push_back({bytes + section.bags_at, bags_bytes(asked.wire_counts(sizes))});
  pieces.push_back({bytes + section.ids_at, slot.id_bytes * sizes.ids});
  if (slot.weighted && section.weights_at < 0) {
    const float* const weights = asked.batch.sparse.weights.data() +
                                 asked.batch.sparse.feature(slot.feature).offsets.front();
    pieces.push_back({const_cast<float*>(weights), 4 * sizes.ids});
  } else if (slot.weighted) {
    pieces.push_back({bytes + section.weights_at, 4 * sizes.ids});
  }
}

std::int64_t BagSlots::section_bytes(const SlotKind& slot,
                                     const SlotCounts& counts,
                                     std::int64_t /*source*/) const {
  const std::int64_t id_bytes = slot.id_bytes + (slot.weighted ? 4 : 0);
  return bags_bytes(counts) + id_bytes * counts.ids;
}

/// With room for as many bags as there are samples, or ids where bags are listed: what has no id
/// takes none.
void BagSlots::expect_block(ServedIds& served,
                            const ArrivedBlock& from,
                            IncomingBlock& block) const {
  const std::int64_t ids = from.counts.ids;
  const std::int64_t bags = from.counts.is_listed() ? ids : from.counts.batch;
  block = {.origin = IdOrigin::kReceived,
           .weighted = from.slot->weighted,
           .ids_begin = served.num_ids,
           .num_ids = ids};
  block.rows_read = ids;
  block.parts_begin = served.num_parts;
  block.lookup = block.gradient = {0, served.num_offsets - 1};
  served.num_ids += ids;
  served.num_parts += bags;
  served.num_offsets += bags;
  served.is_weighted |= from.slot->weighted;
}

void BagSlots::add_expected(const ArrivedBlock& from, SlotPieces& pieces) const {
  pieces.push_back({nullptr, bags_bytes(from.counts)});
  pieces.push_back({nullptr, from.slot->id_bytes * from.counts.ids});
  if (from.slot->weighted) {
    pieces.push_back({nullptr, std::int64_t{4} * from.counts.ids});
  }
}

/// Runs of ids; the first one's task unpacks the bags too. Nothing is to be done for a block that
/// has no room for bags.
std::int64_t BagSlots::unpack_tasks(const ArrivedBlock& from) const {
  const std::int64_t runs = task_count(from.counts.ids, kIdsPerTask);
  const bool has_lengths = !from.counts.is_listed() && from.counts.batch > 0;
  return has_lengths ? std::max<std::int64_t>(1, runs) : runs;
}

void BagSlots::unpack(ServedIds& served,
                      const ArrivedBlock& from,
                      std::int64_t task,
                      IncomingBlock& block) const {
  if (task == 0) {
    unpack_bags(served, from, block);
  }
  if (block.num_ids > 0) {
    unpack_ids(served, from, block,
               {task * kIdsPerTask, std::min((task + 1) * kIdsPerTask, block.num_ids)});
  }
}

void BagSlots::unpack_bags(ServedIds& served,
                           const ArrivedBlock& from,
                           IncomingBlock& block) const {
  const comm::Piece& bags = from.pieces[0];
  if (from.counts.is_listed()) {
    visit_width(from.counts.bag_bytes, [&]<typename Bag>(Bag) {
      unpack_listed(served, WireNumbers<Bag>(bags.data), from, block);
    });
  } else if (bags.bytes == 0) {
    const std::int64_t each = block.num_ids / from.counts.batch;
    unpack_lengths(served, [each](std::int64_t) { return each; }, from, block);
  } else {
    visit_width(from.counts.length_bytes, [&]<typename T>(T) {
      const WireNumbers<T> length(bags.data);
      unpack_lengths(
          served, [length](std::int64_t b) { return static_cast<std::int64_t>(length[b]); }, from,
          block);
    });
  }
  block.gradient.bags = block.lookup.bags;
  block.vectors = block.gradients = from.slot->sequence ? block.num_ids : block.lookup.bags;
}

/// A bag of several ids is listed as often.
template <typename Bag>
void BagSlots::unpack_listed(ServedIds& served,
                             const WireNumbers<Bag>& bag_of,
                             const ArrivedBlock& from,
                             IncomingBlock& block) const {
  const Range samples = served.samples_from(from.source);
  std::int32_t* const parts = served.parts.data() + block.parts_begin;
  std::int64_t* const offsets = served.offsets.data() + block.lookup.offsets_begin;
  std::int64_t last = -1;
  std::int64_t bags = 0;
  for (std::int64_t i = 0; i < block.num_ids; ++i) {
    const auto bag = static_cast<std::int64_t>(bag_of[i]);
    if (bag < last || bag >= samples.size()) {
      fail(ErrorCode::kComm, "{}: bag {} of {} is listed behind bag {}", named(from), bag,
           samples.size(), last);
    }
    bags += bag > last ? 1 : 0;
    last = bag;
    parts[bags - 1] = served.part_of(samples.begin + bag);
    offsets[bags] = block.ids_begin + i + 1;
  }
  offsets[block.num_ids] = block.ids_begin + block.num_ids;
  block.lookup.bags = bags;
  if (served.keeps_samples) {
    std::int32_t* const sample = served.samples.data() + block.lookup.offsets_begin;
    for (std::int64_t b = 0; b < bags; ++b) {
      const std::int64_t last_id = offsets[b + 1] - block.ids_begin - 1;
      sample[b] =
          static_cast<std::int32_t>(samples.begin + static_cast<std::int64_t>(bag_of[last_id]));
    }
  }
}

/// Lengths become offsets; empty bags are left out.
template <typename Length>
void BagSlots::unpack_lengths(ServedIds& served,
                              const Length& length,
                              const ArrivedBlock& from,
                              IncomingBlock& block) const {
  const Range samples = served.samples_from(from.source);
  const std::int32_t* const part = served.parts.data() + samples.begin;
  std::int32_t* const parts = served.parts.data() + block.parts_begin;
  std::int64_t* const offsets = served.offsets.data() + block.lookup.offsets_begin;
  std::int64_t offset = 0;  // in the block
  std::int64_t bags = 0;
  for (std::int64_t b = 0; b < samples.size(); ++b) {
    const std::int64_t ids = length(b);
    if (ids > block.num_ids - offset) {
      fail(ErrorCode::kComm, "{}: bag lengths exceed the announced {} ids", named(from),
           block.num_ids);
    }
    offset += ids;
    parts[bags] = part[b];
    bags += ids > 0 ? 1 : 0;
    // An empty bag leaves it as it is; the first offset is that of the block before.
    offsets[std::max<std::int64_t>(bags, 1)] = block.ids_begin + offset;
  }
  if (offset != block.num_ids) {
    fail(ErrorCode::kComm, "{}: bag lengths sum to {}, {} ids announced", named(from), offset,
         block.num_ids);
  }
  offsets[samples.size()] = block.ids_begin + offset;
  block.lookup.bags = bags;
  if (served.keeps_samples) {
    std::int32_t* sample = served.samples.data() + block.lookup.offsets_begin;
    for (std::int64_t b = 0; b < samples.size(); ++b) {
      if (length(b) > 0) {
        *sample++ = static_cast<std::int32_t>(samples.begin + b);
      }
    }
  }
}

void BagSlots::unpack_ids(ServedIds& served,
                          const ArrivedBlock& from,
                          const IncomingBlock& block,
                          Range ids) const {
  widen_ids(from, ids, served.ids.data() + block.ids_begin);
  if (from.slot->weighted) {
    std::memcpy(served.weights.data() + block.ids_begin + ids.begin,
                static_cast<const std::byte*>(from.pieces[2].data) + 4 * ids.begin,
                at(4 * ids.size()));
  }
}

IncomingBlock BagSlots::own_block(const InputStep& input, const SlotAddress& address) const {
  IncomingBlock block = input.asked.own.blocks[input.asked.own_index(address)];
  block.parts_begin = routing_.own_samples(input.asked.batch.global_size, rank_).begin;
  return block;
}

BlockCut BagSlots::served_cut(const InputStep& input,
                              const ServedBlock& of,
                              std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(of.address);
  const IncomingBlock& block = of.block;
  if (is_own(of.source)) {
    if (slot.sequence) {
      return cut_of_all_bags(input, block, true, cut);
    }
    // One for each bag of lookups.
    const Range vectors = asked_cut(input, of.address, input.asked.slot(of.address), cut).vectors;
    return {.bags = vectors, .vectors = vectors, .gradients = vectors};
  }
  const Range parts = runs_.cut_parts(of.source, cut);
  const std::int32_t* const first = input.served.parts.data() + block.parts_begin;
  const std::int32_t* const last = first + block.lookup.bags;
  const Range bags{std::lower_bound(first, last, parts.begin) - first,
                   std::lower_bound(first, last, parts.end) - first};
  const Range vectors = slot.sequence ? input.values_of(block.lookup, block.origin, bags) : bags;
  return {.bags = bags, .vectors = vectors, .gradients = vectors};
}

AskedCut BagSlots::asked_cut(const InputStep& input,
                             const SlotAddress& address,
                             const AskedSlot& asked,
                             std::int64_t cut) const {
  if (asked.rows != nullptr && routing_.micro_batches.count() == 1) {
    return {.vectors = {0, asked.vectors}, .gradients = {0, asked.vectors}};
  }
  const SlotKind& slot = routing_.kind(address);
  Range rows = input.asked.cut_bags[at(cut)];
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
  const Slot slot = routing_.slot(address);
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
  VectorDraws draws = own_gradient_draws(input, routing_.kind(address));
  draws.places = input.asked.slot(address).gradient_rows;
  return draws;
}

}  // namespace weft::sharding
