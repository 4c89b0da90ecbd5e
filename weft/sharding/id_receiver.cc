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

namespace weft::sharding {

RunParts::RunParts(const Routing& routing) {
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
    std::vector<std::int64_t>& cuts = cut_begins_.emplace_back(1, 0);
    for (std::int64_t cut = 0; cut < routing.micro_batches.count(); ++cut) {
      const std::int64_t end = routing.cut_parts(r, cut).end;
      const auto behind = std::find_if(runs.begin(), runs.end(),
                                       [&](const Range& run) { return run.begin >= end; });
      cuts.push_back(behind - runs.begin());
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
  grow(served.parts, served.num_parts);
  for (std::int64_t part = 0; part < routing_.parts; ++part) {
    const Range samples = part_samples(global_size, routing_.parts, part);
    std::fill_n(served.parts.begin() + samples.begin, samples.size(),
                static_cast<std::int32_t>(part));
  }
  std::copy(runs.begin(), runs.end(), served.parts.begin() + global_size);
}

void IdReceiver::check(std::int64_t global_size,
                       std::int64_t source,
                       std::span<const SlotCounts> counts) const {
  const std::int64_t batch = routing_.own_samples(global_size, source).size();
  const auto refuse = [&](std::size_t slot, const std::string& what) {
    fail(ErrorCode::kComm, "id exchange: rank {} announces {} for {}", world_ranks_[at(source)],
         what, routing_.name_of(slots_[slot]));
  };
  for (std::size_t j = 0; j < counts.size(); ++j) {
    const SlotCounts& one = counts[j];
    const bool is_width = one.length_bytes == 0 || one.length_bytes == 1 || one.length_bytes == 2 ||
                          one.length_bytes == 4;
    if (one.batch != batch || one.ids < 0 || !is_width || (batch == 0 && one.ids > 0)) {
      refuse(j, fmt::format("{} samples with {} ids and lengths of {} bytes, {} samples expected,",
                            one.batch, one.ids, one.length_bytes, batch));
    }
    const bool may_list = slots_[j].fetch < 0 && one.length_bytes == 0 &&
                          one.bag_bytes == layout::listed_bag_bytes(batch);
    if (one.bag_bytes != 0 && !may_list) {
      refuse(j, fmt::format("a list of bags of {} bytes each beside lengths of {} bytes",
                            one.bag_bytes, one.length_bytes));
    }
    if (one.packed_bytes < 0) {
      refuse(j, fmt::format("{} bytes of packed rows", one.packed_bytes));
    }
  }
}

void IdReceiver::lay_out(std::int64_t global_size,
                         std::span<const std::vector<SlotCounts>> counts,
                         ServedIds& served,
                         std::span<IncomingBlock> blocks) const {
  find_parts(global_size, served);
  served.num_ids = served.num_weights = 0;
  served.num_offsets = 1;  // the first is 0, and of all blocks without bags
  served.tasks.clear();
  for (std::size_t j = 0; j < slots_.size(); ++j) {
    const SlotAddress address{paths_.rank(), static_cast<std::int64_t>(j)};
    for (std::int64_t r = 0; r < routing_.ranks; ++r) {
      if (r == paths_.rank()) {
        served.tasks.add(0);
        continue;
      }
      const SlotPath& path = paths_.of(address, r);
      const ArrivedBlock from = block_from(counts, j, r);
      path.expect_block(served, from, blocks[j * at(routing_.ranks) + at(r)]);
      served.tasks.add(path.unpack_tasks(from));
    }
  }
  grow(served.ids, served.num_ids);
  grow(served.offsets, served.num_offsets);
  grow(served.weights, served.num_weights);
  grow(served.parts, served.num_parts);
  grow(served.samples, served.keeps_samples ? served.num_offsets : 0);
  if (!packed_) {
    describe_lanes(counts, served);
  }
}

void IdReceiver::expect_lanes(std::span<const std::int64_t> lane_bytes, ServedIds& served) const {
  served.pieces.resize(at(routing_.ranks));
  for (std::size_t r = 0; r < served.pieces.size(); ++r) {
    served.pieces[r].clear();
    if (lane_bytes[r] > 0) {
      served.pieces[r].push_back({nullptr, lane_bytes[r]});
    }
  }
  receive_pieces(served);
}

void IdReceiver::read_lanes(ThreadPool& pool,
                            std::int64_t global_size,
                            std::span<const comm::Lane> arrived,
                            ServedIds& served,
                            std::span<std::vector<SlotCounts>> counts) const {
  grow(served.section_begins, routing_.ranks * std::ssize(slots_));
  pool.parallel_for(routing_.ranks, [&](std::int64_t r) {
    if (r != paths_.rank()) {
      read_lane(global_size, r, arrived[at(r)], served, counts[at(r)]);
    }
  });
}

void IdReceiver::read_lane(std::int64_t global_size,
                           std::int64_t source,
                           const comm::Lane& lane,
                           ServedIds& served,
                           std::span<SlotCounts> counts) const {
  const std::string sender = fmt::format("id exchange: rank {}", world_ranks_[at(source)]);
  const std::int64_t batch = routing_.own_samples(global_size, source).size();
  std::span<const std::byte> bytes;
  if (!lane.pieces.empty()) {
    const comm::Piece& run = lane.pieces.front();
    bytes = {static_cast<const std::byte*>(run.data), at(run.bytes)};
  }
  std::int64_t next = read_slot_counts(bytes, slots_, batch, sender, counts);
  check(global_size, source, counts);
  for (std::size_t j = 0; j < slots_.size(); ++j) {
    const SlotCounts& one = counts[j];
    served.section_begins[at(source) * slots_.size() + j] = next;
    if (one.ids > 0) {
      SlotPieces pieces;
      const SlotAddress address{paths_.rank(), static_cast<std::int64_t>(j)};
      const ArrivedBlock from{.slot = &slots_[j],
                              .source = source,
                              .world_rank = world_ranks_[at(source)],
                              .counts = one};
      paths_.of(address, source).add_expected(from, pieces);
      for (const comm::Piece& piece : pieces.all()) {
        next += piece.bytes;
      }
    }
  }
  if (next != std::ssize(bytes)) {
    fail(ErrorCode::kComm, "{}: {} bytes of ids have come, {} announced", sender, bytes.size(),
         next);
  }
}

void IdReceiver::describe_lanes(std::span<const std::vector<SlotCounts>> counts,
                                ServedIds& served) const {
  served.pieces.resize(at(routing_.ranks));
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    auto& pieces = served.pieces[at(r)];
    pieces.clear();
    for (std::size_t j = 0; j < slots_.size() && r != paths_.rank(); ++j) {
      const SlotAddress address{paths_.rank(), static_cast<std::int64_t>(j)};
      SlotPieces one;
      paths_.of(address, r).add_expected(block_from(counts, j, r), one);
      pieces.insert(pieces.end(), one.all().begin(), one.all().end());
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
  for (const auto& pieces : served.pieces) {
    for (const comm::Piece& piece : pieces) {
      bytes += (piece.bytes + 7) / 8 * 8;  // keeps every section aligned
    }
  }
  grow(served.bytes, bytes);
  std::byte* next = served.bytes.data();
  for (auto& pieces : served.pieces) {
    for (comm::Piece& piece : pieces) {
      piece.data = next;
      next += (piece.bytes + 7) / 8 * 8;
    }
  }
}

void IdReceiver::unpack(ThreadPool& pool,
                        std::span<const std::vector<SlotCounts>> counts,
                        std::span<const comm::Lane> arrived,
                        ServedIds& served,
                        std::span<IncomingBlock> blocks) const {
  served.tasks.run(pool, [&](std::int64_t b, std::int64_t task) {
    const std::size_t j = at(b / routing_.ranks);
    ArrivedBlock from = block_from(counts, j, b % routing_.ranks);
    const comm::Lane& lane = arrived[at(from.source)];
    const SlotPath& path = paths_.of({paths_.rank(), static_cast<std::int64_t>(j)}, from.source);
    SlotPieces sections;
    if (packed_) {
      path.add_expected(from, sections);
      if (from.counts.ids > 0) {
        const auto* const run = static_cast<const std::byte*>(lane.pieces.front().data);
        sections.place(run + served.section_begins[at(from.source) * slots_.size() + j]);
      }
      from.pieces = sections.all();
    } else {
      from.pieces = pieces_of(lane.pieces, j);
      path.check_pieces(from, pieces_of(served.pieces[at(from.source)], j));
    }
    path.unpack(served, from, task, blocks[at(b)]);
  });
}

}  // namespace weft::sharding
