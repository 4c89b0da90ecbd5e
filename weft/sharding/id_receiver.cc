#include "weft/sharding/id_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/listed_bags.h"

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
      slots_(routing_.served[at(paths.rank())]),
      lent_(lent),
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
  describe_lanes(counts, served);
}

void IdReceiver::describe_lanes(std::span<const std::vector<SlotCounts>> counts,
                                ServedIds& served) const {
  std::int64_t bytes = 0;
  served.pieces.resize(at(routing_.ranks));
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    auto& pieces = served.pieces[at(r)];
    pieces.clear();
    for (std::size_t j = 0; j < slots_.size() && r != paths_.rank(); ++j) {
      const SlotAddress address{paths_.rank(), static_cast<std::int64_t>(j)};
      paths_.of(address, r).add_expected(block_from(counts, j, r), pieces);
    }
    for (const comm::Piece& piece : pieces) {
      bytes += (piece.bytes + 7) / 8 * 8;  // keeps every section aligned
    }
  }
  if (lent_) {
    return;
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
    from.pieces = pieces_of(arrived[at(from.source)].pieces, j);
    const SlotPath& path = paths_.of({paths_.rank(), static_cast<std::int64_t>(j)}, from.source);
    path.check_pieces(from, pieces_of(served.pieces[at(from.source)], j));
    path.unpack(served, from, task, blocks[at(b)]);
  });
}

}  // namespace weft::sharding
