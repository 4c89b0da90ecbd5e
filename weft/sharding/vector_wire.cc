#include "weft/sharding/vector_wire.h"

#include <atomic>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::sharding {
VectorWire::VectorWire(const spec::Config& config,
                       CodecFormat format,
                       std::int64_t ranks,
                       Device& device)
    : codec_{.format = format,
             .group = config.codecs.group_size,
             .rounding = config.codecs.rounding},
      clips_(config.tables.size()),
      before_(config.tables.size()),
      sent_(device),
      received_(device),
      send_runs_(is_on() ? at(ranks) : 0),
      recv_runs_(send_runs_.size()),
      send_(send_runs_.size()),
      recv_(send_runs_.size()) {
}

VectorWire::Block VectorWire::Block::part(const Range& vectors) const {
  Block some = *this;
  some.count = vectors.size();
  some.draws.first = vectors.begin;
  if (rows == nullptr) {
    some.place = place.from(vectors.begin);
  } else {
    some.rows += vectors.begin;
  }
  return some;
}

void VectorWire::Blocks::add(const Block& block, const kernels::Codec& codec) {
  WEFT_CHECK(entries.empty() || entries.back().block.peer <= block.peer);
  entries.push_back({block, bytes});
  bytes += block.count * kernels::encoded_bytes(codec, block.slot->dim());
}

void VectorWire::clear(std::int64_t step) {
  step_ = static_cast<std::uint64_t>(step);
  for (Blocks* blocks : {&outgoing_, &incoming_, &in_place_}) {
    blocks->entries.clear();
    blocks->bytes = 0;
  }
}

/// Of a peer the blocks from its first to the next one's first.
void VectorWire::describe_lanes(comm::Communicator& comm) {
  const auto describe = [](const Blocks& blocks, std::byte* memory, std::vector<comm::Piece>& runs,
                           std::vector<comm::Lane>& lanes) {
    std::size_t next = 0;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const auto begin = [&] {
        return next < blocks.entries.size() ? blocks.entries[next].wire : blocks.bytes;
      };
      const std::int64_t first = begin();
      while (next < blocks.entries.size() && at(blocks.entries[next].block.peer) == r) {
        ++next;
      }
      runs[r] = {memory == nullptr ? nullptr : memory + first, begin() - first};
      lanes[r] = comm::Lane::of({&runs[r], 1});
    }
  };
  const layout::WireBytes<std::int64_t> bytes = wire_bytes();
  std::byte* const received = comm.lends() ? nullptr : received_.resize_for(bytes.received());
  describe(outgoing_, sent_.as<std::byte>(), send_runs_, send_);
  describe(incoming_, received, recv_runs_, recv_);
}

void VectorWire::exchange(Context& ctx, comm::Communicator& comm) {
  std::byte* const sent = sent_.resize_for(wire_bytes().sent());
  std::byte* const in_place = sent + outgoing_.bytes;
  describe_lanes(comm);
  encodes_.clear();
  add_encodes(outgoing_, sent);
  add_encodes(in_place_, in_place);
  kernels::encode(ctx, encodes_);
  comm.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    decodes_.clear();
    std::size_t rank = 0;
    std::int64_t lane_begin = 0;  // of the rank's lane among all of incoming_
    for (const Blocks::Entry& entry : incoming_.entries) {
      for (; rank < at(entry.block.peer); ++rank) {
        lane_begin += recv_runs_[rank].bytes;
      }
      if (recv_runs_[rank].bytes == 0) {
        continue;  // silent
      }
      const auto* const lane = static_cast<const std::byte*>(arrived[rank].pieces.front().data);
      add_decode(entry.block, lane + (entry.wire - lane_begin));
    }
    for (const Blocks::Entry& entry : in_place_.entries) {
      add_decode(entry.block, in_place + entry.wire);
    }
    kernels::decode(ctx, decodes_);
  });
}

void VectorWire::add_encodes(const Blocks& blocks, std::byte* wire) {
  for (const Blocks::Entry& entry : blocks.entries) {
    const Block& block = entry.block;
    encodes_.push_back({.codec = codec_,
                        .vectors = block.place.data,
                        .stride = block.place.stride,
                        .rows = block.rows,
                        .count = block.count,
                        .cols = block.slot->dim(),
                        .to = wire + entry.wire,
                        .draws = {.key = block.draws.key,
                                  .step = step_,
                                  .first_col = block.slot->cols.begin,
                                  .vectors = block.draws},
                        .clips = &clips_[at(block.slot->table)]});
  }
}

void VectorWire::add_decode(const Block& block, const std::byte* wire) {
  decodes_.push_back({.codec = codec_,
                      .from = wire,
                      .vectors = block.place.data,
                      .stride = block.place.stride,
                      .rows = block.rows,
                      .count = block.count,
                      .cols = block.slot->dim()});
}

void VectorWire::begin_batch() {
  for (std::size_t t = 0; t < clips_.size(); ++t) {
    before_[t] = clips(static_cast<std::int64_t>(t));
  }
}

kernels::CodecClips VectorWire::batch_clips(std::int64_t table) const {
  const kernels::CodecClips all = clips(table);
  const kernels::CodecClips& before = before_[at(table)];
  return {.non_finite = all.non_finite - before.non_finite,
          .clipped = all.clipped - before.clipped};
}

kernels::CodecClips VectorWire::clips(std::int64_t table) const {
  // An atomic view of a constant is C++26's.
  auto& clips = const_cast<kernels::CodecClips&>(clips_[at(table)]);
  return {.non_finite = std::atomic_ref(clips.non_finite).load(std::memory_order_relaxed),
          .clipped = std::atomic_ref(clips.clipped).load(std::memory_order_relaxed)};
}

}  // namespace weft::sharding
