#include "weft/sharding/id_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/listed_bags.h"
#include "weft/sharding/id_lanes.h"
#include "weft/sharding/turns_ahead.h"

namespace weft::sharding {
namespace {

/// Asks for what the sender of the block with this number has announced, if there is one.
void prefetch_arrival(const ServedIds& served, std::int64_t block) {
  if (block < std::ssize(served.block_arrivals) && served.block_arrivals[at(block)] >= 0) {
    prefetch(&served.arrived[at(served.block_arrivals[at(block)])]);
  }
}

/// Asks for what it has sent.
void prefetch_section(const ServedIds& served, std::int64_t block) {
  if (block < std::ssize(served.block_arrivals) && served.block_arrivals[at(block)] >= 0) {
    __builtin_prefetch(served.arrived[at(served.block_arrivals[at(block)])].section);
  }
}

}  // namespace

RunParts::RunParts(const Routing& routing) : cuts_(routing.micro_batches.count()) {
  begins_.push_back(0);
  for (std::int64_t r = 0; r < routing.ranks; ++r) {
    const std::vector<Range> nodes = routing.nodes(r);
    const std::vector<Range> runs = routing.runs(r);
    auto node = nodes.begin();
    for (const Range& run : runs) {
      node += run.begin < node->end ? 0 : 1;
      parts_.push_back(static_cast<std::int32_t>(node->begin));
    }
    for (const Range& one : nodes) {
      parts_.push_back(static_cast<std::int32_t>(one.begin));
    }
    begins_.push_back(static_cast<std::int64_t>(parts_.size()));
    cut_parts_.push_back(static_cast<std::int32_t>(routing.own_parts(r).begin));
    std::vector<std::int64_t>& cuts = cut_begins_.emplace_back(1, 0);
    for (std::int64_t cut = 0; cut < routing.micro_batches.count(); ++cut) {
      const std::int64_t end = routing.cut_parts(r, cut).end;
      const auto behind = std::find_if(runs.begin(), runs.end(),
                                       [&](const Range& run) { return run.begin >= end; });
      cuts.push_back(behind - runs.begin());
      cut_parts_.push_back(static_cast<std::int32_t>(end));
    }
  }
}

IdReceiver::IdReceiver(const Paths& paths, bool lent, std::vector<int> world_ranks)
    : paths_(paths),
      routing_(paths.routing()),
      slots_(routing_.slots_of(paths.rank())),
      lent_(lent),
      packed_(layout::packs_id_lanes(routing_.ranks)),
      world_ranks_(std::move(world_ranks)) {
  slot_piece_.push_back(0);
  for (const Slot& slot : slots_) {
    slot_piece_.push_back(slot_piece_.back() + (slot.weighted ? 3 : 2));
  }
}

/// The part of each sample, made again only when the size of the global batch changes.
void IdReceiver::find_parts(std::int64_t global_size, ServedIds& served) const {
  const std::span<const std::int32_t> runs = paths_.runs().parts();
  served.global_size = global_size;
  served.num_parts = global_size + static_cast<std::int64_t>(runs.size());
  if (global_size == served.parts_of) {
    return;
  }
  served.parts_of = global_size;
  served.part_size = global_size % routing_.parts == 0
                         ? static_cast<std::uint32_t>(global_size / routing_.parts)
                         : 0;
  grow(served.parts, served.num_parts);
  for (std::int64_t part = 0; part < routing_.parts; ++part) {
    const Range samples = part_samples(global_size, routing_.parts, part);
    std::fill_n(served.parts.begin() + samples.begin, samples.size(),
                static_cast<std::int32_t>(part));
  }
  std::copy(runs.begin(), runs.end(), served.parts.begin() + global_size);
  served.sample_begins.clear();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    served.sample_begins.push_back(routing_.own_samples(global_size, r).begin);
  }
  served.sample_begins.push_back(routing_.own_samples(global_size, routing_.ranks - 1).end);
}

/// Of the `batch` samples of a rank.
void IdReceiver::check(std::int64_t batch,
                       std::int64_t source,
                       std::int64_t slot,
                       const SlotCounts& counts) const {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::kComm, "id exchange: rank {} announces {} for {}", world_ranks_[at(source)],
         what, routing_.name_of(slots_[at(slot)]));
  };
  const bool is_width = counts.length_bytes == 0 || counts.length_bytes == 1 ||
                        counts.length_bytes == 2 || counts.length_bytes == 4;
  if (counts.batch != batch || counts.ids < 0 || !is_width || (batch == 0 && counts.ids > 0)) {
    refuse(fmt::format("{} samples with {} ids and lengths of {} bytes, {} samples expected,",
                       counts.batch, counts.ids, counts.length_bytes, batch));
  }
  const bool may_list = slots_[at(slot)].fetch < 0 && counts.length_bytes == 0 &&
                        counts.bag_bytes == layout::listed_bag_bytes(batch);
  if (counts.bag_bytes != 0 && !may_list) {
    refuse(fmt::format("a list of bags of {} bytes each beside lengths of {} bytes",
                       counts.bag_bytes, counts.length_bytes));
  }
  if (counts.packed_bytes < 0) {
    refuse(fmt::format("{} bytes of packed rows", counts.packed_bytes));
  }
}

void IdReceiver::take_counts(std::int64_t global_size,
                             std::int64_t source,
                             std::span<const SlotCounts> counts,
                             ServedIds& served) const {
  if (source == 0) {
    served.arrived.clear();
    served.arrived_begins.assign(at(routing_.ranks) + 1, 0);
  }
  const std::int64_t batch = routing_.own_samples(global_size, source).size();
  for (std::int64_t j = 0; j < std::ssize(counts) && source != paths_.rank(); ++j) {
    const SlotCounts& one = counts[at(j)];
    check(batch, source, j, one);
    if (one.ids > 0) {
      served.arrived.push_back({.source = static_cast<std::int32_t>(source),
                                .slot = static_cast<std::int32_t>(j),
                                .counts = one});
    }
  }
  served.arrived_begins[at(source) + 1] = std::ssize(served.arrived);
}

void IdReceiver::lay_out(std::int64_t global_size,
                         ServedIds& served,
                         IncomingBlocks& blocks) const {
  find_parts(global_size, served);
  served.num_ids = 0;
  served.is_weighted = false;
  served.num_offsets = 1;  // where the first block begins
  served.tasks.clear();
  expect_blocks(served, blocks);
  for (std::int64_t b = 0; b < blocks.size(); ++b) {
    const std::int32_t arrival = served.block_arrivals[at(b)];
    prefetch_arrival(served, b + kTurnsAhead);
    if (arrival < 0) {
      served.tasks.add(0);
      continue;
    }
    const ArrivedSlot& arrived = served.arrived[at(arrival)];
    const SlotPath& path = path_of(arrived);
    const ArrivedBlock from = block_from(arrived);
    path.expect_block(served, from, blocks.at_place(b));
    served.tasks.add(path.unpack_tasks(from));
  }
  grow(served.ids, served.num_ids);
  grow(served.offsets, served.num_offsets);
  served.offsets.front() = 0;
  grow(served.weights, served.is_weighted ? served.num_ids : 0);
  grow(served.parts, served.num_parts);
  grow(served.samples, served.keeps_samples ? served.num_offsets : 0);
  if (!packed_) {
    describe_lanes(served);
  }
}

/// From the order of messages, by source, to that of blocks, by slot.
void IdReceiver::expect_blocks(ServedIds& served, IncomingBlocks& blocks) const {
  const std::int64_t slots = std::ssize(slots_);
  blocks.begin(slots);
  for (const ArrivedSlot& one : served.arrived) {
    blocks.expect(one.slot);
  }
  for (std::int64_t j = 0; j < slots; ++j) {
    blocks.expect(j);  // of this rank's samples
  }
  blocks.make();
  served.block_arrivals.assign(at(blocks.size()), -1);
  served.arrival_blocks.resize(served.arrived.size());
  served.arrival_vectors.resize(served.arrived.size());
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const Range arrivals = served.arrivals_of(r);
    for (std::int64_t i = arrivals.begin; i < arrivals.end; ++i) {
      const std::int64_t place = blocks.add(served.arrived[at(i)].slot, r);
      served.block_arrivals[at(place)] = static_cast<std::int32_t>(i);
      served.arrival_blocks[at(i)] = static_cast<std::int32_t>(place);
    }
    for (std::int64_t j = 0; r == paths_.rank() && j < slots; ++j) {
      blocks.add(j, r);
    }
  }
}

void IdReceiver::expect_lanes(std::span<const std::int64_t> lane_bytes, ServedIds& served) const {
  served.lanes.clear();
  for (const std::int64_t bytes : lane_bytes) {
    if (bytes > 0) {
      served.lanes.add({nullptr, bytes});
    }
    served.lanes.end_lane();
  }
  receive_pieces(served);
}

void IdReceiver::read_lanes(ThreadPool& pool,
                            std::int64_t global_size,
                            std::span<const comm::Lane> arrived,
                            ServedIds& served) const {
  const auto bytes_of = [&](std::int64_t r) -> std::span<const std::byte> {
    if (r == paths_.rank() || arrived[at(r)].pieces.empty()) {
      return {};
    }
    const comm::Piece& run = arrived[at(r)].pieces.front();
    return {static_cast<const std::byte*>(run.data), at(run.bytes)};
  };
  served.arrived_begins.assign(at(routing_.ranks) + 1, 0);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    served.arrived_begins[at(r) + 1] =
        served.arrived_begins[at(r)] +
        marked_slots(bytes_of(r), std::ssize(slots_), world_ranks_[at(r)]);
  }
  served.arrived.resize(at(served.arrived_begins.back()));
  pool.parallel_for(routing_.ranks, [&](std::int64_t r) {
    if (!bytes_of(r).empty()) {
      const std::int64_t begin = served.arrived_begins[at(r)];
      read_lane(global_size, r, bytes_of(r),
                std::span(served.arrived)
                    .subspan(at(begin), at(served.arrived_begins[at(r) + 1] - begin)));
    }
  });
}

void IdReceiver::read_lane(std::int64_t global_size,
                           std::int64_t source,
                           std::span<const std::byte> lane,
                           std::span<ArrivedSlot> arrived) const {
  const int sender = world_ranks_[at(source)];
  const std::int64_t batch = routing_.own_samples(global_size, source).size();
  std::int64_t next = read_slot_counts(lane, slots_, batch, sender, arrived);
  for (ArrivedSlot& one : arrived) {
    one.source = static_cast<std::int32_t>(source);
    check(batch, source, one.slot, one.counts);
    one.section = lane.data() + std::min(next, std::ssize(lane));  // beyond it is refused below
    const Slot& slot = slots_[at(one.slot)];
    next += paths_.between_ranks(slot).section_bytes(slot, one.counts, source);
  }
  if (next != std::ssize(lane)) {
    fail(ErrorCode::kComm, "id exchange: rank {}: {} bytes of ids have come, {} announced", sender,
         lane.size(), next);
  }
}

/// Of a slot without ids all pieces are empty.
void IdReceiver::describe_lanes(ServedIds& served) const {
  served.lanes.clear();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const std::span<comm::Piece> pieces =
        served.lanes.add_empty(r == paths_.rank() ? 0 : slot_piece_.back());
    served.lanes.end_lane();
    for (const ArrivedSlot& one : served.arrived_of(r)) {
      SlotPieces expected;
      path_of(one).add_expected(block_from(one), expected);
      std::copy(expected.all().begin(), expected.all().end(),
                pieces.begin() + static_cast<std::ptrdiff_t>(slot_piece_[at(one.slot)]));
    }
  }
  receive_pieces(served);
}

/// Gives the pieces memory, where they are received.
void IdReceiver::receive_pieces(ServedIds& served) const {
  if (lent_) {
    return;
  }
  std::int64_t bytes = 0;
  for (const comm::Piece& piece : served.lanes.all()) {
    bytes += (piece.bytes + 7) / 8 * 8;  // keeps every section aligned
  }
  grow(served.bytes, bytes);
  std::byte* next = served.bytes.data();
  for (comm::Piece& piece : served.lanes.all()) {
    piece.data = next;
    next += (piece.bytes + 7) / 8 * 8;
  }
}

void IdReceiver::unpack(ThreadPool& pool,
                        std::span<const comm::Lane> arrived,
                        ServedIds& served,
                        IncomingBlocks& blocks) const {
  served.tasks.run(pool, [&](std::int64_t b, std::int64_t task) {
    prefetch_arrival(served, b + 2 * kTurnsAhead);
    prefetch_section(served, b + kTurnsAhead);
    const ArrivedSlot& one = served.arrived[at(served.block_arrivals[at(b)])];
    const SlotPath& path = path_of(one);
    ArrivedBlock from = block_from(one);
    SlotPieces sections;
    if (packed_) {
      path.add_expected(from, sections);
      sections.place(one.section);
      from.pieces = sections.all();
    } else {
      const std::span<const comm::Piece> lane = arrived[at(one.source)].pieces;
      from.pieces = pieces_of(lane, at(one.slot));
      path.check_pieces(from, pieces_of(served.lanes.of(one.source), at(one.slot)));
    }
    IncomingBlock& block = blocks.at_place(b);
    path.unpack(served, from, task, block);
    if (task == 0) {  // which has found the bags
      served.arrival_vectors[at(served.block_arrivals[at(b)])] = {
          static_cast<std::int32_t>(block.vectors), static_cast<std::int32_t>(block.gradients)};
    }
  });
}

}  // namespace weft::sharding
