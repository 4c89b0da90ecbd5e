#include "weft/storage/row_store.h"

#include <algorithm>
#include <string_view>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft::storage {
namespace {

/// Throws `error` again with the table's name.
[[noreturn]] void fail_memory(const Error& error, std::string_view table, std::int64_t bytes) {
  fail(error.code(), "table '{}' needs {} for its rows and optimizer state on this rank: {}", table,
       format_bytes(static_cast<std::uint64_t>(bytes)), error.what());
}

}  // namespace

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

RowStore::RowStore(Device& device,
                   const spec::Table& table,
                   std::int64_t rows,
                   std::int64_t cols,
                   StoreMemory memory)
    : rows_(rows),
      cols_(cols),
      dtype_(row_dtype(table.dtype)),
      state_floats_(weft::state_floats(table.optimizer.type, cols)),
      geometry_(layout::row_geometry(table, rows, cols)),
      table_(table.name),
      capacity_(memory == StoreMemory::kWhole ? rows : 0) {
  const bool is_interleaved =
      layout::row_layout(table.optimizer) == layout::RowLayout::kInterleaved;
  std::byte* rest = nullptr;  // of row 0
  try {
    if (memory == StoreMemory::kWhole) {
      memory_ = Buffer(device, geometry_.total_bytes);
      weights_ = memory_.as<std::byte>() + geometry_.weight_offset;
      rest = memory_.as<std::byte>() + geometry_.state_offset;
    } else {
      growing_weights_ = std::make_unique<ReservedBuffer>(device, rows * geometry_.weight_stride);
      weights_ = growing_weights_->as<std::byte>();
      if (is_interleaved) {
        rest = weights_ + geometry_.state_offset;
      } else {
        growing_rest_ = std::make_unique<ReservedBuffer>(device, rows * geometry_.rest_stride);
        rest = growing_rest_->as<std::byte>();
      }
    }
  } catch (const Error& error) {
    fail_memory(error, table.name, geometry_.total_bytes);
  }
  state_ = state_floats_ == 0 ? nullptr : rest;
  low_ = dtype_ == DType::kSplitBFloat16 ? rest + (geometry_.low_offset - geometry_.state_offset)
                                         : nullptr;
}

void RowStore::grow(std::int64_t rows) {
  WEFT_CHECK(growing_weights_ != nullptr && rows <= rows_, "{} of {} rows of table '{}'", rows,
             rows_, table_);
  if (rows <= capacity_) {
    return;
  }
  try {
    growing_weights_->grow(rows * geometry_.weight_stride);
    capacity_ = std::min(rows_, growing_weights_->capacity() / geometry_.weight_stride);
    if (growing_rest_ != nullptr && geometry_.rest_stride > 0) {
      growing_rest_->grow(rows * geometry_.rest_stride);
      capacity_ = std::min(capacity_, growing_rest_->capacity() / geometry_.rest_stride);
    }
  } catch (const Error& error) {
    fail_memory(error, table_,
                rows * (geometry_.weight_stride + (growing_rest_ ? geometry_.rest_stride : 0)));
  }
}

std::int64_t RowStore::bytes() const {
  if (growing_weights_ == nullptr) {
    return geometry_.total_bytes;
  }
  return growing_weights_->capacity() + (growing_rest_ ? growing_rest_->capacity() : 0);
}

}  // namespace weft::storage
