#include "weft/cost/replicas.h"

#include "weft/cost/codec.h"
#include "weft/cost/tables.h"
#include "weft/layout/replicas.h"

namespace weft::cost {
namespace {

bool is_coded(const spec::Codecs& codecs) {
  return codecs.sync != CodecFormat::kFp32;
}

}  // namespace

double replica_row_bytes(const spec::Table& table, std::int64_t cols) {
  const RowShape shape = row_shape(table, cols);
  return shape.weights + shape.rest;
}

double coded_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs) {
  const layout::SyncRow row = layout::sync_row(table, cols);
  return static_cast<double>(row.vectors * encoded_bytes(codecs.sync, codecs.group_size, cols) +
                             row.single_floats * encoded_bytes(codecs.sync, codecs.group_size, 1));
}

double sync_row_bytes(const spec::Table& table, std::int64_t cols, const spec::Codecs& codecs) {
  return is_coded(codecs) ? coded_row_bytes(table, cols, codecs) : replica_row_bytes(table, cols);
}

}  // namespace weft::cost
