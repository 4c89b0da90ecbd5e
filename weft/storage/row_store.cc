#include "weft/storage/row_store.h"

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft::storage {
namespace {

Buffer allocate(Device& device, const spec::Table& table, const layout::RowGeometry& geometry) {
  try {
    return Buffer(device, geometry.total_bytes);
  } catch (const Error& error) {
    fail(error.code(), "table '{}' needs {} for its rows and optimizer state on this rank: {}",
         table.name, format_bytes(static_cast<std::uint64_t>(geometry.total_bytes)), error.what());
  }
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

RowStore::RowStore(Device& device, const spec::Table& table, std::int64_t rows, std::int64_t cols)
    : rows_(rows),
      cols_(cols),
      dtype_(row_dtype(table.dtype)),
      state_floats_(weft::state_floats(table.optimizer.type, cols)),
      geometry_(layout::row_geometry(table, rows, cols)),
      memory_(allocate(device, table, geometry_)) {
}

}  // namespace weft::storage
