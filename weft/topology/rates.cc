#include "weft/topology/rates.h"

#include <algorithm>
#include <cstddef>

#include "weft/base/error.h"

namespace weft::topology {
namespace {

/// Seconds of one row of a point.
double point_s(const Cluster& cluster, const RowPoint& point, RowAccess access) {
  const double efficiency = cluster.compute.rows.efficiency;
  switch (access) {
    case RowAccess::kRead:
      return point.row_bytes / (point.read * efficiency);
    case RowAccess::kUpdate:
      return point.row_bytes / (point.update * efficiency);
    case RowAccess::kNear:
      return point.near > 0.0 ? point.row_bytes / (point.near * efficiency)
                              : near_s(cluster, point.row_bytes);
  }
  fail(ErrorCode::kInternal, "row access number {} does not exist", static_cast<int>(access));
}

}  // namespace

double row_s(const Cluster& cluster, RowAccess access, double row_bytes) {
  const RowRates& rows = cluster.compute.rows;
  WEFT_CHECK(!rows.points.empty(), "cluster '{}' has no rates of rows", cluster.name);
  if (row_bytes <= 0.0) {
    return 0.0;
  }
  const auto i = static_cast<std::size_t>(
      std::partition_point(rows.points.begin(), rows.points.end(),
                           [&](const RowPoint& point) { return point.row_bytes < row_bytes; }) -
      rows.points.begin());
  double seconds = 0.0;
  if (i == 0) {
    seconds = point_s(cluster, rows.points.front(), access);
  } else if (i == rows.points.size()) {
    const RowPoint& last = rows.points.back();
    seconds = point_s(cluster, last, access) * row_bytes / last.row_bytes;
  } else {
    const RowPoint& below = rows.points[i - 1];
    const RowPoint& above = rows.points[i];
    const double share = (row_bytes - below.row_bytes) / (above.row_bytes - below.row_bytes);
    seconds =
        (1.0 - share) * point_s(cluster, below, access) + share * point_s(cluster, above, access);
  }
  return seconds;
}

double gemm_flops_per_s(const Cluster& cluster, spec::Compute compute) {
  const double bf16 = cluster.compute.gemm_bf16.achieved();
  return compute == spec::Compute::kBf16 && bf16 > 0.0 ? bf16
                                                       : cluster.compute.gemm_fp32.achieved();
}

double dot_flops_per_s(const Cluster& cluster) {
  const Compute& compute = cluster.compute;
  return compute.dots.value > 0.0 ? compute.dots.achieved() : compute.gemm_fp32.achieved();
}

double copy_s(const Cluster& cluster, double bytes) {
  return bytes / cluster.compute.copy.achieved();
}

double near_s(const Cluster& cluster, double bytes) {
  return bytes /
         std::max(cluster.compute.copy.achieved(), 2.0 * cluster.links.self.rank.achieved());
}

double sort_s(const Cluster& cluster, double bytes) {
  const Rate& sort = cluster.compute.sort;
  return sort.value > 0.0 ? bytes / sort.achieved() : copy_s(cluster, bytes);
}

double table_capacity(const Cluster& cluster) {
  const Memory& memory = cluster.memory;
  const double bytes = memory.hbm.value > 0.0 ? memory.hbm.value : memory.ddr.value;
  return bytes * (1.0 - memory.reserve.value);
}

}  // namespace weft::topology
