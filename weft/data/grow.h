/// Private to data/: vectors that are filled anew for every batch.
#pragma once

#include <cstddef>
#include <vector>

namespace weft::data {

/// resize() that leaves a quarter of room when it grows, so that batches of somewhat different
/// sizes soon allocate nothing.
template <typename T>
void resize_with_room(std::vector<T>& values, std::size_t size) {
  if (size > values.capacity()) {
    values.reserve(size + size / 4);
  }
  values.resize(size);
}

}  // namespace weft::data
