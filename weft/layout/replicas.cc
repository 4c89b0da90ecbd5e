#include "weft/layout/replicas.h"

namespace weft::layout {

SyncRow sync_row(const spec::Table& table, std::int64_t cols) {
  const bool halves = table.dtype == spec::RowDType::kFp16 || table.dtype == spec::RowDType::kBf16;
  SyncRow row{.weight_bytes = cols * (halves ? 2 : 4), .vectors = 1};
  for (const SparseStateKind& kind : traits(table.optimizer.type).state()) {
    row.state_floats += kind.per_element ? cols : 1;
    ++(kind.per_element ? row.vectors : row.single_floats);
  }
  return row;
}

}  // namespace weft::layout
