#include "weft/planner/plan_cost.h"

#include <algorithm>

namespace weft::planner {
namespace {

template <typename Of>
double max_over_mean(const std::vector<RankCost>& ranks, const Of& of) {
  double most = 0.0;
  double sum = 0.0;
  for (const RankCost& rank : ranks) {
    most = std::max(most, of(rank));
    sum += of(rank);
  }
  return sum > 0.0 ? most * static_cast<double>(ranks.size()) / sum : 1.0;
}

}  // namespace

bool rows_are_cut(const spec::TablePlan& table) {
  return std::any_of(table.shards.begin(), table.shards.end(), [&](const spec::Shard& shard) {
    return shard.rows != table.shards.front().rows;
  });
}

bool is_fetched(const spec::TablePlan& table) {
  return table.pooled_at == spec::PooledAt::kSample && (rows_are_cut(table) || !table.hot.empty());
}

TableBlock block_of(std::int64_t table,
                    const spec::Shard& shard,
                    spec::PooledAt pooled_at,
                    const HotUse* hot_use) {
  return {.table = table,
          .rows = shard.rows,
          .cols = shard.cols,
          .pooled_at = pooled_at,
          .hot_use = hot_use};
}

ShardLoad& ShardLoad::operator+=(const ShardLoad& other) {
  lookup_s += other.lookup_s;
  coalesce_s += other.coalesce_s;
  update_s += other.update_s;
  encode_s += other.encode_s;
  decode_s += other.decode_s;
  ids += other.ids;
  unique += other.unique;
  asked_ids += other.asked_ids;
  ids_bytes += other.ids_bytes;
  vector_bytes += other.vector_bytes;
  gradient_bytes += other.gradient_bytes;
  statistic_bytes += other.statistic_bytes;
  partials += other.partials;
  bytes += other.bytes;
  synced_bytes += other.synced_bytes;
  list_bytes += other.list_bytes;
  partial_bytes += other.partial_bytes;
  average_s += other.average_s;
  sync_memory += other.sync_memory;
  return *this;
}

double RankCost::own_s() const {
  return load.lookup_s + load.coalesce_s + load.update_s + load.encode_s + load.decode_s;
}

double PlanCost::imbalance() const {
  return max_over_mean(ranks, [](const RankCost& rank) { return rank.own_s(); });
}

double PlanCost::bytes_imbalance() const {
  return max_over_mean(ranks,
                       [](const RankCost& rank) { return static_cast<double>(rank.table_bytes); });
}

}  // namespace weft::planner
