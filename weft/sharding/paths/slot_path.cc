#include "weft/sharding/paths/slot_path.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/sharding/output_step.h"

namespace weft::sharding {
namespace {

/// Returns a negative number where an id is outside [0, rows).
template <typename Id>
std::int64_t widen(WireNumbers<Id> ids, std::int64_t count, std::int64_t rows, std::int64_t* out) {
  std::int64_t outside = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]);
    out[i] = id;
    outside |= id | (rows - 1 - id);
  }
  return outside;
}

}  // namespace

std::string SlotPath::named(const ArrivedBlock& from) const {
  return fmt::format("id exchange: rank {}, {}", from.world_rank, routing_.name_of(*from.slot));
}

void SlotPath::check_pieces(const ArrivedBlock& from, std::span<const comm::Piece> expected) const {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (from.pieces[i].bytes != expected[i].bytes) {
      fail(ErrorCode::kComm, "{}: {} bytes have come, {} announced", named(from),
           from.pieces[i].bytes, expected[i].bytes);
    }
  }
}

void SlotPath::widen_ids(const ArrivedBlock& from, Range ids, std::int64_t* out) const {
  std::int64_t* const first = out + ids.begin;
  const std::int64_t rows = from.slot->rows.size();
  std::int64_t outside = 0;
  visit_width(from.slot->id_bytes, [&]<typename Id>(Id) {
    const auto* const data = static_cast<const std::byte*>(from.pieces[1].data);
    outside = widen(WireNumbers<Id>(data + ids.begin * static_cast<std::int64_t>(sizeof(Id))),
                    ids.size(), rows, first);
  });
  if (outside < 0) {
    const auto* const bad =
        std::find_if(first, first + ids.size(), [rows](auto id) { return id < 0 || id >= rows; });
    fail(ErrorCode::kComm, "{}: row {} is outside a shard of {} rows", named(from), *bad, rows);
  }
}

VectorPlace SlotPath::vectors_to(const OutputStep& output, const SlotKind& slot) const {
  return output.matrices.vectors_of(slot);
}

VectorPlace SlotPath::gradients_from(const OutputStep& output, const SlotKind& slot) const {
  return output.matrices.gradients_of(slot);
}

BlockCut SlotPath::cut_of_all_bags(const InputStep& input,
                                   const IncomingBlock& block,
                                   bool sequence,
                                   std::int64_t cut) const {
  const Range bags = input.asked.cut_bags[at(cut)];
  const Range vectors = sequence ? input.values_of(block.lookup, block.origin, bags) : bags;
  return {.bags = bags, .vectors = vectors, .gradients = vectors};
}

VectorDraws SlotPath::own_gradient_draws(const InputStep& input, const SlotKind& slot) const {
  VectorDraws draws{.of = slot.sequence ? VectorDraws::Of::kPlaces : VectorDraws::Of::kSamples,
                    .key = keys_.gradients[at(slot.feature)],
                    .first_sample = routing_.own_samples(input.batch().global_size, rank_).begin};
  if (slot.sequence) {
    const JaggedView view = input.batch().sparse.feature(slot.feature);
    draws.offsets = view.offsets.data();
    draws.bags = view.batch();
  }
  return draws;
}

}  // namespace weft::sharding
