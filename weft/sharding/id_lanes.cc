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

/// Writes what layout::number_bytes() counts; returns where it ends.
std::byte* write_number(std::byte* to, std::int64_t value) {
  for (; value >= 128; value /= 128) {
    *to++ = static_cast<std::byte>(value % 128 + 128);
  }
  *to++ = static_cast<std::byte>(value);
  return to;
}

/// Copies a piece; returns where it ends. Most pieces of slots with few ids have a few bytes: these
/// are copied without a call, by one number from either end.
std::byte* write_bytes(std::byte* to, const void* from, std::int64_t bytes) {
  const auto copy_ends = [&]<typename T>(T) {
    const auto* const data = static_cast<const std::byte*>(from);
    const auto last = bytes - static_cast<std::int64_t>(sizeof(T));
    T front, back;
    std::memcpy(&front, data, sizeof(T));
    std::memcpy(&back, data + last, sizeof(T));
    std::memcpy(to, &front, sizeof(T));
    std::memcpy(to + last, &back, sizeof(T));
  };
  if (bytes > 16) {
    std::memcpy(to, from, at(bytes));
  } else if (bytes >= 8) {
    copy_ends(std::uint64_t{});
  } else if (bytes >= 4) {
    copy_ends(std::uint32_t{});
  } else if (bytes >= 2) {
    copy_ends(std::uint16_t{});
  } else if (bytes == 1) {
    *to = *static_cast<const std::byte*>(from);
  }
  return to + bytes;
}

/// Returns how long the lane to a rank is, by the counts of its slots.
LaneBytes lane_bytes(const Paths& paths, const AskedIds& asked, std::int64_t server) {
  const Routing& routing = paths.routing();
  const std::int64_t marked = asked.marked_slots(server);
  if (marked == 0) {
    return {};
  }
  std::int64_t counts_bytes = layout::slot_marks_bytes(routing.num_slots(server), marked);
  std::int64_t sections_bytes = 0;
  asked.for_slots_with_ids(server, [&](const SlotAddress& address, std::int64_t place) {
    const SlotCounts counts = asked.wire_counts(asked.slots[at(place)]);
    const SlotKind& slot = routing.kind(address);
    counts_bytes += layout::number_bytes(counts.ids) +
                    (has_width(slot, counts.is_listed()) ? 1 : 0) +
                    (slot.packed ? layout::number_bytes(counts.packed_bytes) : 0);
    sections_bytes += paths.between_ranks(slot).section_bytes(slot, counts, asked.rank);
  });
  return {counts_bytes, counts_bytes + sections_bytes};
}

/// Writes which slots of a server have ids; returns where that ends.
std::byte* write_marks(const AskedIds& asked,
                       std::int64_t server,
                       std::int64_t slots,
                       std::byte* to) {
  const std::int64_t marked = asked.marked_slots(server);
  if (slots > layout::kMostSlotsByBits) {
    to = write_number(to, marked);
  }
  const std::span<const ServerSlot> all = asked.slots_of(server);
  if (layout::lists_slots(slots, marked)) {
    visit_width(layout::listed_slot_bytes(slots), [&]<typename Number>(Number) {
      for (const ServerSlot& one : all) {
        const auto number = static_cast<Number>(one.slot);
        std::memcpy(to, &number, sizeof number);
        to += sizeof number;
      }
    });
    return to;
  }
  const std::int64_t bytes = layout::slot_bits_bytes(slots);
  std::memset(to, 0, at(bytes));
  for (const ServerSlot& one : all) {
    to[one.slot / 8] |= std::byte{1} << (one.slot % 8);
  }
  return to + bytes;
}

/// Writes the lane of so many bytes to a rank, counts and sections side by side.
void write_lane(const Paths& paths,
                const AskedIds& asked,
                std::int64_t server,
                const LaneBytes& bytes,
                std::byte* lane) {
  const Routing& routing = paths.routing();
  std::byte* count = write_marks(asked, server, routing.num_slots(server), lane);
  std::byte* section = lane + bytes.counts;
  std::int64_t server_slot = asked.server_begins[at(server)];
  asked.for_slots_with_ids(server, [&](const SlotAddress& address, std::int64_t place) {
    asked.prefetch_sections(server_slot++);
    const SlotCounts counts = asked.wire_counts(asked.slots[at(place)]);
    const SlotKind& slot = routing.kind(address);
    count = write_number(count, counts.ids);
    if (has_width(slot, counts.is_listed())) {
      *count++ = static_cast<std::byte>(counts.length_bytes);
    }
    if (slot.packed) {
      count = write_number(count, counts.packed_bytes);
    }
    SlotPieces pieces;
    paths.between_ranks(slot).add_pieces(asked, address, place, pieces);
    for (const comm::Piece& piece : pieces.all()) {
      WEFT_CHECK(piece.bytes <= lane + bytes.all - section,
                 "{} sends rank {} more ids than announced", routing.name_of(slot), server);
      section = write_bytes(section, piece.data, piece.bytes);
    }
  });
  WEFT_CHECK(count == lane + bytes.counts && section == lane + bytes.all,
             "the lane of ids to rank {} is not as long as announced", server);
}

/// Reads the numbers of a lane.
class NumberReader {
 public:
  NumberReader(std::span<const std::byte> lane, std::int64_t begin, int sender)
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

/// The marks of a lane that has ids.
struct Marks {
  std::int64_t count = -1;  ///< of marked slots; -1 where it is not told
  bool is_list = false;
  std::span<const std::byte> bytes;  ///< the list, or the bits
  std::int64_t end = 0;              ///< in the lane, behind them
};

/// Throws Error(kComm) that names the sender where they do not end in the lane.
Marks marks_of(std::span<const std::byte> lane, std::int64_t slots, int sender) {
  Marks marks;
  std::int64_t begin = 0;
  std::int64_t bytes = layout::slot_bits_bytes(slots);
  if (slots > layout::kMostSlotsByBits) {
    NumberReader reader(lane, 0, sender);
    marks.count = reader.number();
    begin = reader.next();
    marks.is_list = layout::lists_slots(slots, marks.count);
    if (marks.is_list) {
      bytes = marks.count * layout::listed_slot_bytes(slots);
    }
  }
  if (std::ssize(lane) - begin < bytes) {
    fail(ErrorCode::kComm, "id exchange: rank {}: a lane of {} bytes for {} slots", sender,
         lane.size(), slots);
  }
  marks.bytes = lane.subspan(at(begin), at(bytes));
  marks.end = begin + bytes;
  return marks;
}

/// Returns bits [64 i, 64 i + 64) of the slots of a lane. All words but the last are read without a
/// call.
std::uint64_t slot_bits(std::span<const std::byte> bits, std::int64_t i) {
  static_assert(std::endian::native == std::endian::little);
  const std::byte* const begin = bits.data() + 8 * i;
  std::uint64_t word = 0;
  if (8 * (i + 1) <= std::ssize(bits)) {
    std::memcpy(&word, begin, sizeof word);
  } else {
    std::memcpy(&word, begin, bits.size() - at(8 * i));
  }
  return word;
}

/// Counts the bits of so many slots, and checks those behind the last.
std::int64_t count_slot_bits(std::span<const std::byte> bits, std::int64_t slots, int sender) {
  if (slots % 8 > 0 && bits.back() >> (slots % 8) != std::byte{0}) {
    fail(ErrorCode::kComm, "id exchange: rank {}: a slot behind the last of {} is marked", sender,
         slots);
  }
  std::int64_t marked = 0;
  for (std::int64_t i = 0; 8 * i < std::ssize(bits); ++i) {
    marked += count_bits(slot_bits(bits, i));
  }
  return marked;
}

/// Calls visit(slot) for the marked slots, ascending. Throws Error(kComm) that names the sender
/// where a list does not ascend or has a slot that there is not.
template <typename Visit>
void for_marked(const Marks& marks, std::int64_t slots, int sender, const Visit& visit) {
  if (!marks.is_list) {
    for (std::int64_t i = 0; 8 * i < std::ssize(marks.bytes); ++i) {
      for (std::uint64_t left = slot_bits(marks.bytes, i); left != 0; left &= left - 1) {
        visit(64 * i + std::countr_zero(left));
      }
    }
    return;
  }
  std::int64_t before = -1;
  visit_width(layout::listed_slot_bytes(slots), [&]<typename Number>(Number number) {
    for (std::size_t i = 0; i < marks.bytes.size(); i += sizeof number) {
      std::memcpy(&number, marks.bytes.data() + i, sizeof number);
      const auto slot = static_cast<std::int64_t>(number);
      if (slot <= before || slot >= slots) {
        fail(ErrorCode::kComm, "id exchange: rank {}: slot {} of {} is listed behind slot {}",
             sender, slot, slots, before);
      }
      before = slot;
      visit(slot);
    }
  });
}

}  // namespace

void pack_id_lanes(ThreadPool& pool, const Paths& paths, AskedIds& asked) {
  const std::int64_t ranks = paths.routing().ranks;
  std::vector<LaneBytes>& sizes = asked.lane_sizes;
  sizes.resize(at(ranks));
  pool.parallel_for(ranks, [&](std::int64_t r) {
    sizes[at(r)] = r == asked.rank ? LaneBytes{} : lane_bytes(paths, asked, r);
  });
  std::int64_t bytes = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    bytes += sizes[at(r)].all;
  }
  grow(asked.lane_bytes, bytes);
  std::byte* next = asked.lane_bytes.data();
  asked.lanes.clear();
  for (std::int64_t r = 0; r < ranks; ++r) {
    if (sizes[at(r)].all > 0) {
      asked.lanes.add({next, sizes[at(r)].all});
      next += sizes[at(r)].all;
    }
    asked.lanes.end_lane();
  }
  pool.parallel_for(ranks, [&](std::int64_t r) {
    for (const comm::Piece& run : asked.lane(r)) {
      write_lane(paths, asked, r, sizes[at(r)], static_cast<std::byte*>(run.data));
    }
  });
}

std::int64_t marked_slots(std::span<const std::byte> lane, std::int64_t slots, int sender) {
  if (lane.empty()) {
    return 0;
  }
  const Marks marks = marks_of(lane, slots, sender);
  const std::int64_t marked =
      marks.is_list ? marks.count : count_slot_bits(marks.bytes, slots, sender);
  if (marked == 0) {
    fail(ErrorCode::kComm, "id exchange: rank {}: no slot of {} is marked in a lane of {} bytes",
         sender, slots, lane.size());
  }
  if (marks.count >= 0 && marks.count != marked) {
    fail(ErrorCode::kComm, "id exchange: rank {}: {} of {} slots are marked, {} announced", sender,
         marked, slots, marks.count);
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
  const Marks marks = marks_of(lane, all, sender);
  NumberReader reader(lane, marks.end, sender);
  auto to = arrived.begin();
  for_marked(marks, all, sender, [&](std::int64_t j) {
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
  });
  return reader.next();
}

}  // namespace weft::sharding
