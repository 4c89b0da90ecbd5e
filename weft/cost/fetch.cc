#include "weft/cost/fetch.h"

#include <algorithm>
#include <bit>

#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

constexpr double kIdBytes = 28.0;    // beside the passes
constexpr double kSortBytes = 16.0;  // of a pass
constexpr double kProbeBytes = 64.0;

}  // namespace

double disk_s(const topology::Cluster& cluster, const FetchWork& work) {
  const topology::Rate& rate = cluster.disk.read_blocks;
  return rate.value > 0.0 ? work.blocks / rate.achieved() : 0.0;
}

double fetch_s(const topology::Cluster& cluster, const FetchWork& work) {
  using topology::RowAccess;
  const auto bits =
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(work.rows, 2) - 1));
  const auto passes = static_cast<double>((bits + 10) / 11);
  return topology::sort_s(cluster, work.ids * (kIdBytes + kSortBytes * passes)) +
         work.unique * topology::row_s(cluster, RowAccess::kRead, kProbeBytes) +
         work.blocks * cluster.disk.block.value +
         work.missed * (topology::row_s(cluster, RowAccess::kRead, work.row_bytes) +
                        topology::row_s(cluster, RowAccess::kUpdate, work.row_bytes));
}

}  // namespace weft::cost
