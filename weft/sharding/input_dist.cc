#include "weft/sharding/input_dist.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/layout/id_lanes.h"
#include "weft/sharding/batch_error.h"

namespace weft::sharding {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint32_t kVersion = 10;
constexpr std::int64_t kRefused = -1;  // the rank has no batch, and nothing of the message counts

/// First bytes of every counts message. `slots` entries of SlotCounts, unless lanes are packed, and
/// the control block follow.
struct WireHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int64_t step = 0;
  std::int64_t global_size = 0;
  std::int64_t slots = 0;       ///< or kRefused
  std::int64_t lane_bytes = 0;  ///< of the lane of ids that follows, where lanes are packed
};

/// Bytes of the counts of so many slots in the message.
std::int64_t counts_bytes(const Routing& routing, std::int64_t slots) {
  return layout::packs_id_lanes(routing.ranks)
             ? 0
             : slots * static_cast<std::int64_t>(sizeof(SlotCounts));
}

std::int64_t sum(std::span<const std::int64_t> sizes) {
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    total += size;
  }
  return total;
}

}  // namespace

InputStep::InputStep(const Routing& routing, std::int64_t rank, std::int64_t control)
    : ranks(routing.ranks),
      control_bytes(control),
      asked(routing, rank),
      received(at(routing.num_slots(rank))),
      recv_lane_bytes(at(routing.ranks)),
      send_counts_bytes(at(routing.ranks)),
      recv_counts_bytes(at(routing.ranks)),
      send(at(routing.ranks)),
      recv(at(routing.ranks)) {
  const std::int64_t own = routing.num_slots(rank);
  const auto fixed = static_cast<std::int64_t>(sizeof(WireHeader)) + control_bytes;
  for (std::int64_t r = 0; r < ranks; ++r) {
    send_counts_bytes[at(r)] = fixed + counts_bytes(routing, routing.num_slots(r));
    recv_counts_bytes[at(r)] = fixed + counts_bytes(routing, own);
  }
  send_counts.resize(at(sum(send_counts_bytes)));
  recv_counts.resize(at(sum(recv_counts_bytes)));
  incoming.blocks.begin(own);
  incoming.replicated.resize(at(routing.num_slots(routing.replicated())));
  incoming.fetched.resize(routing.features.size());
}

std::span<const std::byte> InputStep::control(std::int64_t rank) const {
  const std::int64_t end = recv_counts_bytes.front() * (rank + 1);  // equal sizes: own slots
  return {recv_counts.data() + end - control_bytes, at(control_bytes)};
}

Range InputStep::values_of(const BagRun& run, IdOrigin origin, const Range& bags) const {
  const std::int64_t* offsets = nullptr;  // in host memory
  switch (origin) {
    case IdOrigin::kBatch:
    case IdOrigin::kPlaces:
      offsets = batch().sparse.offsets.data();
      break;
    case IdOrigin::kPacked:
      offsets = asked.own.offsets.data();
      break;
    case IdOrigin::kReceived:
      offsets = served.offsets.data();
      break;
  }
  offsets += run.offsets_begin;
  return {offsets[bags.begin] - offsets[0], offsets[bags.end] - offsets[0]};
}

IncomingBlock InputStep::batch_block(const Routing& routing,
                                     std::int64_t feature,
                                     std::int64_t rank) const {
  const JaggedView bags = batch().sparse.feature(feature);
  const FeatureRoute& route = routing.features[at(feature)];
  const BagRun all{bags.batch(), feature * bags.batch()};
  const bool sequence = route.pooling == spec::Pooling::kNone;
  const std::int64_t vectors = sequence ? bags.num_values() : bags.batch();
  return {.origin = IdOrigin::kBatch,
          .weighted = route.weighted,
          .ids_begin = 0,
          .num_ids = bags.num_values(),
          .rows_read = bags.num_values(),
          .lookup = all,
          .gradient = all,
          .vectors = vectors,
          .gradients = vectors,
          .parts_begin = routing.own_samples(batch().global_size, rank).begin};
}

namespace {

std::vector<int> world_ranks_of(const comm::Communicator& comm) {
  std::vector<int> ranks;
  for (int rank = 0; rank < comm.size(); ++rank) {
    ranks.push_back(comm.world_rank(rank));
  }
  return ranks;
}

}  // namespace

InputDist::InputDist(const Paths& paths, comm::Communicator& comm, Device& device)
    : paths_(paths),
      routing_(paths.routing()),
      comm_(comm),
      device_(device),
      packer_(paths),
      receiver_(paths, comm.lends(), world_ranks_of(comm)) {
}

void InputDist::exchange_counts(Context& ctx,
                                InputStep& step,
                                const BatchView& batch,
                                std::span<const std::byte> control) const {
  WEFT_CHECK(static_cast<std::int64_t>(control.size()) == step.control_bytes);
  const auto features = static_cast<std::int64_t>(routing_.features.size());
  WEFT_CHECK(batch.sparse.num_features == features, "batch has {} features, plan has {}",
             batch.sparse.num_features, features);
  const std::int64_t samples = routing_.own_samples(batch.global_size, comm_.rank()).size();
  WEFT_CHECK(batch.sparse.batch == samples, "{} samples, of a global batch of {} it is {}",
             batch.sparse.batch, batch.global_size, samples);
  std::optional<Error> refusal;
  try {
    packer_.pack(*ctx.pool, batch, step.asked);
    write_counts(step, control);
  } catch (const Error& error) {
    refusal = error;
    write_refusal(step, batch.step);
  }
  exchange(ctx, step);
  throw_refusal(ctx, step, refusal);
  read_counts(step);
}

void InputDist::refuse(Context& ctx,
                       InputStep& step,
                       std::int64_t number,
                       const Error& error) const {
  write_refusal(step, number);
  exchange(ctx, step);
  throw_refusal(ctx, step, error);
}

void InputDist::write_refusal(InputStep& step, std::int64_t number) {
  std::byte* out = step.send_counts.data();
  for (const std::int64_t bytes : step.send_counts_bytes) {
    const WireHeader header{.step = number, .slots = kRefused};
    std::memset(out, 0, at(bytes));
    std::memcpy(out, &header, sizeof(header));
    out += bytes;
  }
}

/// Throws what the first rank has refused its batch for, if any has; all ranks see the same
/// headers.
void InputDist::throw_refusal(Context& ctx,
                              const InputStep& step,
                              const std::optional<Error>& own) const {
  const std::byte* in = step.recv_counts.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    WireHeader header;
    std::memcpy(&header, in, sizeof(header));
    in += step.recv_counts_bytes[at(r)];
    if (header.magic != kMagic || header.version != kVersion || header.slots != kRefused) {
      continue;
    }
    const bool is_here = r == comm_.rank();
    std::array<std::int64_t, 3> sizes{};  // of the text; its code and rank
    std::string text;
    if (is_here) {
      text = own->what();
      sizes = {std::ssize(text), static_cast<std::int64_t>(own->code()),
               own->origin_rank() < 0 ? world_rank(r) : own->origin_rank()};
    }
    comm_.broadcast(ctx, sizes.data(), sizeof(sizes), static_cast<int>(r));
    text.resize(at(sizes[0]));
    comm_.broadcast(ctx, text.data(), sizes[0], static_cast<int>(r));
    throw BatchError(Error(static_cast<ErrorCode>(sizes[1]), text, static_cast<int>(sizes[2])),
                     BatchError::Of::kThisGroup);
  }
}

/// Messages have one size where they have no counts of slots.
void InputDist::exchange(Context& ctx, InputStep& step) const {
  if (layout::packs_id_lanes(routing_.ranks)) {
    comm_.all_to_all(ctx, step.send_counts.data(), step.recv_counts.data(),
                     step.send_counts_bytes.front());
    return;
  }
  comm_.all_to_all_v(ctx, {.send = step.send_counts.data(),
                           .send_bytes = step.send_counts_bytes,
                           .recv = step.recv_counts.data(),
                           .recv_bytes = step.recv_counts_bytes});
}

void InputDist::write_counts(InputStep& step, std::span<const std::byte> control) const {
  std::byte* out = step.send_counts.data();
  const bool packed = layout::packs_id_lanes(routing_.ranks);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const std::int64_t slots = routing_.num_slots(r);
    const WireHeader header{.step = step.batch().step,
                            .global_size = step.batch().global_size,
                            .slots = slots,
                            .lane_bytes = packed ? step.asked.lane_sizes[at(r)].all : 0};
    std::memcpy(out, &header, sizeof(header));
    out += sizeof(header);
    for (std::int64_t j = 0; j < slots && !packed; ++j) {
      const SlotCounts counts = step.asked.counts_of({r, j});
      std::memcpy(out, &counts, sizeof(counts));
      out += sizeof(counts);
    }
    std::memcpy(out, control.data(), control.size());
    out += control.size();
  }
}

/// Of a rank of this group, for messages.
int InputDist::world_rank(std::int64_t rank) const {
  return comm_.world_rank(static_cast<int>(rank));
}

void InputDist::read_counts(InputStep& step) const {
  const BatchView& batch = step.batch();
  const std::int64_t own = routing_.num_slots(comm_.rank());
  const std::byte* in = step.recv_counts.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    WireHeader header;
    std::memcpy(&header, in, sizeof(header));
    if (header.magic != kMagic || header.version != kVersion) {
      fail(ErrorCode::kComm,
           "id exchange: rank {} speaks version {} of the header, rank {} version {}; run one "
           "build of Weft on all ranks",
           world_rank(r), header.version, world_rank(comm_.rank()), kVersion);
    }
    if (header.step != batch.step || header.global_size != batch.global_size ||
        header.slots != own) {
      fail(ErrorCode::kComm,
           "id exchange: rank {} is at step {} with {} samples and {} slots, rank {} at step {} "
           "with {} samples and {} slots",
           world_rank(r), header.step, header.global_size, header.slots, world_rank(comm_.rank()),
           batch.step, batch.global_size, own);
    }
    if (header.lane_bytes < 0) {
      fail(ErrorCode::kComm, "id exchange: rank {} announces a lane of {} bytes", world_rank(r),
           header.lane_bytes);
    }
    step.recv_lane_bytes[at(r)] = header.lane_bytes;
    if (!layout::packs_id_lanes(routing_.ranks)) {
      read_slots(step, r, in + sizeof(header));
    }
    in += step.recv_counts_bytes[at(r)];
  }
}

/// The counts of the slots of this rank that `source` has sent before its lane.
void InputDist::read_slots(InputStep& step, std::int64_t source, const std::byte* in) const {
  for (SlotCounts& counts : step.received) {
    std::memcpy(&counts, in, sizeof(counts));
    in += sizeof(counts);
  }
  receiver_.take_counts(step.batch().global_size, source, step.received, step.served);
}

void InputDist::exchange_ids(Context& ctx, InputStep& step) const {
  const bool packed = layout::packs_id_lanes(routing_.ranks);
  const std::int64_t samples = step.batch().global_size;
  const auto lay_out = [&] {
    receiver_.lay_out(samples, step.served, step.incoming.blocks);
    place_own_blocks(step);
  };
  packed ? receiver_.expect_lanes(step.recv_lane_bytes, step.served) : lay_out();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const bool self = r == comm_.rank();
    const auto lane = [&](std::span<const comm::Piece> pieces) {
      return comm::Lane{.pieces = pieces,
                        .silent = self || pieces.empty(),
                        .known_bytes = packed && !pieces.empty() ? pieces.front().bytes : -1};
    };
    step.send[at(r)] = lane(step.asked.lane(r));
    step.recv[at(r)] = lane(step.served.lanes.of(r));
  }
  comm_.exchange_lent(ctx, step.send, step.recv, [&](std::span<const comm::Lane> arrived) {
    if (packed) {
      receiver_.read_lanes(*ctx.pool, samples, arrived, step.served);
      lay_out();
    }
    receiver_.unpack(*ctx.pool, arrived, step.served, step.incoming.blocks);
  });
  place(ctx, step);
}

/// The blocks of this rank's own samples.
void InputDist::place_own_blocks(InputStep& step) const {
  const std::int64_t rank = comm_.rank();
  const std::int64_t own = routing_.num_slots(rank);
  for (std::int64_t j = 0; j < own; ++j) {
    step.incoming.blocks.at_place(step.incoming.blocks.place(j, rank)) =
        paths_.of({rank, j}, rank).own_block(step, {rank, j});
  }
  const std::int64_t replicated = routing_.replicated();
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(step.incoming.replicated.size()); ++j) {
    step.incoming.replicated[at(j)] =
        paths_.of({replicated, j}, rank).own_block(step, {replicated, j});
  }
  for (const auto& path : paths_.all()) {
    path->place_own_features(step);
  }
}

/// Shows lookups the arrays where they are, or copies of them on a device with its own memory.
void InputDist::place(Context& ctx, InputStep& step) const {
  const KeyedJaggedView& sparse = step.batch().sparse;
  const OwnIds& own = step.asked.own;
  const ServedIds& served = step.served;
  step.incoming.arrays = {
      IdArrays{sparse.values.data(), sparse.offsets.data(), sparse.weights.data()},
      IdArrays{own.ids.data(), own.offsets.data(), own.weights.data()},
      IdArrays{served.ids.data(), served.offsets.data(), served.weights.data()},
      IdArrays{step.asked.rows.places.data(), sparse.offsets.data(), sparse.weights.data()}};
  step.incoming.parts = served.parts.data();
  if (device_.kind() != DeviceKind::kCpu) {
    upload(ctx, step);
  }
}

void InputDist::upload(Context& ctx, InputStep& step) const {
  std::size_t next = 0;
  const auto upload = [&]<typename T>(const T*& array, std::span<const T> host) {
    if (next == step.uploads.size()) {
      step.uploads.emplace_back(device_);
    }
    Buffer& buffer = step.uploads[next++];
    const auto bytes = static_cast<std::int64_t>(host.size_bytes());
    buffer.resize(bytes);
    if (bytes > 0) {
      ctx.device->copy_to_device(ctx, buffer.as<void>(), host.data(), bytes);
    }
    array = buffer.as<const T>();
  };
  const auto upload_arrays = [&](IdOrigin origin, auto ids, auto offsets, auto weights) {
    IdArrays& arrays = step.incoming.arrays[static_cast<std::size_t>(origin)];
    upload(arrays.ids, std::span<const std::int64_t>(ids));
    upload(arrays.offsets, std::span<const std::int64_t>(offsets));
    upload(arrays.weights, std::span<const float>(weights));
  };
  const KeyedJaggedView& sparse = step.batch().sparse;
  const OwnIds& own = step.asked.own;
  const ServedIds& served = step.served;
  upload_arrays(IdOrigin::kBatch, sparse.values, sparse.offsets, sparse.weights);
  upload_arrays(IdOrigin::kPacked, own.used_ids(), own.used_offsets(), own.used_weights());
  upload_arrays(IdOrigin::kReceived, served.used_ids(), served.used_offsets(),
                served.used_weights());
  IdArrays& places = step.incoming.arrays[static_cast<std::size_t>(IdOrigin::kPlaces)];
  places = step.incoming.arrays[static_cast<std::size_t>(IdOrigin::kBatch)];
  upload(places.ids, std::span<const std::int64_t>(step.asked.rows.places));
  upload(step.incoming.parts, served.used_parts());
}

}  // namespace weft::sharding
