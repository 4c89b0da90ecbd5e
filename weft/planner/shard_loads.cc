#include "weft/planner/shard_loads.h"

#include <algorithm>

#include "weft/planner/shard_cost.h"

namespace weft::planner {

ShardLoads::ShardLoads(const StepShape& shape) : shape_(shape) {
  for (const FeatureUse& use : shape.workload.features) {
    const auto table = static_cast<std::size_t>(use.table);
    by_frequency_.resize(std::max(by_frequency_.size(), table + 1), false);
    by_frequency_[table] = by_frequency_[table] || use.by_frequency;
  }
}

const ShardLoad& ShardLoads::of(const TableBlock& block) {
  const auto t = static_cast<std::size_t>(block.table);
  const HotUse* const hot_use = block.hot_use;
  const bool in_order = t < by_frequency_.size() && by_frequency_[t];
  const Key key{.table = block.table,
                .rows = in_order ? block.rows : RowSet(0, block.rows.size()),
                .cols = block.cols.size(),
                .column_shards = block.column_shards,
                .pooled_at = block.pooled_at,
                .hot_use = hot_use,
                .hot_rows = hot_use != nullptr && !in_order ? count_hot(*hot_use, block.rows) : 0};
  for (const Recent& recent : recent_) {
    if (recent.key == key && recent.load != nullptr) {
      return *recent.load;
    }
  }
  const auto [found, is_new] = known_.try_emplace(key);
  if (is_new) {
    found->second = shard_cost(shape_, block);
  }
  recent_[oldest_] = {.key = key, .load = &found->second};
  oldest_ = (oldest_ + 1) % recent_.size();
  return found->second;
}

const ShardLoad& ShardLoads::replica(std::int64_t table) {
  const auto [found, is_new] = replicas_.try_emplace(table);
  if (is_new) {
    found->second = replica_cost(shape_, table);
  }
  return found->second;
}

/// A table dealt out to thousands of shards asks for every remainder.
std::int64_t ShardLoads::count_hot(const HotUse& hot_use, const RowSet& rows) {
  if (rows.step == 1 || rows.begin >= rows.step) {
    return hot_use.rows->count(rows);
  }
  const auto [found, is_new] = remainders_.try_emplace({&hot_use, rows.step});
  if (is_new) {
    found->second.resize(static_cast<std::size_t>(rows.step));
    for (const Range& range : hot_use.rows->ranges()) {
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        ++found->second[static_cast<std::size_t>(row % rows.step)];
      }
    }
  }
  return found->second[static_cast<std::size_t>(rows.begin)];
}

std::size_t ShardLoads::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 0;
  for (const std::int64_t value :
       {key.table, key.rows.begin, key.rows.end, key.rows.step, key.cols, key.column_shards,
        static_cast<std::int64_t>(key.pooled_at), key.hot_rows}) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace weft::planner
