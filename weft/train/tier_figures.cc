#include "weft/train/tier_figures.h"

#include <array>
#include <cstddef>

namespace weft::train {
namespace {

using storage::StoreCounts;
using storage::TierCounts;

constexpr std::array kTierCounts = {&TierCounts::asked,   &TierCounts::hits,   &TierCounts::read,
                                    &TierCounts::made,    &TierCounts::late,   &TierCounts::spilled,
                                    &TierCounts::evicted, &TierCounts::written};

constexpr std::array kStoreCounts = {
    &StoreCounts::rows_written,     &StoreCounts::rows_stored,   &StoreCounts::rows_moved,
    &StoreCounts::rows_buffered,    &StoreCounts::rows_read,     &StoreCounts::groups_read,
    &StoreCounts::bytes_read,       &StoreCounts::bytes_written, &StoreCounts::segments_made,
    &StoreCounts::segments_removed, &StoreCounts::segment_bytes, &StoreCounts::live_bytes,
    &StoreCounts::rows_held,        &StoreCounts::index_bytes};

}  // namespace

TierFigures own_tier_figures(const spec::Config& config,
                             const sharding::ShardedEmbeddings& tables) {
  TierFigures figures;
  for (const spec::Table& table : config.tables) {
    if (table.memory.tier != spec::MemoryTier::kDense) {
      figures.tables.push_back({.table = table.name, .tier = table.memory.tier, .counts = {}});
    }
  }
  if (figures.empty()) {
    return figures;
  }
  for (const embedding::TableShard* shard : tables.shards()) {
    for (TableTier& one : figures.tables) {
      if (shard->tier() != nullptr && shard->table().name == one.table) {
        const TierCounts counts = shard->tier()->counts();
        for (const auto& count : kTierCounts) {
          one.counts.*count += counts.*count;
        }
      }
    }
  }
  if (tables.disk_rows() != nullptr) {
    figures.disks = tables.disk_rows()->counts();
  }
  return figures;
}

TierFigures tier_figures(comm::Communicator& comm,
                         Context& ctx,
                         const spec::Config& config,
                         const sharding::ShardedEmbeddings& tables) {
  TierFigures figures = own_tier_figures(config, tables);
  if (figures.empty()) {
    return figures;
  }
  std::vector<std::int64_t> sums;
  for (const TableTier& one : figures.tables) {
    for (const auto& count : kTierCounts) {
      sums.push_back(one.counts.*count);
    }
  }
  for (const auto& count : kStoreCounts) {
    sums.push_back(figures.disks.*count);
  }
  comm.all_reduce(ctx, sums.data(), static_cast<std::int64_t>(sums.size()), comm::ReduceOp::kSum);
  std::size_t next = 0;
  for (TableTier& one : figures.tables) {
    for (const auto& count : kTierCounts) {
      one.counts.*count = sums[next++];
    }
  }
  for (const auto& count : kStoreCounts) {
    figures.disks.*count = sums[next++];
  }
  return figures;
}

}  // namespace weft::train
