#include "weft/sharding/paths/paths.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/sharding/output_step.h"
#include "weft/sharding/paths/hot_rows_path.h"
#include "weft/sharding/paths/in_place.h"
#include "weft/sharding/paths/split_bags.h"
#include "weft/sharding/paths/unique_rows_path.h"
#include "weft/sharding/paths/whole_bags.h"

namespace weft::sharding {
namespace {

/// Returns a negative number where an id is outside [0, rows).
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

void widen_ids(const void* wire, const Slot& slot, Range ids, std::int64_t* out) {
  std::int64_t* const first = out + ids.begin;
  const std::int64_t rows = slot.rows.size();
  std::int64_t outside = 0;
  visit_width(slot.id_bytes, [&]<typename Id>(Id) {
    outside = widen(static_cast<const Id*>(wire) + ids.begin, ids.size(), rows, first);
  });
  if (outside < 0) {
    const auto* const bad =
        std::find_if(first, first + ids.size(), [rows](auto id) { return id < 0 || id >= rows; });
    fail(ErrorCode::kComm, "id exchange: row {} is outside a shard of {} rows", *bad, rows);
  }
}

Paths::Paths(const spec::Config& config, const Routing& routing, std::int64_t rank)
    : routing_(routing), rank_(rank), runs_(routing), keys_(config, routing) {
  const SlotPath::Parts parts{.routing = routing_, .runs = runs_, .keys = keys_, .rank = rank};
  const auto place = [this](Path path, std::unique_ptr<SlotPath> made) {
    paths_[static_cast<std::size_t>(path)] = std::move(made);
    return paths_[static_cast<std::size_t>(path)].get();
  };
  place(Path::kInPlace, std::make_unique<InPlace>(parts));
  place(Path::kWholeBags, std::make_unique<WholeBags>(parts));
  const SlotPath* split = place(Path::kSplitBags, std::make_unique<SplitBags>(parts));
  const SlotPath* unique = place(Path::kUniqueRows, std::make_unique<UniqueRowsPath>(parts));
  place(Path::kHotRows, std::make_unique<HotRowsPath>(parts, *split, *unique));
  for (std::size_t f = 0; f < routing.features.size(); ++f) {
    const Path path = routing.asks(static_cast<std::int64_t>(f), rank);
    features_.push_back(paths_[static_cast<std::size_t>(path)].get());
  }
}

VectorPlace SlotPath::vectors_to(const OutputStep& output, const Slot& slot) const {
  return output.matrices.vectors_of(slot);
}

VectorPlace SlotPath::gradients_from(const OutputStep& output, const Slot& slot) const {
  return output.matrices.gradients_of(slot);
}

VectorDraws SlotPath::own_gradient_draws(const InputStep& input, const Slot& slot) const {
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
