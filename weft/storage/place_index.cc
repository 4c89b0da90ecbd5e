#include "weft/storage/place_index.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::storage {

PlaceIndex::PlaceIndex(std::int64_t rows)
    : rows_(rows), nodes_(at((rows + kPageRows * kNodePages - 1) / (kPageRows * kNodePages))) {
}

void PlaceIndex::set(std::int64_t row, PlaceCode code) {
  WEFT_CHECK(0 <= row && row < rows_, "row {} of {}", row, rows_);
  const std::int64_t page = row / kPageRows;
  auto& node = nodes_[at(page / kNodePages)];
  if (node == nullptr) {
    const std::int64_t pages = (rows_ + kPageRows - 1) / kPageRows;
    const std::int64_t own = std::min(kNodePages, pages - page / kNodePages * kNodePages);
    node = std::make_unique<std::uint32_t[]>(at(own));
    node_bytes_ += own * static_cast<std::int64_t>(sizeof(std::uint32_t));
  }
  std::uint32_t& number = node[at(page % kNodePages)];
  if (number == 0) {
    if (pages_ % kSlabPages == 0) {
      slabs_.push_back(std::make_unique<Slab>());
    }
    number = ++pages_;
  }
  (*slabs_[(number - 1) / kSlabPages])[entry_of(number, row)] = code;
}

std::int64_t PlaceIndex::bytes() const {
  return static_cast<std::int64_t>(nodes_.size() * sizeof(nodes_[0]) +
                                   slabs_.size() * (sizeof(Slab) + sizeof(slabs_[0]))) +
         node_bytes_;
}

}  // namespace weft::storage
