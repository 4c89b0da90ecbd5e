#include "weft/cost/replicas.h"

#include "weft/cost/tables.h"

namespace weft::cost {

double replica_row_bytes(const spec::Table& table, std::int64_t cols) {
  const RowShape shape = row_shape(table, cols);
  return shape.weights + shape.rest;
}

}  // namespace weft::cost
