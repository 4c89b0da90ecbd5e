#include "weft/cost/replicas.h"

#include <algorithm>

#include "weft/cost/codec.h"
#include "weft/cost/tables.h"

namespace weft::cost {
namespace {

constexpr double kRoundBytes = 64.0 * 1024.0 * 1024.0;

/// Matrices of a row's optimizer state.
struct StateParts {
  std::int64_t per_element = 0;
  std::int64_t per_row = 0;
};

StateParts state_parts(SparseOptimizerKind optimizer) {
  StateParts parts;
  for (const SparseStateKind& kind : traits(optimizer).state()) {
    ++(kind.per_element ? parts.per_element : parts.per_row);
  }
  return parts;
}

bool is_coded(const spec::Codecs& codecs) {
  return codecs.sync != CodecFormat::kFp32;
}

}  // namespace

double replica_row_bytes(const spec::Table& table, std::int64_t cols) {
  const RowShape shape = row_shape(table, cols);
  return shape.weights + shape.rest;
}

double coded_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs) {
  const StateParts state = state_parts(table.optimizer.type);
  return static_cast<double>((1 + state.per_element) *
                                 encoded_bytes(codecs.sync, codecs.group_size, cols) +
                             state.per_row * encoded_bytes(codecs.sync, codecs.group_size, 1));
}

double sync_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs) {
  return is_coded(codecs) ? coded_row_bytes(table, cols, codecs) : replica_row_bytes(table, cols);
}

double coded_sync_memory(const spec::Table& table,
                         double rows,
                         std::int64_t cols,
                         const spec::Codecs& codecs) {
  if (!is_coded(codecs)) {
    return 0.0;
  }
  const StateParts state = state_parts(table.optimizer.type);
  const auto numbers = static_cast<double>((1 + state.per_element) * cols + state.per_row);
  return rows * (replica_row_bytes(table, cols) + (codecs.error_feedback ? 4.0 * numbers : 0.0));
}

double coded_sync_buffers(
    std::int64_t groups, double bytes, double touched, bool receives, const spec::Codecs& codecs) {
  if (!is_coded(codecs)) {
    return 0.0;
  }
  const double round = std::min(bytes, kRoundBytes);
  const double others = static_cast<double>(groups - 1) / static_cast<double>(groups);
  return round + (receives ? others * round : 0.0) + 5.0 * touched;
}

}  // namespace weft::cost
