#include "weft/storage/row_layout.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::storage {
namespace {

constexpr std::int64_t kCacheLine = 64;
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

std::int64_t align(std::int64_t bytes, std::int64_t to) {
  return (bytes + to - 1) / to * to;
}

/// Rows of at least a line start on a line; smaller ones never cross more of them than they must.
std::int64_t interleaved_stride(std::int64_t bytes) {
  std::int64_t stride = 16;
  while (stride < bytes && stride < kCacheLine) {
    stride *= 2;
  }
  return align(bytes, stride);
}

}  // namespace

RowLayout row_layout(const spec::SparseOptimizer& optimizer) {
  const auto state = traits(optimizer.type).state();
  return std::any_of(state.begin(), state.end(),
                     [](const SparseStateKind& kind) { return kind.per_element; })
             ? RowLayout::kInterleaved
             : RowLayout::kSplit;
}

DType row_dtype(spec::RowDType dtype) {
  switch (dtype) {
    case spec::RowDType::kFp32:
      return DType::kFloat32;
    case spec::RowDType::kFp16:
      return DType::kFloat16;
    case spec::RowDType::kBf16:
      return DType::kBFloat16;
    case spec::RowDType::kSplitBf16:
      return DType::kSplitBFloat16;
  }
  fail(ErrorCode::kInternal, "row type number {} does not exist", static_cast<int>(dtype));
}

RowGeometry row_geometry(const spec::Table& table, std::int64_t rows, std::int64_t cols) {
  const bool halves = row_dtype(table.dtype) == DType::kSplitBFloat16;
  const std::int64_t low_bytes = halves ? cols * size_of(DType::kBFloat16) : 0;
  const std::int64_t weight_bytes = cols * size_of(row_dtype(table.dtype)) - low_bytes;
  const std::int64_t state_bytes = state_floats(table.optimizer.type, cols) * kFloat;
  RowGeometry geometry;
  geometry.row_bytes = weight_bytes + state_bytes + low_bytes;
  if (row_layout(table.optimizer) == RowLayout::kSplit) {
    geometry.weight_stride = weight_bytes;
    geometry.state_offset = align(rows * weight_bytes, kCacheLine);
    geometry.rest_stride = align(state_bytes + low_bytes, kFloat);
    geometry.total_bytes = geometry.state_offset + rows * geometry.rest_stride;
  } else {
    geometry.state_offset = align(weight_bytes, kFloat);
    geometry.weight_stride = interleaved_stride(geometry.state_offset + state_bytes + low_bytes);
    geometry.rest_stride = geometry.weight_stride;
    geometry.total_bytes = rows * geometry.weight_stride;
  }
  geometry.low_offset = geometry.state_offset + state_bytes;
  return geometry;
}

}  // namespace weft::storage
