#include "weft/sharding/vector_wire.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::sharding {
namespace {

// Vectors whose draws are found at once.
constexpr std::int64_t kDrawsAtOnce = 256;

std::int64_t tasks_of(const VectorWire::Block& block) {
  return task_count(block.count * block.slot->dim(), kFloatsPerTask);
}

}  // namespace

struct VectorWire::Clips {
  std::atomic<std::int64_t> non_finite = 0;
  std::atomic<std::int64_t> clipped = 0;
};

VectorWire::VectorWire(const spec::Config& config,
                       CodecFormat format,
                       std::int64_t ranks,
                       Device& device)
    : codec_{.format = format,
             .group = config.codecs.group_size,
             .rounding = config.codecs.rounding},
      clips_(config.tables.size()),
      sent_(device),
      received_(device),
      send_runs_(at(ranks)),
      recv_runs_(at(ranks)),
      send_(at(ranks)),
      recv_(at(ranks)),
      arrived_(at(ranks)),
      lane_begin_(at(ranks)) {
}

VectorWire::~VectorWire() = default;

void VectorWire::Blocks::add(const Block& block, const kernels::Codec& codec) {
  WEFT_CHECK(entries.empty() || entries.back().block.peer <= block.peer);
  entries.push_back({block, bytes});
  bytes += block.count * kernels::encoded_bytes(codec, block.slot->dim());
  tasks.add(tasks_of(block));
}

void VectorWire::clear(std::int64_t step) {
  step_ = static_cast<std::uint64_t>(step);
  for (Blocks* blocks : {&outgoing_, &incoming_, &in_place_}) {
    blocks->entries.clear();
    blocks->bytes = 0;
    blocks->tasks.clear();
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
      lanes[r] = {.pieces = {&runs[r], 1}};
    }
  };
  std::byte* const received =
      comm.lends() ? nullptr : received_.resize_for<std::byte>(incoming_.bytes);
  describe(outgoing_, sent_.as<std::byte>(), send_runs_, send_);
  describe(incoming_, received, recv_runs_, recv_);
}

void VectorWire::exchange(Context& ctx, comm::Communicator& comm) {
  std::byte* const sent = sent_.resize_for<std::byte>(outgoing_.bytes + in_place_.bytes);
  std::byte* const in_place = sent + outgoing_.bytes;
  describe_lanes(comm);
  outgoing_.tasks.run(*ctx.pool, [&](std::int64_t i, std::int64_t task) {
    const Blocks::Entry& entry = outgoing_.entries[at(i)];
    encode(entry.block, task_vectors(entry.block, task), sent + entry.wire);
  });
  comm.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    std::int64_t before = 0;
    for (std::size_t r = 0; r < arrived.size(); ++r) {
      arrived_[r] = static_cast<const std::byte*>(arrived[r].pieces.front().data);
      lane_begin_[r] = before;
      before += recv_runs_[r].bytes;
    }
    incoming_.tasks.run(*ctx.pool, [&](std::int64_t i, std::int64_t task) {
      const Blocks::Entry& entry = incoming_.entries[at(i)];
      const std::size_t peer = at(entry.block.peer);
      decode(entry.block, task_vectors(entry.block, task),
             arrived_[peer] + (entry.wire - lane_begin_[peer]));
    });
    in_place_.tasks.run(*ctx.pool, [&](std::int64_t i, std::int64_t task) {
      const Blocks::Entry& entry = in_place_.entries[at(i)];
      const Range vectors = task_vectors(entry.block, task);
      encode(entry.block, vectors, in_place + entry.wire);
      decode(entry.block, vectors, in_place + entry.wire);
    });
  });
}

Range VectorWire::task_vectors(const Block& block, std::int64_t task) {
  return piece(block.count, tasks_of(block), task);
}

void VectorWire::encode(const Block& block, Range vectors, std::byte* wire) {
  const bool drawn = codec_.rounding == CodecRounding::kStochastic;
  const kernels::CodecClips lost = drawn ? encode_drawn(block, vectors, wire)
                                         : kernels::encode(codec_,
                                                           {.vectors = block.place.data,
                                                            .stride = block.place.stride,
                                                            .rows = block.rows,
                                                            .cols = block.slot->dim(),
                                                            .to = wire},
                                                           vectors);
  if (lost != kernels::CodecClips{}) {
    Clips& clips = clips_[at(block.slot->table)];
    clips.non_finite.fetch_add(lost.non_finite, std::memory_order_relaxed);
    clips.clipped.fetch_add(lost.clipped, std::memory_order_relaxed);
  }
}

kernels::CodecClips VectorWire::encode_drawn(const Block& block,
                                             Range vectors,
                                             std::byte* wire) const {
  const std::int64_t dim = block.slot->dim();
  const std::int64_t bytes = kernels::encoded_bytes(codec_, dim);
  std::array<std::int64_t, kDrawsAtOnce> numbers;
  kernels::CodecClips lost;
  for (std::int64_t first = vectors.begin; first < vectors.end; first += kDrawsAtOnce) {
    const Range some{first, std::min(first + kDrawsAtOnce, vectors.end)};
    block.draws.number(some, numbers.data());
    const bool gathers = block.rows != nullptr;
    lost +=
        kernels::encode(codec_,
                        {.vectors = block.place.data + (gathers ? 0 : first * block.place.stride),
                         .stride = block.place.stride,
                         .rows = gathers ? block.rows + first : nullptr,
                         .cols = dim,
                         .to = wire + first * bytes,
                         .draws = {.key = block.draws.key,
                                   .step = step_,
                                   .numbers = numbers.data(),
                                   .first_col = block.slot->cols.begin}},
                        {0, some.size()});
  }
  return lost;
}

void VectorWire::decode(const Block& block, Range vectors, const std::byte* wire) const {
  kernels::decode(codec_,
                  {.from = wire,
                   .vectors = block.place.data,
                   .stride = block.place.stride,
                   .rows = block.rows,
                   .cols = block.slot->dim()},
                  vectors);
}

kernels::CodecClips VectorWire::clips(std::int64_t table) const {
  const Clips& clips = clips_[at(table)];
  return {.non_finite = clips.non_finite.load(std::memory_order_relaxed),
          .clipped = clips.clipped.load(std::memory_order_relaxed)};
}

}  // namespace weft::sharding
