// What others ask of a ReplicaSet beside the stages of a batch: syncs, counts, and rows as state.
#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/sharding/replica_set.h"

namespace weft::sharding {

void ReplicaSet::sync_replicas(Context& ctx, std::int64_t step) {
  if (replicas_differ_) {
    average_->run(ctx, step);
    replicas_differ_ = false;
  }
}

std::vector<ResidualState*> ReplicaSet::sync_residuals() const {
  return average_ ? average_->residual_states() : std::vector<ResidualState*>{};
}

TableOverflow ReplicaSet::overflow() const {
  TableOverflow overflow;
  for (const LocalShard& local : shards_) {
    const bool alike =
        local.replicated ? rank_ != 0 || group_ != 0 : group_gradients_ && group_ != 0;
    if (alike) {
      continue;  // replicas overflow alike, and the first of them says so
    }
    overflow.count += local.rows->overflow_count();
    if (overflow.table < 0 && local.rows->overflow_count() > 0) {
      overflow.table = local.table;
      overflow.row = local.rows->first_overflow_row();
    }
  }
  return overflow;
}

std::vector<TableReads> ReplicaSet::reads() const {
  std::vector<TableReads> all;
  for (const LocalShard& local : shards_) {
    const spec::Table& table = config_.tables[at(local.table)];
    const bool halves = table.dtype != spec::RowDType::kFp32;  // split_bf16: forward reads one
    // An atomic view of a constant is C++26's.
    auto& read = const_cast<std::int64_t&>(local.rows_read);
    const std::int64_t rows = std::atomic_ref(read).load(std::memory_order_relaxed);
    all.push_back({.table = local.table,
                   .rows = rows,
                   .bytes = rows * local.rows->cols().size() * (halves ? 2 : 4)});
  }
  return all;
}

std::vector<embedding::TableShard*> ReplicaSet::shards() const {
  std::vector<embedding::TableShard*> all;
  for (const LocalShard& local : shards_) {
    if (local.shard != kHotShard) {
      all.push_back(local.rows.get());
    }
  }
  return all;
}

std::vector<embedding::TableShard*> ReplicaSet::hot_shards() const {
  std::vector<embedding::TableShard*> all;
  for (const LocalShard& local : shards_) {
    if (local.shard == kHotShard) {
      all.push_back(local.rows.get());
    }
  }
  return all;
}

std::vector<HotTable> ReplicaSet::hot_tables() const {
  std::vector<HotTable> all;
  for (const LocalShard& hot : shards_) {
    if (hot.shard != kHotShard) {
      continue;
    }
    const spec::TablePlan& plan = plan_.tables[at(hot.table)];
    HotTable& table = all.emplace_back();
    table.plan = &plan;
    table.hot = hot.rows.get();
    table.shards.resize(plan.shards.size());
    for (const LocalShard& local : shards_) {
      if (local.table == hot.table && local.shard != kHotShard) {
        table.shards[at(local.shard)] = local.rows.get();
      }
    }
  }
  return all;
}

void ReplicaSet::store_hot_rows(Context& /*ctx*/) {
  for (const HotTable& table : hot_tables()) {
    store_hot(table);
    for (const embedding::TableShard* shard : table.shards) {
      if (average_ && shard != nullptr) {
        average_->stored(*shard, table.plan->hot);
      }
    }
  }
}

void ReplicaSet::load_hot_rows(Context& ctx) {
  for (const HotTable& table : hot_tables()) {
    load_hot(*rows_comm_, ctx, table);
  }
  if (average_) {
    average_->restored(ctx);
  }
}

std::int64_t ReplicaSet::bytes() const {
  std::int64_t total = 0;
  for (const LocalShard& local : shards_) {
    total += local.rows->bytes();
  }
  return total;
}

}  // namespace weft::sharding
