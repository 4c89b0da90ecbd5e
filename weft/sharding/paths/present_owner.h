/// Private to sharding/: which cut of a rule has a row, counted among the cuts that a batch asks.
#pragma once

#include <cstdint>

#include "weft/base/at.h"
#include "weft/sharding/asked_ids.h"
#include "weft/sharding/present_set.h"
#include "weft/sharding/row_owner.h"

namespace weft::sharding {

/// Of the cuts of a rule those that the batch asks, counted among themselves.
template <typename Owner>
class PresentOwner {
 public:
  PresentOwner(const Owner& owner, const AskedIds& asked, std::int64_t feature)
      : owner_(owner),
        present_(asked.present),
        first_number_(asked.routing->features[at(feature)].first_number),
        first_place_(asked.features[at(feature)].first_place - asked.routing->num_listed) {}

  [[nodiscard]] RowPlace place_of(std::int64_t row) const {
    const RowPlace place = owner_.place_of(row);
    const std::int64_t number = first_number_ + static_cast<std::int64_t>(place.cut);
    return {at(present_.place(number) - first_place_), place.index};
  }

 private:
  const Owner& owner_;
  const PresentSet& present_;
  std::int64_t first_number_, first_place_;
};

}  // namespace weft::sharding
