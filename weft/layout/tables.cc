#include "weft/layout/tables.h"

#include <algorithm>

namespace weft::layout {
namespace {

constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

ElementForm element_form(spec::RowDType dtype) {
  switch (dtype) {
    case spec::RowDType::kFp32:
      return ElementForm::kWord;
    case spec::RowDType::kSplitBf16:
      return ElementForm::kHalves;
    case spec::RowDType::kFp16:
    case spec::RowDType::kBf16:
      break;
  }
  return ElementForm::kHalf;
}

/// Rows of at least a line start on a line; smaller ones never cross more of them than they must.
std::int64_t interleaved_stride(std::int64_t bytes) {
  std::int64_t stride = 16;
  while (stride < bytes && stride < kCacheLine) {
    stride *= 2;
  }
  return round_up(bytes, stride);
}

}  // namespace

RowLayout row_layout(const spec::SparseOptimizer& optimizer) {
  const auto state = traits(optimizer.type).state();
  return std::any_of(state.begin(), state.end(),
                     [](const SparseStateKind& kind) { return kind.per_element; })
             ? RowLayout::kInterleaved
             : RowLayout::kSplit;
}

RowGeometry row_geometry(const spec::Table& table, std::int64_t rows, std::int64_t cols) {
  const PackedRow row = packed_row(table, cols);
  const std::int64_t rest_bytes = row.state_bytes + row.low_bytes;
  RowGeometry geometry;
  geometry.weight_bytes = row.weight_bytes;
  geometry.row_bytes = row.bytes();
  if (row_layout(table.optimizer) == RowLayout::kSplit) {
    geometry.weight_stride = geometry.weight_bytes;
    geometry.state_offset = round_up(rows * geometry.weight_bytes, kCacheLine);
    geometry.rest_stride = round_up(rest_bytes, kFloat);
    geometry.total_bytes = geometry.state_offset + rows * geometry.rest_stride;
  } else {
    geometry.state_offset = round_up(geometry.weight_bytes, kFloat);
    geometry.weight_stride = interleaved_stride(geometry.state_offset + rest_bytes);
    geometry.rest_stride = geometry.weight_stride;
    geometry.total_bytes = rows * geometry.weight_stride;
  }
  geometry.low_offset = geometry.state_offset + row.state_bytes;
  return geometry;
}

PackedRow packed_row(const spec::Table& table, std::int64_t cols) {
  return packed_row(element_form(table.dtype), cols, state_floats(table.optimizer.type, cols));
}

std::int64_t shard_bytes(const spec::Table& table, std::int64_t rows, std::int64_t cols) {
  return row_geometry(table, rows, cols).total_bytes;
}

std::int64_t resident_bytes(const spec::Table& table, std::int64_t rows, std::int64_t cols) {
  switch (table.memory.tier) {
    case spec::MemoryTier::kDense:
      break;
    case spec::MemoryTier::kLazy:
      return (rows + kPlacePageRows - 1) / kPlacePageRows *
             static_cast<std::int64_t>(sizeof(void*));
    case spec::MemoryTier::kSsd:
      return table.memory.cache_bytes;
  }
  return shard_bytes(table, rows, cols);
}

}  // namespace weft::layout
