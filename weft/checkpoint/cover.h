/// Private to checkpoint/: blocks that must cover a matrix exactly once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"

namespace weft::checkpoint {

/// A block of a matrix. All blocks of one matrix have rows of one step.
struct Rect {
  RowSet rows;
  Range cols;
};

/// A matrix, for find_cover_fault().
struct MatrixSize {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t element_bytes = 1;
};

/// rows x cols elements as bytes, or -1 where that does not fit 64 bits.
std::int64_t area_bytes(const MatrixSize& size);

/// What is wrong with blocks that lie in a matrix of a size that fits 64 bits and should cover it
/// once; empty if nothing. O(n log n).
std::string find_cover_fault(std::vector<Rect> rects, const MatrixSize& size);

}  // namespace weft::checkpoint
