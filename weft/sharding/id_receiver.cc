#include "weft/sharding/id_receiver.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/packed_ids.h"

namespace weft::sharding {
namespace {

/// Writes ids as int64; returns a negative number where one is outside [0, rows).
template <typename Id>
std::int64_t widen(const Id* ids, std::int64_t count, std::int64_t rows, std::int64_t* out) {
  std::int64_t outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]);
    out[i] = id;
    outside |= id | (rows - 1 - id);
  }
  return outside;
}

}  // namespace

IdReceiver::IdReceiver(const Routing& routing, std::int64_t rank, bool lent)
    : routing_(routing), rank_(rank), lent_(lent), pieces_(at(routing.ranks)) {
  std::size_t pieces = 0;
  for (const Slot& slot : routing.served[at(rank)]) {
    slot_piece_.push_back(pieces);
    pieces += slot.weighted ? 3 : 2;
  }
  run_begins_.push_back(0);
  for (std::int64_t r = 0; r < routing.ranks; ++r) {
    const std::vector<Range> nodes = routing.nodes(r);
    for (std::size_t run = 0; run < 2 * nodes.size(); ++run) {
      run_parts_.push_back(static_cast<std::int32_t>(nodes[run % nodes.size()].begin));
    }
    run_begins_.push_back(static_cast<std::int64_t>(run_parts_.size()));
  }
}

/// The part of each sample, made again only when the size of the global batch changes.
void IdReceiver::find_parts(std::int64_t global_size) {
  num_parts_ = global_size + run_begins_.back();
  if (global_size == global_size_) {
    return;
  }
  global_size_ = global_size;
  grow(parts_, num_parts_);
  for (std::int64_t part = 0; part < routing_.parts; ++part) {
    const Range samples = part_samples(global_size, routing_.parts, part);
    std::fill_n(parts_.begin() + samples.begin, samples.size(), static_cast<std::int32_t>(part));
  }
  std::copy(run_parts_.begin(), run_parts_.end(), parts_.begin() + global_size);
}

void IdReceiver::lay_out(std::int64_t global_size,
                         std::span<const std::vector<SlotCounts>> counts,
                         std::span<IncomingBlock> blocks) {
  find_parts(global_size);
  num_ids_ = num_offsets_ = num_weights_ = 0;
  tasks_.clear();
  const auto& own = routing_.served[at(rank_)];
  for (std::size_t j = 0; j < own.size(); ++j) {
    for (std::int64_t r = 0; r < routing_.ranks; ++r) {
      const SlotCounts& sizes = counts[at(r)][j];
      if (r != rank_) {
        lay_out_block(own[j], r, sizes, blocks[j * at(routing_.ranks) + at(r)]);
      }
      const std::int64_t id_tasks = own[j].packed ? 0 : task_count(sizes.ids, kIdsPerTask);
      tasks_.add(r == rank_ ? 0 : 1 + id_tasks);
    }
  }
  grow(ids_, num_ids_);
  grow(offsets_, num_offsets_);
  grow(weights_, num_weights_);
  grow(parts_, num_parts_);
  grow(samples_, keeps_samples_ ? num_offsets_ : 0);
  describe_lanes(counts);
}

/// With room for as many bags as there are samples; of rows the runs are known.
void IdReceiver::lay_out_block(const Slot& slot,
                               std::int64_t source,
                               const SlotCounts& counts,
                               IncomingBlock& block) {
  block = {.origin = IdOrigin::kReceived, .ids_begin = num_ids_, .num_ids = counts.ids};
  num_ids_ += counts.ids;
  block.weights_begin = slot.weighted ? num_weights_ : -1;
  num_weights_ += slot.weighted ? counts.ids : 0;
  if (slot.of_rows()) {
    block.lookup = {runs(source) / 2, num_offsets_};
    block.gradient = {runs(source), num_offsets_};
    block.parts_begin = run_parts_begin(global_size_, source);
    num_offsets_ += runs(source) + 1;
    return;
  }
  block.lookup = block.gradient = {0, num_offsets_};
  num_offsets_ += counts.batch + 1;
  block.parts_begin = num_parts_;
  num_parts_ += counts.batch;
}

void IdReceiver::describe_lanes(std::span<const std::vector<SlotCounts>> counts) {
  const auto& own = routing_.served[at(rank_)];
  std::int64_t bytes = 0;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    pieces_[at(r)].clear();
    const auto add = [&](std::int64_t size) {
      pieces_[at(r)].push_back({nullptr, size});
      bytes += (size + 7) / 8 * 8;  // keeps every section aligned
    };
    for (std::size_t j = 0; j < own.size() && r != rank_; ++j) {
      const SlotCounts& sizes = counts[at(r)][j];
      add(own[j].of_rows() ? 4 * runs(r) : std::int64_t{sizes.length_bytes} * sizes.batch);
      add(own[j].packed ? sizes.packed_bytes : own[j].id_bytes * sizes.ids);
      if (own[j].weighted) {
        add(std::int64_t{4} * sizes.ids);
      }
    }
  }
  if (lent_) {
    return;
  }
  grow(bytes_, bytes);
  std::byte* next = bytes_.data();
  for (auto& pieces : pieces_) {
    for (comm::Piece& piece : pieces) {
      piece.data = next;
      next += (piece.bytes + 7) / 8 * 8;
    }
  }
}

void IdReceiver::unpack(ThreadPool& pool,
                        std::span<const comm::Lane> arrived,
                        std::span<IncomingBlock> blocks) {
  tasks_.run(pool, [&](std::int64_t b, std::int64_t task) {
    const std::int64_t j = b / routing_.ranks;
    const std::int64_t source = b % routing_.ranks;
    const Slot& slot = routing_.served[at(rank_)][at(j)];
    const auto pieces =
        arrived[at(source)].pieces.subspan(slot_piece_[at(j)], slot.weighted ? 3 : 2);
    IncomingBlock& block = blocks[at(b)];
    if (task == 0) {
      unpack_lengths(pieces[0], slot, source, block);
      if (slot.packed) {
        unpack_packed(pieces[1], slot, source, block);
      }
    } else {
      unpack_ids(pieces, slot, block,
                 {(task - 1) * kIdsPerTask, std::min(task * kIdsPerTask, block.num_ids)});
    }
  });
}

void IdReceiver::unpack_lengths(const comm::Piece& lengths,
                                const Slot& slot,
                                std::int64_t source,
                                IncomingBlock& block) {
  const std::int64_t batch = routing_.own_samples(global_size_, source).size();
  if (slot.of_rows()) {
    unpack_runs(lengths, block);
  } else if (lengths.bytes == 0) {
    const std::int64_t each = batch == 0 ? 0 : block.num_ids / batch;
    unpack_bags([each](std::int64_t) { return each; }, slot, source, block);
  } else {
    visit_width(lengths.bytes / batch, [&]<typename T>(T) {
      const auto* const length = static_cast<const T*>(lengths.data);
      unpack_bags([length](std::int64_t b) { return static_cast<std::int64_t>(length[b]); }, slot,
                  source, block);
    });
  }
}

/// Lengths become offsets; empty bags are left out.
template <typename Length>
void IdReceiver::unpack_bags(const Length& length,
                             const Slot& slot,
                             std::int64_t source,
                             IncomingBlock& block) {
  const Range samples = routing_.own_samples(global_size_, source);
  const std::int32_t* const part = parts_.data() + samples.begin;
  std::int32_t* const parts = parts_.data() + block.parts_begin;
  std::int64_t* const offsets = offsets_.data() + block.lookup.offsets_begin;
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
  if (keeps_samples_) {
    std::int32_t* sample = samples_.data() + block.lookup.offsets_begin;
    for (std::int64_t b = 0; b < samples.size(); ++b) {
      if (length(b) > 0) {
        *sample++ = static_cast<std::int32_t>(samples.begin + b);
      }
    }
  }
  block.vectors = block.gradients = slot.sequence ? block.num_ids : bags;
}

/// Runs of rows: all are kept, and a vector is wanted of the first half.
void IdReceiver::unpack_runs(const comm::Piece& lengths, IncomingBlock& block) {
  const auto* const length = static_cast<const std::int32_t*>(lengths.data);
  std::int64_t* const offsets = offsets_.data() + block.gradient.offsets_begin;
  offsets[0] = 0;
  for (std::int64_t run = 0; run < block.gradient.bags; ++run) {
    if (length[run] < 0 || length[run] > block.num_ids - offsets[run]) {
      fail(ErrorCode::kComm, "id exchange: runs of rows exceed the announced {}", block.num_ids);
    }
    offsets[run + 1] = offsets[run] + length[run];
  }
  if (offsets[block.gradient.bags] != block.num_ids) {
    fail(ErrorCode::kComm, "id exchange: runs of rows sum to {}, {} announced",
         offsets[block.gradient.bags], block.num_ids);
  }
  block.vectors = offsets[block.lookup.bags];
  block.gradients = block.num_ids;
}

/// All runs of a block, whose offsets are known.
void IdReceiver::unpack_packed(const comm::Piece& ids,
                               const Slot& slot,
                               std::int64_t source,
                               const IncomingBlock& block) {
  std::span left(static_cast<const std::byte*>(ids.data), at(ids.bytes));
  const std::int64_t* const offsets = offsets_.data() + block.gradient.offsets_begin;
  std::int64_t* const out = ids_.data() + block.ids_begin;
  for (std::int64_t run = 0; run < block.gradient.bags; ++run) {
    const std::int64_t read =
        kernels::unpack_ids(left, slot.id_bytes, slot.rows.size(),
                            {out + offsets[run], at(offsets[run + 1] - offsets[run])});
    if (read < 0) {
      fail(ErrorCode::kComm,
           "id exchange: run {} of the rows of table {} from rank {} is no packed list of {} rows "
           "below {}",
           run, routing_.fetches[at(slot.fetch)].name, source, offsets[run + 1] - offsets[run],
           slot.rows.size());
    }
    left = left.subspan(at(read));
  }
  if (!left.empty()) {
    fail(ErrorCode::kComm,
         "id exchange: {} packed rows of table {} from rank {} take {} bytes, {} announced",
         block.num_ids, routing_.fetches[at(slot.fetch)].name, source, ids.bytes - std::ssize(left),
         ids.bytes);
  }
}

void IdReceiver::unpack_ids(std::span<const comm::Piece> pieces,
                            const Slot& slot,
                            const IncomingBlock& block,
                            Range ids) {
  std::int64_t* const out = ids_.data() + block.ids_begin + ids.begin;
  const std::int64_t rows = slot.rows.size();
  std::int64_t outside = 0;
  visit_width(slot.id_bytes, [&]<typename Id>(Id) {
    outside = widen(static_cast<const Id*>(pieces[1].data) + ids.begin, ids.size(), rows, out);
  });
  if (outside < 0) {
    const auto* const bad =
        std::find_if(out, out + ids.size(), [rows](auto id) { return id < 0 || id >= rows; });
    fail(ErrorCode::kComm, "id exchange: row {} is outside a shard of {} rows", *bad, rows);
  }
  if (slot.weighted) {
    std::memcpy(weights_.data() + block.weights_begin + ids.begin,
                static_cast<const float*>(pieces[2].data) + ids.begin, at(4 * ids.size()));
  }
}

}  // namespace weft::sharding
