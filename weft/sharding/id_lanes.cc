#include "weft/sharding/id_lanes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/listed_bags.h"

namespace weft::sharding {
namespace {

/// Whether the bags of a slot with so many ids are listed: a rule that both ends know.
bool lists(const SlotKind& slot, std::int64_t ids, std::int64_t batch) {
  return slot.path == Path::kSplitBags && layout::lists_bags(ids, batch);
}

/// Whether the width of lengths is among the counts of a slot.
bool has_width(const SlotKind& slot, bool is_listed) {
  return slot.fetch < 0 && !is_listed;
}

/// Writes to a lane, or, without one, counts bytes.
class LaneWriter {
 public:
  explicit LaneWriter(std::byte* lane) : lane_(lane) {}

  /// Takes so many bytes of zeros.
  void skip(std::int64_t bytes) {
    if (lane_ != nullptr) {
      std::memset(lane_ + size_, 0, at(bytes));
    }
    size_ += bytes;
  }

  void mark(std::int64_t slot) {
    if (lane_ != nullptr) {
      lane_[slot / 8] |= std::byte{1} << (slot % 8);
    }
  }

  void number(std::int64_t value) {
    for (; value >= 128; value /= 128) {
      byte(value % 128 + 128);
    }
    byte(value);
  }

  void byte(std::int64_t value) {
    if (lane_ != nullptr) {
      lane_[size_] = static_cast<std::byte>(value);
    }
    ++size_;
  }

  void run(const comm::Piece& piece) {
    if (lane_ != nullptr && piece.bytes > 0) {
      std::memcpy(lane_ + size_, piece.data, at(piece.bytes));
    }
    size_ += piece.bytes;
  }

  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  std::byte* lane_;
  std::int64_t size_ = 0;
};

/// Returns the bytes of the lane to a rank, which are written where `lane` is not null.
std::int64_t write_lane(const Paths& paths,
                        const AskedIds& asked,
                        std::int64_t server,
                        std::byte* lane) {
  const Routing& routing = paths.routing();
  LaneWriter writer(lane);
  writer.skip(layout::slot_bits_bytes(routing.num_slots(server)));
  bool any = false;
  asked.for_slots_with_ids(server, [&](const SlotAddress& address, std::int64_t place) {
    const SlotCounts counts = asked.wire_counts(asked.slots[at(place)]);
    const SlotKind& slot = routing.kind(address);
    any = true;
    writer.mark(address.slot);
    writer.number(counts.ids);
    if (has_width(slot, counts.is_listed())) {
      writer.byte(counts.length_bytes);
    }
    if (slot.packed) {
      writer.number(counts.packed_bytes);
    }
  });
  if (!any) {
    return 0;
  }
  std::int64_t server_slot = asked.server_begins[at(server)];
  asked.for_slots_with_ids(server, [&](const SlotAddress& address, std::int64_t place) {
    asked.prefetch_sections(server_slot++);
    SlotPieces pieces;
    paths.of(address, asked.rank).add_pieces(asked, address, place, pieces);
    for (const comm::Piece& piece : pieces.all()) {
      writer.run(piece);
    }
  });
  return writer.size();
}

/// Reads the bits and counts of a lane.
class CountReader {
 public:
  CountReader(std::span<const std::byte> lane, std::int64_t begin, int sender)
      : lane_(lane), next_(begin), sender_(sender) {}

  std::int64_t byte() {
    if (next_ >= std::ssize(lane_)) {
      fail(ErrorCode::kComm,
           "id exchange: rank {}: the counts of a lane of {} bytes do not end in it", sender_,
           lane_.size());
    }
    return static_cast<std::int64_t>(lane_[at(next_++)]);
  }

  std::int32_t number() {
    std::int64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      const std::int64_t group = byte();
      value |= (group % 128) << shift;
      if (group < 128) {
        if (value > std::numeric_limits<std::int32_t>::max()) {
          break;
        }
        return static_cast<std::int32_t>(value);
      }
    }
    fail(ErrorCode::kComm, "id exchange: rank {}: a count of more than 2^31 - 1", sender_);
  }

  [[nodiscard]] std::int64_t next() const { return next_; }

 private:
  std::span<const std::byte> lane_;
  std::int64_t next_;
  int sender_;
};

/// Bits [64 i, 64 i + 64) of the slots of a lane, of which it has `bytes`.
std::uint64_t slot_bits(std::span<const std::byte> lane, std::int64_t bytes, std::int64_t i) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, lane.data() + 8 * i, at(std::min<std::int64_t>(8, bytes - 8 * i)));
  return word;
}

}  // namespace

void pack_id_lanes(ThreadPool& pool, const Paths& paths, AskedIds& asked) {
  const std::int64_t ranks = paths.routing().ranks;
  std::vector<std::int64_t>& begins = asked.lane_begins;
  begins.resize(at(ranks) + 1);
  begins[0] = 0;
  pool.parallel_for(ranks, [&](std::int64_t r) {
    begins[at(r) + 1] = r == asked.rank ? 0 : write_lane(paths, asked, r, nullptr);
  });
  for (std::int64_t r = 0; r < ranks; ++r) {
    begins[at(r) + 1] += begins[at(r)];
  }
  grow(asked.lane_bytes, begins.back());
  pool.parallel_for(ranks, [&](std::int64_t r) {
    std::vector<comm::Piece>& lane = asked.lanes[at(r)];
    lane.clear();
    const std::int64_t bytes = begins[at(r) + 1] - begins[at(r)];
    if (bytes > 0) {
      lane.push_back({asked.lane_bytes.data() + begins[at(r)], bytes});
      write_lane(paths, asked, r, asked.lane_bytes.data() + begins[at(r)]);
    }
  });
}

std::int64_t marked_slots(std::span<const std::byte> lane, std::int64_t slots, int sender) {
  const std::int64_t bytes = layout::slot_bits_bytes(slots);
  if (lane.empty()) {
    return 0;
  }
  if (std::ssize(lane) < bytes) {
    fail(ErrorCode::kComm, "id exchange: rank {}: a lane of {} bytes for {} slots", sender,
         lane.size(), slots);
  }
  if (slots % 8 > 0 && lane[at(bytes - 1)] >> (slots % 8) != std::byte{0}) {
    fail(ErrorCode::kComm, "id exchange: rank {}: a slot behind the last of {} is marked", sender,
         slots);
  }
  std::int64_t marked = 0;
  for (std::int64_t i = 0; 8 * i < bytes; ++i) {
    marked += count_bits(slot_bits(lane, bytes, i));
  }
  return marked;
}

std::int64_t read_slot_counts(std::span<const std::byte> lane,
                              std::span<const Slot> slots,
                              std::int64_t batch,
                              int sender,
                              std::span<ArrivedSlot> arrived) {
  if (lane.empty()) {
    return 0;
  }
  const auto all = std::ssize(slots);
  const std::int64_t bytes = layout::slot_bits_bytes(all);
  CountReader reader(lane, bytes, sender);
  auto to = arrived.begin();
  const auto read_slot = [&](std::int64_t j) {
    const Slot& slot = slots[at(j)];
    *to = {.slot = static_cast<std::int32_t>(j)};
    SlotCounts& one = (to++)->counts;
    one = {.batch = static_cast<std::int32_t>(batch), .length_bytes = 0, .ids = reader.number()};
    if (one.ids == 0) {
      fail(ErrorCode::kComm, "id exchange: rank {}: slot {} of {} is marked and has no ids", sender,
           j, all);
    }
    if (lists(slot, one.ids, batch)) {
      one.bag_bytes = static_cast<std::int16_t>(layout::listed_bag_bytes(batch));
    } else if (slot.fetch >= 0) {
      one.length_bytes = 4;
    } else {
      one.length_bytes = static_cast<std::int16_t>(reader.byte());
    }
    if (slot.packed) {
      one.packed_bytes = reader.number();
    }
  };
  for (std::int64_t i = 0; 8 * i < bytes; ++i) {
    for (std::uint64_t left = slot_bits(lane, bytes, i); left != 0; left &= left - 1) {
      read_slot(64 * i + std::countr_zero(left));
    }
  }
  return reader.next();
}

}  // namespace weft::sharding
