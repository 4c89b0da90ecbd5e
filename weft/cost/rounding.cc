#include "weft/cost/rounding.h"

namespace weft::cost {

double rounding_s(const topology::Cluster& cluster, std::int64_t cols, double vectors) {
  constexpr std::int64_t kAtOnce = 64;  // columns
  const std::int64_t drawn = (cols + kAtOnce - 1) / kAtOnce * kAtOnce;
  return vectors * static_cast<double>(drawn) * cluster.compute.draw.value;
}

bool rounds_rows(spec::RowDType dtype) {
  return dtype == spec::RowDType::kFp16 || dtype == spec::RowDType::kBf16;
}

}  // namespace weft::cost
