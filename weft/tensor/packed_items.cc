#include "weft/tensor/packed_items.h"

#include <cstring>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft {

std::vector<PackedItem> packed_items(const RowState::Shape& shape,
                                     const std::vector<StateItem>& items) {
  std::vector<PackedItem> places;
  std::int64_t state = shape.packed.state_offset();
  for (std::int64_t i = 0; i < shape.items; ++i) {
    const StateItem& item = items[at(shape.first_item + i)];
    const std::int64_t cols = item.col_end - item.col_begin;
    PackedItem place{.offset = i == 0 ? 0 : state, .cols = cols, .dtype = item.dtype};
    if (i == 0) {
      place.in_halves = shape.dtype == DType::kSplitBFloat16;
      place.low_offset = shape.packed.low_offset();
    } else {
      state += cols * size_of(item.dtype);
    }
    places.push_back(place);
  }
  WEFT_CHECK(state == shape.packed.bytes(), "items of {} take {} of the {} bytes of a packed row",
             shape.parameter, state, shape.packed.bytes());
  return places;
}

void copy_item(const PackedItem& item,
               const std::byte* packed,
               std::int64_t row_bytes,
               std::int64_t count,
               std::byte* out) {
  const std::int64_t bytes = item.cols * size_of(item.dtype);
  for (std::int64_t r = 0; r < count; ++r, packed += row_bytes, out += bytes) {
    if (!item.in_halves) {
      std::memcpy(out, packed + item.offset, at(bytes));
      continue;
    }
    for (std::int64_t c = 0; c < item.cols; ++c) {
      SplitBFloat16 halves;
      std::memcpy(&halves.high, packed + item.offset + c * 2, 2);
      std::memcpy(&halves.low, packed + item.low_offset + c * 2, 2);
      const float word = to_float(halves);
      std::memcpy(out + c * 4, &word, 4);
    }
  }
}

}  // namespace weft
