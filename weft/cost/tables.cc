#include "weft/cost/tables.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/base/error.h"
#include "weft/cost/rounding.h"
#include "weft/layout/tables.h"
#include "weft/topology/rates.h"

namespace weft::cost {
namespace {

using topology::Cluster;
using topology::RowAccess;

constexpr std::int64_t kFloat = sizeof(float);
constexpr double kEntryBytes = 64.0;  // of coalescing, beside the passes
constexpr double kPassBytes = 24.0;
constexpr double kNotedBytes = 24.0;
constexpr int kPartBits = 3;  // of 8 parts

double vectors(const ShardWork& work) {
  return work.pooled ? work.bags : work.ids;
}

}  // namespace

RowShape row_shape(const spec::Table& table, std::int64_t cols) {
  const layout::RowGeometry row = layout::row_geometry(table, 1, cols);
  const bool together = layout::row_layout(table.optimizer) == layout::RowLayout::kInterleaved;
  return {.weights = static_cast<double>(row.weight_bytes),
          .rest = static_cast<double>(row.row_bytes - row.weight_bytes),
          .stride = together ? static_cast<double>(row.weight_stride) : 0.0,
          .vector = static_cast<double>(cols * kFloat)};
}

double expected_unique(double rows, double ids) {
  return rows <= 1.0 ? std::min(rows, ids) : -rows * std::expm1(ids * std::log1p(-1.0 / rows));
}

double lookup_s(const Cluster& cluster,
                const spec::Table& table,
                std::int64_t cols,
                const ShardWork& work) {
  const RowShape row = row_shape(table, cols);
  const double near = work.ids * work.hot;
  const double written = vectors(work);
  return (work.ids - near) * topology::row_s(cluster, RowAccess::kRead, row.weights) +
         near * topology::row_s(cluster, RowAccess::kNear, row.weights) +
         written * work.cold * topology::row_s(cluster, RowAccess::kRead, row.vector) +
         topology::copy_s(cluster, written * (1.0 - work.cold) * row.vector);
}

double coalesce_bytes(std::int64_t rows, bool mixed) {
  const auto row_bits =
      std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 2) - 1));
  const auto passes = static_cast<double>((row_bits + (mixed ? kPartBits : 0) + 10) / 11);
  return kEntryBytes + kPassBytes * passes + (mixed ? kNotedBytes : 0.0);
}

double coalesce_s(const Cluster& cluster, std::int64_t rows, const ShardWork& work) {
  return topology::sort_s(cluster, work.ids * coalesce_bytes(rows, work.mixed));
}

double gradients_s(const Cluster& cluster, std::int64_t cols, const ShardWork& work) {
  const auto bytes = static_cast<double>(cols * kFloat);
  const double far = std::min(work.ids, vectors(work)) * work.cold;
  return far * topology::row_s(cluster, RowAccess::kRead, bytes) +
         (work.ids - far) * topology::row_s(cluster, RowAccess::kNear, bytes);
}

double update_s(const Cluster& cluster,
                const spec::Table& table,
                std::int64_t cols,
                const ShardWork& work) {
  const RowShape row = row_shape(table, cols);
  const auto update = [&](double bytes) {
    return topology::row_s(cluster, RowAccess::kUpdate, bytes);
  };
  const double lines = work.rows * row.rest / static_cast<double>(layout::kCacheLine);
  const double touched = row.rest < static_cast<double>(layout::kCacheLine) && lines > 0.0
                             ? expected_unique(lines, work.unique)
                             : work.unique;
  const double rows = row.stride > 0.0
                          ? work.unique * update(row.stride)
                          : work.unique * update(row.weights) + touched * update(row.rest);
  return gradients_s(cluster, cols, work) +
         std::max(0.0, work.ids - work.unique) * cluster.compute.repeat.value + rows +
         (rounds_rows(table.dtype) ? row_rounding_s(cluster, cols, work.unique) : 0.0);
}

}  // namespace weft::cost
