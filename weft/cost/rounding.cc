#include "weft/cost/rounding.h"

#include "weft/layout/blocks.h"

namespace weft::cost {

double row_rounding_s(const topology::Cluster& cluster, std::int64_t cols, double rows) {
  return rows * static_cast<double>(layout::round_up(cols, 16)) * cluster.compute.draw.value;
}

double vector_rounding_s(const topology::Cluster& cluster, std::int64_t cols, double vectors) {
  return vectors * static_cast<double>(2 * layout::round_up(cols, 64)) * cluster.compute.draw.value;
}

bool rounds_rows(spec::RowDType dtype) {
  return dtype == spec::RowDType::kFp16 || dtype == spec::RowDType::kBf16;
}

}  // namespace weft::cost
