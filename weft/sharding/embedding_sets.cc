#include "weft/sharding/embedding_sets.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::sharding {
namespace {

bool is_replicated(const spec::TablePlan& table) {
  return table.sharding == spec::Sharding::kDataParallel;
}

/// The numbers of groups of tables, ascending; where none has any, the plan's.
std::set<std::int64_t> numbers_of_groups(const spec::Plan& plan) {
  std::set<std::int64_t> numbers;
  for (const spec::TablePlan& table : plan.tables) {
    if (!is_replicated(table)) {
      numbers.insert(plan.groups_of(table));
    }
  }
  if (numbers.empty()) {
    numbers.insert(plan.groups);
  }
  return numbers;
}

/// The whole table on each of `ranks` ranks.
std::vector<spec::Shard> on_all(const spec::TablePlan& table, std::int64_t ranks) {
  std::vector<spec::Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r) {
    spec::Shard& shard = shards.emplace_back(table.shards.front());
    shard.rank = r;
  }
  return shards;
}

/// The plan of the tables of `groups` groups; `first` has data_parallel ones too.
spec::Plan plan_of_set(const spec::Plan& plan, std::int64_t groups, bool first) {
  spec::Plan own = plan;
  own.groups = groups;
  own.ranks = plan.world() / groups;
  if (!own.hosts.empty()) {
    own.hosts.resize(static_cast<std::size_t>(own.ranks));
  }
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    spec::TablePlan& to = own.tables[t];
    to.groups = 0;
    if (is_replicated(table) && first) {
      to.shards = on_all(table, own.ranks);
    } else if (is_replicated(table) || plan.groups_of(table) != groups) {
      to.hot.clear();
      to.shards.clear();
    }
  }
  return own;
}

}  // namespace

EmbeddingSets::EmbeddingSets(const spec::Config& config,
                             const spec::Plan& plan,
                             comm::Communicator& world,
                             Device& device,
                             const ShardedEmbeddingsOptions& options)
    : set_of_table_(plan.tables.size(), 0) {
  WEFT_CHECK(plan.world() == world.size() && plan.groups == config.mesh.groups,
             "plan for {} groups of {} ranks, world of {} and {} groups", plan.groups, plan.ranks,
             world.size(), config.mesh.groups);
  const std::set<std::int64_t> numbers = numbers_of_groups(plan);
  for (const std::int64_t groups : numbers) {
    for (std::size_t t = 0; t < plan.tables.size(); ++t) {
      if (!is_replicated(plan.tables[t]) && plan.groups_of(plan.tables[t]) == groups) {
        set_of_table_[t] = sets_.size();
      }
    }
    const bool is_first = sets_.empty();
    Set& set = *sets_.emplace_back(std::make_unique<Set>(
        Set{.config = config, .plan = plan_of_set(plan, groups, is_first), .tables = nullptr}));
    set.config.mesh = config.mesh.merged(groups);
    ShardedEmbeddingsOptions own = options;
    own.control_bytes = is_first ? options.control_bytes : 0;
    own.set = numbers.size() == 1 ? std::string() : fmt::format("/{}", groups);
    own.matrices = is_first ? nullptr : sets_.front()->tables.get();
    set.tables = std::make_unique<ShardedEmbeddings>(set.config, set.plan, world, device, own);
  }
}

void EmbeddingSets::exchange_counts(Context& ctx,
                                    const BatchView& batch,
                                    std::span<const std::byte> control) {
  for (const auto& set : sets_) {
    set->tables->exchange_counts(ctx, batch, control);
    control = control.first(0);
  }
}

void EmbeddingSets::exchange_ids(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->exchange_ids(ctx);
  }
}

void EmbeddingSets::clear_grown(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->clear_grown(ctx);
  }
}

void EmbeddingSets::lookup(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->lookup(ctx);
  }
}

void EmbeddingSets::output_dist(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->output_dist(ctx);
  }
}

void EmbeddingSets::coalesce(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->coalesce(ctx);
  }
}

void EmbeddingSets::grad_dist(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->grad_dist(ctx);
  }
}

void EmbeddingSets::update(Context& ctx, const embedding::UpdateStep& step) {
  for (const auto& set : sets_) {
    set->tables->update(ctx, step);
  }
}

void EmbeddingSets::sync_replicas(Context& ctx, std::int64_t step) {
  for (const auto& set : sets_) {
    set->tables->sync_replicas(ctx, step);
  }
}

TableOverflow EmbeddingSets::overflow() const {
  TableOverflow all;
  for (const auto& set : sets_) {
    const TableOverflow own = set->tables->overflow();
    all.count += own.count;
    if (own.count > 0 && (all.table < 0 || own.table < all.table)) {
      all.table = own.table;
      all.row = own.row;
    }
  }
  return all;
}

std::vector<TableReads> EmbeddingSets::reads() const {
  std::vector<TableReads> all;
  for (const auto& set : sets_) {
    const std::vector<TableReads> own = set->tables->reads();
    all.insert(all.end(), own.begin(), own.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const TableReads& a, const TableReads& b) { return a.table < b.table; });
  return all;
}

TableClips EmbeddingSets::codec_clips(std::int64_t table) const {
  const std::size_t set = set_of_table_[static_cast<std::size_t>(table)];
  return sets_[set]->tables->codec_clips(table);
}

SyncClips EmbeddingSets::sync_clips() const {
  SyncClips all;
  for (const auto& set : sets_) {
    all += set->tables->sync_clips();
  }
  return all;
}

std::vector<SyncResiduals*> EmbeddingSets::sync_residuals() const {
  std::vector<SyncResiduals*> all;
  for (const auto& set : sets_) {
    const auto own = set->tables->sync_residuals();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<embedding::TableShard*> EmbeddingSets::shards() const {
  std::vector<embedding::TableShard*> all;
  for (const auto& set : sets_) {
    const auto own = set->tables->shards();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<embedding::TableShard*> EmbeddingSets::hot_shards() const {
  std::vector<embedding::TableShard*> all;
  for (const auto& set : sets_) {
    const auto own = set->tables->hot_shards();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void EmbeddingSets::store_hot_rows(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->store_hot_rows(ctx);
  }
}

void EmbeddingSets::load_hot_rows(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->load_hot_rows(ctx);
  }
}

std::int64_t EmbeddingSets::bytes() const {
  std::int64_t total = 0;
  for (const auto& set : sets_) {
    total += set->tables->bytes();
  }
  return total;
}

}  // namespace weft::sharding
