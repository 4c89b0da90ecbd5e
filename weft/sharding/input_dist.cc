#include "weft/sharding/input_dist.h"

#include <array>
#include <cstring>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/sharding/id_packer.h"
#include "weft/sharding/id_receiver.h"

namespace weft::sharding {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint32_t kVersion = 5;

/// First bytes of every counts message. `slots` entries of SlotCounts and the control block follow.
struct WireHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int64_t step = 0;
  std::int64_t global_size = 0;
  std::int64_t slots = 0;
};

std::int64_t sum(std::span<const std::int64_t> sizes) {
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    total += size;
  }
  return total;
}

}  // namespace

InputDist::InputDist(const Routing& routing,
                     comm::Communicator& comm,
                     Device& device,
                     std::int64_t control_bytes)
    : routing_(routing),
      comm_(comm),
      device_(device),
      control_bytes_(control_bytes),
      packer_(std::make_unique<IdPacker>(routing, comm.rank())),
      receiver_(std::make_unique<IdReceiver>(routing, comm.rank(), comm.lends())),
      received_(at(routing.ranks)),
      send_counts_bytes_(at(routing.ranks)),
      recv_counts_bytes_(at(routing.ranks)),
      send_(at(routing.ranks)),
      recv_(at(routing.ranks)) {
  const auto& own = routing_.served[at(comm_.rank())];
  const auto fixed = static_cast<std::int64_t>(sizeof(WireHeader)) + control_bytes_;
  const auto slot_bytes = static_cast<std::int64_t>(sizeof(SlotCounts));
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    received_[at(r)].resize(own.size());
    send_counts_bytes_[at(r)] =
        fixed + slot_bytes * static_cast<std::int64_t>(routing_.served[at(r)].size());
    recv_counts_bytes_[at(r)] = fixed + slot_bytes * static_cast<std::int64_t>(own.size());
  }
  send_counts_.resize(at(sum(send_counts_bytes_)));
  recv_counts_.resize(at(sum(recv_counts_bytes_)));
  incoming_.blocks.resize(own.size() * at(routing_.ranks));
  incoming_.replicated.resize(routing_.served[at(routing_.replicated())].size());
  incoming_.fetched.resize(routing_.features.size());
}

InputDist::~InputDist() = default;

std::int64_t InputDist::sent_vectors(const SlotAddress& address) const {
  return packer_->vectors(address);
}

const std::int32_t* InputDist::sent_rows(const SlotAddress& address) const {
  return packer_->rows(address);
}

std::int64_t InputDist::sent_gradients(const SlotAddress& address) const {
  return packer_->gradients(address);
}

const std::int32_t* InputDist::sent_gradient_rows(const SlotAddress& address) const {
  return packer_->gradient_rows(address);
}

std::int64_t InputDist::unique_rows(std::int64_t fetch) const {
  return packer_->unique_rows(fetch);
}

const std::int64_t* InputDist::sent_row_ids(const SlotAddress& address) const {
  return packer_->row_ids(address);
}

std::span<const std::int32_t> InputDist::sent_runs(const SlotAddress& address) const {
  return packer_->runs(address);
}

void InputDist::keep_samples() {
  receiver_->keep_samples();
}

const std::int32_t* InputDist::served_samples(const SlotAddress& address,
                                              std::int64_t source) const {
  return receiver_->samples(block(address, source));
}

void InputDist::exchange_counts(Context& ctx,
                                const BatchView& batch,
                                std::span<const std::byte> control) {
  WEFT_CHECK(static_cast<std::int64_t>(control.size()) == control_bytes_);
  batch_ = batch;
  const auto features = static_cast<std::int64_t>(routing_.features.size());
  WEFT_CHECK(batch.sparse.num_features == features, "batch has {} features, plan has {}",
             batch.sparse.num_features, features);
  const std::int64_t samples = routing_.own_samples(batch.global_size, comm_.rank()).size();
  WEFT_CHECK(batch.sparse.batch == samples, "{} samples, of a global batch of {} it is {}",
             batch.sparse.batch, batch.global_size, samples);
  packer_->pack(*ctx.pool, batch);
  write_counts(control);
  comm_.all_to_all_v(ctx, {.send = send_counts_.data(),
                           .send_bytes = send_counts_bytes_,
                           .recv = recv_counts_.data(),
                           .recv_bytes = recv_counts_bytes_});
  read_counts();
}

void InputDist::write_counts(std::span<const std::byte> control) {
  std::byte* out = send_counts_.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const auto slots = static_cast<std::int64_t>(routing_.served[at(r)].size());
    const WireHeader header{.step = batch_.step, .global_size = batch_.global_size, .slots = slots};
    std::memcpy(out, &header, sizeof(header));
    out += sizeof(header);
    for (std::int64_t j = 0; j < slots; ++j) {
      const SlotCounts counts = packer_->counts({r, j});
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

void InputDist::read_counts() {
  const auto& own = routing_.served[at(comm_.rank())];
  const std::byte* in = recv_counts_.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    WireHeader header;
    std::memcpy(&header, in, sizeof(header));
    if (header.magic != kMagic || header.version != kVersion) {
      fail(ErrorCode::kComm,
           "id exchange: rank {} speaks version {} of the header, rank {} version {}; run one "
           "build of Weft on all ranks",
           world_rank(r), header.version, world_rank(comm_.rank()), kVersion);
    }
    if (header.step != batch_.step || header.global_size != batch_.global_size ||
        header.slots != static_cast<std::int64_t>(own.size())) {
      fail(ErrorCode::kComm,
           "id exchange: rank {} is at step {} with {} samples and {} slots, rank {} at step {} "
           "with {} samples and {} slots",
           world_rank(r), header.step, header.global_size, header.slots, world_rank(comm_.rank()),
           batch_.step, batch_.global_size, own.size());
    }
    const std::byte* next = in + sizeof(header);
    for (SlotCounts& counts : received_[at(r)]) {
      std::memcpy(&counts, next, sizeof(counts));
      next += sizeof(counts);
    }
    const Range samples = routing_.own_samples(batch_.global_size, r);
    for (const SlotCounts& counts : received_[at(r)]) {
      const bool width = counts.length_bytes == 0 || counts.length_bytes == 1 ||
                         counts.length_bytes == 2 || counts.length_bytes == 4;
      if (counts.batch != samples.size() || counts.ids < 0 || !width) {
        fail(ErrorCode::kComm, "id exchange: rank {} announces {} samples and {} ids, {} expected",
             world_rank(r), counts.batch, counts.ids, samples.size());
      }
      if (counts.packed_bytes < 0) {
        fail(ErrorCode::kComm, "id exchange: rank {} announces {} bytes of packed rows", r,
             counts.packed_bytes);
      }
    }
    in += recv_counts_bytes_[at(r)];
  }
}

std::span<const std::byte> InputDist::control(std::int64_t rank) const {
  const std::int64_t end = recv_counts_bytes_.front() * (rank + 1);  // equal sizes: own slots
  return {recv_counts_.data() + end - control_bytes_, at(control_bytes_)};
}

void InputDist::exchange_ids(Context& ctx) {
  place_own_blocks();
  receiver_->lay_out(batch_.global_size, received_, incoming_.blocks);
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const bool self = r == comm_.rank();
    send_[at(r)] = {.pieces = packer_->lane(r), .silent = self};
    recv_[at(r)] = {.pieces = receiver_->lane(r), .silent = self};
  }
  comm_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    receiver_->unpack(*ctx.pool, arrived, incoming_.blocks);
  });
  place(ctx);
}

/// The blocks of this rank's own samples.
void InputDist::place_own_blocks() {
  const std::int64_t rank = comm_.rank();
  const auto& own = routing_.served[at(rank)];
  for (std::size_t j = 0; j < own.size(); ++j) {
    incoming_.blocks[j * at(routing_.ranks) + at(rank)] =
        own_samples_block({rank, static_cast<std::int64_t>(j)});
  }
  for (std::size_t j = 0; j < incoming_.replicated.size(); ++j) {
    incoming_.replicated[j] =
        own_samples_block({routing_.replicated(), static_cast<std::int64_t>(j)});
  }
  for (const RowFetch& fetch : routing_.fetches) {
    for (const std::int64_t f : fetch.features) {
      incoming_.fetched[at(f)] = batch_block(f);
      incoming_.fetched[at(f)].origin = IdOrigin::kPlaces;
    }
  }
}

/// Of a slot that this rank serves for itself.
IncomingBlock InputDist::own_samples_block(const SlotAddress& address) const {
  const std::int64_t rank = comm_.rank();
  const Slot& slot = routing_.slot(address);
  IncomingBlock block =
      routing_.in_place(address, rank) ? batch_block(slot.feature) : packer_->own_block(address);
  block.parts_begin = slot.of_rows() ? receiver_->run_parts_begin(batch_.global_size, rank)
                                     : routing_.own_samples(batch_.global_size, rank).begin;
  return block;
}

/// All bags of a feature as the batch has them.
IncomingBlock InputDist::batch_block(std::int64_t feature) const {
  const JaggedView bags = batch_.sparse.feature(feature);
  const FeatureRoute& route = routing_.features[at(feature)];
  const BagRun all{bags.batch(), feature * bags.batch()};
  const bool sequence = route.pooling == spec::Pooling::kNone;
  const std::int64_t vectors = sequence ? bags.num_values() : bags.batch();
  return {.origin = IdOrigin::kBatch,
          .ids_begin = 0,
          .num_ids = bags.num_values(),
          .weights_begin = route.weighted ? 0 : -1,
          .lookup = all,
          .gradient = all,
          .vectors = vectors,
          .gradients = vectors,
          .parts_begin = routing_.own_samples(batch_.global_size, comm_.rank()).begin};
}

/// Shows lookups the arrays where they are, or copies of them on a device with its own memory.
void InputDist::place(Context& ctx) {
  const KeyedJaggedView& sparse = batch_.sparse;
  incoming_.arrays = {
      IdArrays{sparse.values.data(), sparse.offsets.data(), sparse.weights.data()},
      IdArrays{packer_->own_ids().data(), packer_->own_offsets().data(),
               packer_->own_weights().data()},
      IdArrays{receiver_->ids().data(), receiver_->offsets().data(), receiver_->weights().data()},
      IdArrays{packer_->places().data(), sparse.offsets.data(), sparse.weights.data()}};
  incoming_.parts = receiver_->parts().data();
  if (device_.kind() == DeviceKind::kCpu) {
    return;
  }
  std::size_t next = 0;
  const auto upload = [&]<typename T>(const T*& array, std::span<const T> host) {
    if (next == uploads_.size()) {
      uploads_.emplace_back(device_);
    }
    Buffer& buffer = uploads_[next++];
    const auto bytes = static_cast<std::int64_t>(host.size_bytes());
    buffer.resize(bytes);
    if (bytes > 0) {
      ctx.device->copy_to_device(ctx, buffer.as<void>(), host.data(), bytes);
    }
    array = buffer.as<const T>();
  };
  const auto upload_arrays = [&](IdOrigin origin, auto ids, auto offsets, auto weights) {
    IdArrays& arrays = incoming_.arrays[static_cast<std::size_t>(origin)];
    upload(arrays.ids, std::span<const std::int64_t>(ids));
    upload(arrays.offsets, std::span<const std::int64_t>(offsets));
    upload(arrays.weights, std::span<const float>(weights));
  };
  upload_arrays(IdOrigin::kBatch, std::span(sparse.values), std::span(sparse.offsets),
                std::span(sparse.weights));
  upload_arrays(IdOrigin::kPacked, packer_->own_ids(), packer_->own_offsets(),
                packer_->own_weights());
  upload_arrays(IdOrigin::kReceived, receiver_->ids(), receiver_->offsets(), receiver_->weights());
  IdArrays& places = incoming_.arrays[static_cast<std::size_t>(IdOrigin::kPlaces)];
  places = incoming_.arrays[static_cast<std::size_t>(IdOrigin::kBatch)];
  upload(places.ids, packer_->places());
  upload(incoming_.parts, receiver_->parts());
}

}  // namespace weft::sharding
