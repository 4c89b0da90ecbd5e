/// How a slot of a feature whose bags are split says which bags its ids are of: by the lengths of
/// all bags, or, where it has few ids, by a list of the bag of each (weft/sharding/wire_ids.h).
#pragma once

#include <cstdint>

#include "weft/spec/plan.h"

namespace weft::layout {

/// Bytes of an id's bag among `batch` bags that are listed: they hold the last one.
constexpr std::int64_t listed_bag_bytes(std::int64_t batch) {
  return spec::id_bytes(batch);
}

/// Whether the bags of `ids` ids among `batch` bags are listed: where the list is at most half as
/// long as lengths of one byte, so that a slot costs what its ids cost. Where lengths are nearly as
/// short they are sent, as they are written faster. `Number` may be an expected one.
template <typename Number>
constexpr bool lists_bags(Number ids, std::int64_t batch) {
  return 2 * ids * static_cast<Number>(listed_bag_bytes(batch)) <= static_cast<Number>(batch);
}

/// Whether it is listed, bag by bag, which partial sums each is made of, where its ids are in so
/// many cuts of rows. Of few cuts the list takes longer to write than looking into each of them.
constexpr bool lists_terms(std::int64_t cuts) {
  constexpr std::int64_t kFewCuts = 8;
  return cuts > kFewCuts;
}

}  // namespace weft::layout
