#include "weft/sharding/input_dist.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

constexpr std::uint32_t kMagic = 0x54464557;  // "WEFT"
constexpr std::uint32_t kVersion = 1;

/// First bytes of every counts message. `slots` entries of SlotCounts and the control block follow.
struct WireHeader {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int64_t step = 0;
  std::int64_t global_size = 0;
  std::int64_t slots = 0;
};

std::int64_t padded(std::int64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t id_bytes(const Slot& slot) {
  return slot.wide_ids ? 8 : 4;
}

void store_id(std::byte* ids, const Slot& slot, std::int64_t index, std::int64_t id) {
  if (slot.wide_ids) {
    std::memcpy(ids + index * 8, &id, 8);
  } else {
    const auto narrow = static_cast<std::int32_t>(id);
    std::memcpy(ids + index * 4, &narrow, 4);
  }
}

std::int64_t load_id(const std::byte* ids, const Slot& slot, std::int64_t index) {
  if (slot.wide_ids) {
    std::int64_t id = 0;
    std::memcpy(&id, ids + index * 8, 8);
    return id;
  }
  std::int32_t id = 0;
  std::memcpy(&id, ids + index * 4, 4);
  return id;
}

std::vector<std::int64_t> exclusive_sum(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> begins(sizes.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    begins[i + 1] = begins[i] + sizes[i];
  }
  return begins;
}

}  // namespace

InputDist::InputDist(const Routing& routing,
                     comm::Communicator& comm,
                     Device& device,
                     std::int64_t control_bytes)
    : routing_(routing),
      comm_(comm),
      control_bytes_(control_bytes),
      sent_(routing.served.size()),
      shard_of_(routing.features.size()),
      received_(at(routing.ranks)),
      send_counts_bytes_(at(routing.ranks)),
      recv_counts_bytes_(at(routing.ranks)),
      send_ids_bytes_(at(routing.ranks)),
      recv_ids_bytes_(at(routing.ranks)) {
  const auto& own = routing_.served[at(comm_.rank())];
  for (std::size_t s = 0; s < sent_.size(); ++s) {
    sent_[s].resize(routing_.served[s].size());
  }
  const auto fixed = static_cast<std::int64_t>(sizeof(WireHeader)) + control_bytes_;
  const auto slot_bytes = static_cast<std::int64_t>(sizeof(SlotCounts));
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    received_[at(r)].resize(own.size());
    send_counts_bytes_[at(r)] =
        fixed + slot_bytes * static_cast<std::int64_t>(routing_.served[at(r)].size());
    recv_counts_bytes_[at(r)] = fixed + slot_bytes * static_cast<std::int64_t>(own.size());
  }
  send_counts_.resize(at(exclusive_sum(send_counts_bytes_).back()));
  recv_counts_.resize(at(exclusive_sum(recv_counts_bytes_).back()));
  incoming_.blocks.resize(own.size() * at(routing_.ranks));
  incoming_.replicated.resize(routing_.served[at(routing_.replicated())].size());
  incoming_.ids = Buffer(device);
  incoming_.offsets = Buffer(device);
  incoming_.parts = Buffer(device);
  incoming_.weights = Buffer(device);
}

InputDist::SentSlot& InputDist::sent(const SlotAddress& address) {
  return sent_[at(address.server)][at(address.slot)];
}

const InputDist::SentSlot& InputDist::sent(const SlotAddress& address) const {
  return sent_[at(address.server)][at(address.slot)];
}

const std::int32_t* InputDist::sent_lengths(const SlotAddress& address) const {
  return reinterpret_cast<const std::int32_t*>(send_ids_.data() + sent(address).lengths_at);
}

std::int64_t InputDist::sent_vectors(const SlotAddress& address) const {
  return sent(address).vectors;
}

std::span<const std::uint16_t> InputDist::shard_of_ids(std::int64_t feature) const {
  return shard_of_[at(feature)];
}

std::int64_t InputDist::section_bytes(const Slot& slot,
                                      std::int64_t batch,
                                      std::int64_t ids) const {
  return padded(4 * batch) + padded(id_bytes(slot) * ids) + (slot.weighted ? padded(4 * ids) : 0);
}

void InputDist::exchange_counts(Context& ctx,
                                const BatchView& batch,
                                std::span<const std::byte> control) {
  WEFT_CHECK(static_cast<std::int64_t>(control.size()) == control_bytes_);
  batch_ = batch;
  const auto features = static_cast<std::int64_t>(routing_.features.size());
  WEFT_CHECK(batch.sparse->num_features() == features, "batch has {} features, plan has {}",
             batch.sparse->num_features(), features);
  ctx.pool->parallel_for(features, [this](std::int64_t f) { count_feature(f); });
  lay_out();
  ctx.pool->parallel_for(features, [this](std::int64_t f) { fill_feature(f); });
  write_counts(control);
  comm_.all_to_all_v(ctx, {.send = send_counts_.data(),
                           .send_bytes = send_counts_bytes_,
                           .recv = recv_counts_.data(),
                           .recv_bytes = recv_counts_bytes_});
  read_counts();
}

/// Checks the ids of a feature and counts those of each of its slots.
void InputDist::count_feature(std::int64_t f) {
  const FeatureRoute& route = routing_.features[at(f)];
  const JaggedView bags = batch_.sparse->feature(f);
  const std::int64_t first = bags.offsets.front();
  const std::int64_t total = bags.num_values();
  const std::int64_t* ids = bags.values + first;
  for (std::int64_t i = 0; i < total; ++i) {
    if (ids[i] < 0 || ids[i] >= route.num_embeddings) {
      const auto bag = std::upper_bound(bags.offsets.begin(), bags.offsets.end(), first + i);
      const std::int64_t b = bag - bags.offsets.begin() - 1;
      const std::int64_t sample = batch_.sample_ids.empty() ? b : batch_.sample_ids[at(b)];
      fail(ErrorCode::kData,
           "feature {}, sample {}: id {} is outside its table of {} rows; map ids with hash, "
           "modulo or vocabulary, or enlarge num_embeddings",
           batch_.sparse->keys[at(f)], sample, ids[i], route.num_embeddings);
    }
  }
  for (const SlotAddress& address : route.slots) {
    sent(address).ids = total;
  }
  if (route.sharding != spec::Sharding::kRowWise) {
    return;
  }
  auto& shard_of = shard_of_[at(f)];
  shard_of.resize(at(total));
  for (const SlotAddress& address : route.slots) {
    sent(address).ids = 0;
  }
  for (std::int64_t i = 0; i < total; ++i) {
    const auto k = std::upper_bound(route.row_ends.begin(), route.row_ends.end(), ids[i]) -
                   route.row_ends.begin();
    shard_of[at(i)] = static_cast<std::uint16_t>(k);
    ++sent(route.slots[at(k)]).ids;
  }
}

/// Places every slot's section in the send buffer, servers one after the other.
void InputDist::lay_out() {
  const std::int64_t batch = batch_.sparse->batch;
  std::int64_t cursor = 0;
  for (std::size_t server = 0; server < sent_.size(); ++server) {
    const std::int64_t begin = cursor;
    for (std::size_t j = 0; j < sent_[server].size(); ++j) {
      const Slot& slot = routing_.served[server][j];
      SentSlot& section = sent_[server][j];
      section.lengths_at = cursor;
      section.ids_at = cursor + padded(4 * batch);
      section.weights_at = section.ids_at + padded(id_bytes(slot) * section.ids);
      cursor += section_bytes(slot, batch, section.ids);
    }
    if (static_cast<std::int64_t>(server) < routing_.ranks) {
      send_ids_bytes_[server] = cursor - begin;
    }
  }
  if (send_ids_.size() < at(cursor)) {
    send_ids_.resize(at(cursor));
  }
}

void InputDist::fill_feature(std::int64_t f) {
  const FeatureRoute& route = routing_.features[at(f)];
  if (route.sharding == spec::Sharding::kRowWise) {
    fill_by_row(route, f);
  } else {
    fill_whole(route, f);
  }
}

/// table_wise, column_wise, data_parallel: the whole bags, once per shard.
void InputDist::fill_whole(const FeatureRoute& route, std::int64_t f) {
  const JaggedView bags = batch_.sparse->feature(f);
  const std::int64_t first = bags.offsets.front();
  for (const SlotAddress& address : route.slots) {
    const Slot& slot = routing_.served[at(address.server)][at(address.slot)];
    SentSlot& section = sent(address);
    auto* lengths = reinterpret_cast<std::int32_t*>(send_ids_.data() + section.lengths_at);
    std::int64_t non_empty = 0;
    for (std::int64_t b = 0; b < bags.batch(); ++b) {
      lengths[b] = static_cast<std::int32_t>(bags.length(b));
      non_empty += lengths[b] > 0 ? 1 : 0;
    }
    section.vectors = slot.sequence ? section.ids : non_empty;
    std::byte* ids = send_ids_.data() + section.ids_at;
    for (std::int64_t i = 0; i < section.ids; ++i) {
      store_id(ids, slot, i, bags.values[first + i] - slot.rows.begin);
    }
    if (slot.weighted && section.ids > 0) {
      std::memcpy(send_ids_.data() + section.weights_at, bags.weights + first, at(4 * section.ids));
    }
  }
}

/// row_wise: each id to the shard that holds its row, keeping the order inside the bag.
void InputDist::fill_by_row(const FeatureRoute& route, std::int64_t f) {
  const JaggedView bags = batch_.sparse->feature(f);
  const std::int64_t first = bags.offsets.front();
  const auto& shard_of = shard_of_[at(f)];
  std::vector<std::int64_t> cursor(route.slots.size(), 0);
  std::vector<std::int64_t> non_empty(route.slots.size(), 0);
  for (const SlotAddress& address : route.slots) {
    std::fill_n(send_ids_.begin() + sent(address).lengths_at, 4 * bags.batch(), std::byte{0});
  }
  for (std::int64_t b = 0; b < bags.batch(); ++b) {
    for (std::int64_t i = bags.offsets[at(b)] - first; i < bags.offsets[at(b) + 1] - first; ++i) {
      const std::size_t k = shard_of[at(i)];
      const SlotAddress& address = route.slots[k];
      const Slot& slot = routing_.served[at(address.server)][at(address.slot)];
      const SentSlot& section = sent(address);
      auto* lengths = reinterpret_cast<std::int32_t*>(send_ids_.data() + section.lengths_at);
      non_empty[k] += lengths[b] == 0 ? 1 : 0;
      ++lengths[b];
      store_id(send_ids_.data() + section.ids_at, slot, cursor[k],
               bags.values[first + i] - slot.rows.begin);
      if (slot.weighted) {
        std::memcpy(send_ids_.data() + section.weights_at + 4 * cursor[k], bags.weights + first + i,
                    4);
      }
      ++cursor[k];
    }
  }
  for (std::size_t k = 0; k < route.slots.size(); ++k) {
    SentSlot& section = sent(route.slots[k]);
    const bool sequence = route.pooling == spec::Pooling::kNone;
    section.vectors = sequence ? section.ids : non_empty[k];
  }
}

void InputDist::write_counts(std::span<const std::byte> control) {
  std::byte* out = send_counts_.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const auto& sections = sent_[at(r)];
    const WireHeader header{.step = batch_.step,
                            .global_size = batch_.global_size,
                            .slots = static_cast<std::int64_t>(sections.size())};
    std::memcpy(out, &header, sizeof(header));
    out += sizeof(header);
    for (const SentSlot& section : sections) {
      const SlotCounts counts{batch_.sparse->batch, section.ids};
      std::memcpy(out, &counts, sizeof(counts));
      out += sizeof(counts);
    }
    std::memcpy(out, control.data(), control.size());
    out += control.size();
  }
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
           r, header.version, comm_.rank(), kVersion);
    }
    if (header.step != batch_.step || header.global_size != batch_.global_size ||
        header.slots != static_cast<std::int64_t>(own.size())) {
      fail(ErrorCode::kComm,
           "id exchange: rank {} is at step {} with {} samples and {} slots, rank {} at step {} "
           "with {} samples and {} slots",
           r, header.step, header.global_size, header.slots, comm_.rank(), batch_.step,
           batch_.global_size, own.size());
    }
    const std::byte* next = in + sizeof(header);
    for (SlotCounts& counts : received_[at(r)]) {
      std::memcpy(&counts, next, sizeof(counts));
      next += sizeof(counts);
    }
    const Range samples = rank_samples(batch_.global_size, routing_.parts, routing_.ranks, r);
    for (const SlotCounts& counts : received_[at(r)]) {
      if (counts.batch != samples.size() || counts.ids < 0) {
        fail(ErrorCode::kComm, "id exchange: rank {} announces {} samples and {} ids, {} expected",
             r, counts.batch, counts.ids, samples.size());
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
  const auto& own = routing_.served[at(comm_.rank())];
  std::int64_t total = 0;
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    std::int64_t bytes = 0;
    for (std::size_t j = 0; j < own.size(); ++j) {
      const SlotCounts& counts = received_[at(r)][j];
      bytes += section_bytes(own[j], counts.batch, counts.ids);
    }
    recv_ids_bytes_[at(r)] = bytes;
    total += bytes;
  }
  if (recv_ids_.size() < at(total)) {
    recv_ids_.resize(at(total));
  }
  comm_.all_to_all_v(ctx, {.send = send_ids_.data(),
                           .send_bytes = send_ids_bytes_,
                           .recv = recv_ids_.data(),
                           .recv_bytes = recv_ids_bytes_});
  unpack();
  upload(ctx);
}

/// Widens ids and turns lengths into offsets, leaving empty bags out.
void InputDist::unpack() {
  host_ids_.clear();
  host_offsets_.clear();
  host_parts_.clear();
  host_weights_.clear();
  const auto& own = routing_.served[at(comm_.rank())];
  const std::byte* section = recv_ids_.data();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const Range samples = rank_samples(batch_.global_size, routing_.parts, routing_.ranks, r);
    for (std::size_t j = 0; j < own.size(); ++j) {
      const SlotCounts& counts = received_[at(r)][j];
      IncomingBlock& block = incoming_.blocks[j * at(routing_.ranks) + at(r)];
      block.num_ids = counts.ids;
      unpack_block(own[j], section, counts.batch, samples.begin, block);
      section += section_bytes(own[j], counts.batch, counts.ids);
    }
  }
  const auto& replicated = routing_.served[at(routing_.replicated())];
  const Range samples =
      rank_samples(batch_.global_size, routing_.parts, routing_.ranks, comm_.rank());
  for (std::size_t j = 0; j < replicated.size(); ++j) {
    const SentSlot& sent_slot = sent_[at(routing_.replicated())][j];
    incoming_.replicated[j].num_ids = sent_slot.ids;
    unpack_block(replicated[j], send_ids_.data() + sent_slot.lengths_at, samples.size(),
                 samples.begin, incoming_.replicated[j]);
  }
}

void InputDist::unpack_block(const Slot& slot,
                             const std::byte* section,
                             std::int64_t batch,
                             std::int64_t first_position,
                             IncomingBlock& block) {
  block.ids_begin = static_cast<std::int64_t>(host_ids_.size());
  block.offsets_begin = static_cast<std::int64_t>(host_offsets_.size());
  block.bags_begin = static_cast<std::int64_t>(host_parts_.size());
  const auto* lengths = reinterpret_cast<const std::int32_t*>(section);
  std::int64_t offset = 0;
  std::int64_t part = 0;
  host_offsets_.push_back(0);
  for (std::int64_t b = 0; b < batch; ++b) {
    if (lengths[b] < 0 || lengths[b] > block.num_ids - offset) {
      fail(ErrorCode::kComm, "id exchange: bag lengths exceed the announced {} ids", block.num_ids);
    }
    if (lengths[b] == 0) {
      continue;
    }
    const std::int64_t position = first_position + b;
    while (part_samples(batch_.global_size, routing_.parts, part).end <= position) {
      ++part;
    }
    offset += lengths[b];
    host_offsets_.push_back(offset);
    host_parts_.push_back(static_cast<std::int32_t>(part));
  }
  if (offset != block.num_ids) {
    fail(ErrorCode::kComm, "id exchange: bag lengths sum to {}, {} ids announced", offset,
         block.num_ids);
  }
  block.num_bags = static_cast<std::int64_t>(host_parts_.size()) - block.bags_begin;
  const std::byte* ids = section + padded(4 * batch);
  for (std::int64_t i = 0; i < block.num_ids; ++i) {
    const std::int64_t id = load_id(ids, slot, i);
    if (id < 0 || id >= slot.rows.size()) {
      fail(ErrorCode::kComm, "id exchange: row {} is outside a shard of {} rows", id,
           slot.rows.size());
    }
    host_ids_.push_back(id);
  }
  block.weights_begin = -1;
  if (slot.weighted && block.num_ids > 0) {
    block.weights_begin = static_cast<std::int64_t>(host_weights_.size());
    const std::byte* weights = ids + padded(id_bytes(slot) * block.num_ids);
    host_weights_.resize(host_weights_.size() + at(block.num_ids));
    std::memcpy(host_weights_.data() + block.weights_begin, weights, at(4 * block.num_ids));
  }
}

void InputDist::upload(Context& ctx) {
  const auto copy = [&ctx](Buffer& to, const auto& from) {
    const auto bytes = static_cast<std::int64_t>(from.size() * sizeof(from[0]));
    to.resize(bytes);
    ctx.device->copy_to_device(ctx, to.as<void>(), from.data(), bytes);
  };
  copy(incoming_.ids, host_ids_);
  copy(incoming_.offsets, host_offsets_);
  copy(incoming_.parts, host_parts_);
  copy(incoming_.weights, host_weights_);
}

}  // namespace weft::sharding
