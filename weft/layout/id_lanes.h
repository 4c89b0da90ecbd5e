/// How the ids of a batch travel between two ranks, and how many bytes tell the server what has
/// come.
///
/// Notation: W ranks, K slots that the receiver serves.
///
///   direct   of at most 8 ranks. The counts of all K slots are exchanged first; then the lane of
///            ids has the pieces of each slot.
///   packed   of more ranks. Only the bytes of the lane are told first. The lane is one run: marks,
///            which say which of the K slots have ids; the counts of those that have; then what
///            each of them sends. A lane without ids has no byte at all.
///
/// Marks are a bit for each of the K slots. Of more than 128 slots they begin with how many are
/// marked, and are a list of the numbers of these where that is shorter than bits.
///
/// So among many ranks counts cost what is there, and ids are copied once more where they are sent;
/// among few ranks ids are read where they are packed. A rule, equal on all ranks.
#pragma once

#include <cmath>
#include <cstdint>

#include "weft/spec/plan.h"

namespace weft::layout {

/// Groups of at most so many ranks have direct lanes.
inline constexpr std::int64_t kMostDirectLanes = 8;

/// Whether groups of so many ranks have packed lanes.
constexpr bool packs_id_lanes(std::int64_t ranks) {
  return ranks > kMostDirectLanes;
}

/// Bytes of the bits that say which of so many slots have ids.
constexpr std::int64_t slot_bits_bytes(std::int64_t slots) {
  return (slots + 7) / 8;
}

/// Bytes of a number in groups of 7 bits, the lowest first, of which all but the last have bit 7
/// set (LEB128). Requires number >= 0.
constexpr std::int64_t number_bytes(std::int64_t number) {
  std::int64_t bytes = 1;
  for (; number >= 128; number /= 128) {
    ++bytes;
  }
  return bytes;
}

/// Lanes to at most so many slots have bits, and do not tell how many are marked.
inline constexpr std::int64_t kMostSlotsByBits = 128;

/// Bytes of the number of a slot, one of so many, where marked ones are listed.
constexpr std::int64_t listed_slot_bytes(std::int64_t slots) {
  return spec::id_bytes(slots);
}

/// Returns whether a lane to so many slots, of which `marked` have ids, lists these.
constexpr bool lists_slots(std::int64_t slots, std::int64_t marked) {
  return slots > kMostSlotsByBits && marked * listed_slot_bytes(slots) < slot_bits_bytes(slots);
}

/// Bytes of the marks of a lane in which `marked` of so many slots have ids. Requires marked > 0.
constexpr std::int64_t slot_marks_bytes(std::int64_t slots, std::int64_t marked) {
  const std::int64_t count = slots > kMostSlotsByBits ? number_bytes(marked) : 0;
  return count +
         (lists_slots(slots, marked) ? marked * listed_slot_bytes(slots) : slot_bits_bytes(slots));
}

/// The share of slots that have an id at all where `ids` are expected.
inline double share_with_ids(double ids) {
  return -std::expm1(-ids);
}

/// Expected bytes of the counts of a slot in a packed lane, which has ids with a probability of
/// `share`: the number of what is sent, `expected` in all; `width_bytes` that tell the width of
/// lengths; and the bytes of packed rows where there are some.
inline double slot_count_bytes(double share,
                               double expected,
                               double width_bytes,
                               double packed_bytes) {
  if (share <= 0.0) {
    return 0.0;
  }
  const auto bytes_of = [share](double number) {
    return static_cast<double>(number_bytes(std::llround(number / share)));
  };
  return share *
         (bytes_of(expected) + width_bytes + (packed_bytes > 0.0 ? bytes_of(packed_bytes) : 0.0));
}

}  // namespace weft::layout
