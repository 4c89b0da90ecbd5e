#include "weft/sharding/sharded_embeddings.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/sharding/batch_error.h"

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
    shards.push_back(table.shards.front());
    shards.back().rank = r;
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
      to.shards = {};
    }
  }
  return own;
}

/// The lowest rank of each host does it, when every rank has locked its own.
void remove_dead_folders(const spec::Config& config, comm::Communicator& world) {
  if (!spec::has_tables_on_disks(config)) {
    return;
  }
  Context ctx;
  world.barrier(ctx);
  for (int rank = 0; rank < world.rank(); ++rank) {
    if (world.host(rank) == world.host(world.rank())) {
      return;
    }
  }
  DiskRows::remove_dead(config);
}

}  // namespace

ShardedEmbeddings::ShardedEmbeddings(const spec::Config& config,
                                     const spec::Plan& plan,
                                     comm::Communicator& world,
                                     Device& device,
                                     const ShardedEmbeddingsOptions& options) {
  WEFT_CHECK(plan.world() == world.size() && plan.groups == config.mesh.groups,
             "plan for {} groups of {} ranks, world of {} and {} groups", plan.groups, plan.ranks,
             world.size(), config.mesh.groups);
  if (DiskRows::any(config, plan, world.rank())) {
    disk_rows_ = std::make_unique<DiskRows>(config, plan, world.rank());
  }
  remove_dead_folders(config, world);
  const std::set<std::int64_t> numbers = numbers_of_groups(plan);
  for (const std::int64_t groups : numbers) {
    const bool is_first = sets_.empty();
    Set& set = *sets_.emplace_back(std::make_unique<Set>(
        Set{.config = config, .plan = plan_of_set(plan, groups, is_first), .tables = nullptr}));
    set.config.mesh = config.mesh.merged(groups);
    set.tables = std::make_unique<ReplicaSet>(
        set.config, set.plan, world, device,
        ReplicaSetOptions{.control_bytes = is_first ? options.control_bytes : 0,
                          .name = numbers.size() == 1 ? std::string() : fmt::format("/{}", groups),
                          .disk_rows = disk_rows_.get(),
                          .row_sums = options.row_sums});
  }
}

std::unique_ptr<SparseStep> ShardedEmbeddings::make_step(const SparseStepOptions& options) {
  std::vector<std::unique_ptr<ReplicaSetStep>> steps;
  for (const auto& set : sets_) {
    steps.push_back(set->tables->make_step(options, steps.empty() ? nullptr : steps.front().get()));
  }
  return std::make_unique<SparseStep>(std::move(steps));
}

template <typename Visit>
void ShardedEmbeddings::for_each_set(SparseStep& step, const Visit& visit) {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    visit(*sets_[i]->tables, step.set(i));
  }
}

template <typename T, typename Of>
std::vector<T> ShardedEmbeddings::of_all_sets(const Of& of) const {
  std::vector<T> all;
  for (const auto& set : sets_) {
    const std::vector<T> own = of(*set->tables);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void ShardedEmbeddings::exchange_counts(Context& ctx,
                                        SparseStep& step,
                                        const BatchView& batch,
                                        std::span<const std::byte> control) {
  // The first set has the largest groups, and the caller's control block goes to the others: so it
  // comes last, and what a later set has refused is refused there too.
  std::optional<Error> refused;
  for (std::size_t i = sets_.size() - 1; i > 0; --i) {
    try {
      sets_[i]->tables->exchange_counts(ctx, step.set(i), batch, control.first(0));
    } catch (const BatchError& error) {
      refused = error;
    }
  }
  if (refused) {
    sets_.front()->tables->refuse_batch(ctx, step.set(0), batch.step, *refused);
  }
  sets_.front()->tables->exchange_counts(ctx, step.set(0), batch, control);
}

void ShardedEmbeddings::refuse_batch(Context& ctx,
                                     SparseStep& step,
                                     std::int64_t number,
                                     const Error& error) {
  for (std::size_t i = sets_.size(); i-- > 0;) {
    try {
      sets_[i]->tables->refuse_batch(ctx, step.set(i), number, error);
    } catch (const BatchError&) {
      if (i == 0) {
        throw;
      }
    }
  }
}

void ShardedEmbeddings::exchange_ids(Context& ctx, SparseStep& step) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.exchange_ids(ctx, own); });
}

void ShardedEmbeddings::fetch(Context& ctx, SparseStep& step) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.fetch(ctx, own); });
}

void ShardedEmbeddings::lookup(Context& ctx, SparseStep& step, std::int64_t cut) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.lookup(ctx, own, cut); });
}

void ShardedEmbeddings::output_dist(Context& ctx, SparseStep& step, std::int64_t cut) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.output_dist(ctx, own, cut); });
}

void ShardedEmbeddings::coalesce(Context& ctx, SparseStep& step) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.coalesce(ctx, own); });
}

void ShardedEmbeddings::grad_dist(Context& ctx, SparseStep& step, std::int64_t cut) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.grad_dist(ctx, own, cut); });
}

void ShardedEmbeddings::update(Context& ctx,
                               SparseStep& step,
                               const embedding::UpdateStep& update) {
  for_each_set(step, [&](ReplicaSet& set, ReplicaSetStep& own) { set.update(ctx, own, update); });
}

void ShardedEmbeddings::release(SparseStep& step) {
  for_each_set(step, [](ReplicaSet& /*set*/, ReplicaSetStep& own) { ReplicaSet::release(own); });
}

void ShardedEmbeddings::sync_replicas(Context& ctx, std::int64_t step) {
  for (const auto& set : sets_) {
    set->tables->sync_replicas(ctx, step);
  }
}

TableOverflow ShardedEmbeddings::overflow() const {
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

std::vector<TableReads> ShardedEmbeddings::reads() const {
  auto all = of_all_sets<TableReads>([](const ReplicaSet& set) { return set.reads(); });
  std::stable_sort(all.begin(), all.end(),
                   [](const TableReads& a, const TableReads& b) { return a.table < b.table; });
  return all;
}

comm::Traffic ShardedEmbeddings::vector_traffic() const {
  comm::Traffic all;
  for (const auto& set : sets_) {
    all += set->tables->vector_traffic();
  }
  return all;
}

SyncClips ShardedEmbeddings::sync_clips() const {
  SyncClips all;
  for (const auto& set : sets_) {
    all += set->tables->sync_clips();
  }
  return all;
}

std::vector<ResidualState*> ShardedEmbeddings::sync_residuals() const {
  return of_all_sets<ResidualState*>([](const ReplicaSet& set) { return set.sync_residuals(); });
}

std::vector<embedding::TableShard*> ShardedEmbeddings::shards() const {
  return of_all_sets<embedding::TableShard*>([](const ReplicaSet& set) { return set.shards(); });
}

std::vector<embedding::TableShard*> ShardedEmbeddings::hot_shards() const {
  return of_all_sets<embedding::TableShard*>(
      [](const ReplicaSet& set) { return set.hot_shards(); });
}

void ShardedEmbeddings::store_hot_rows(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->store_hot_rows(ctx);
  }
}

void ShardedEmbeddings::load_hot_rows(Context& ctx) {
  for (const auto& set : sets_) {
    set->tables->load_hot_rows(ctx);
  }
}

std::int64_t ShardedEmbeddings::bytes() const {
  std::int64_t total = 0;
  for (const auto& set : sets_) {
    total += set->tables->bytes();
  }
  return total;
}

}  // namespace weft::sharding
