#include "weft/sharding/paths/paths.h"

#include "weft/sharding/paths/hot_rows_path.h"
#include "weft/sharding/paths/in_place.h"
#include "weft/sharding/paths/split_bags.h"
#include "weft/sharding/paths/unique_rows_path.h"
#include "weft/sharding/paths/whole_bags.h"

namespace weft::sharding {

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

}  // namespace weft::sharding
