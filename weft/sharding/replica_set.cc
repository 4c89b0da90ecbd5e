#include "weft/sharding/replica_set.h"

#include <algorithm>
#include <array>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"
#include "weft/optim/sparse.h"

namespace weft::sharding {
namespace {

/// The ranks of the own group.
std::unique_ptr<comm::Communicator> group_comm(comm::Communicator& world,
                                               const spec::Plan& plan,
                                               const std::string& name,
                                               spec::CollectiveForm form) {
  if (plan.groups == 1) {
    return world.duplicate(name, form_of(form));
  }
  auto group = world.split(static_cast<int>(world.rank() / plan.ranks), world.rank(), name);
  return form == spec::CollectiveForm::kFlat ? std::move(group)
                                             : group->duplicate(name, form_of(form));
}

}  // namespace

ReplicaSet::ReplicaSet(const spec::Config& config,
                       const spec::Plan& plan,
                       comm::Communicator& world,
                       Device& device,
                       const ReplicaSetOptions& options)
    : config_(config),
      plan_(plan),
      group_(world.rank() / plan.ranks),
      routing_(config, plan, group_),
      ids_comm_(group_comm(world, plan, "ids" + options.name, plan.collectives.ids)),
      vectors_comm_(group_comm(world, plan, "vectors" + options.name, plan.collectives.vectors)),
      rows_comm_(group_comm(world, plan, "rows" + options.name, plan.collectives.vectors)),
      device_(device),
      control_bytes_(options.control_bytes),
      row_sums_(options.row_sums),
      rank_(world.rank() % plan.ranks),
      paths_(config, routing_, rank_),
      input_(paths_, *ids_comm_, device),
      output_(paths_, *vectors_comm_),
      disk_rows_(options.disk_rows) {
  WEFT_CHECK(plan.world() == world.size() && plan.groups == config.mesh.groups,
             "plan for {} groups of {} ranks, world of {} and {} groups", plan.groups, plan.ranks,
             world.size(), config.mesh.groups);
  if (plan.groups > 1) {
    all_comm_ = world.duplicate("replicated tables" + options.name);
    replicas_comm_ =
        world.split(static_cast<int>(rank_), static_cast<int>(group_), "replicas" + options.name);
  }
  make_shards(device);
  make_sync(device);
  make_replica_sync(device);
}

void ReplicaSet::make_shards(Device& device) {
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const spec::TablePlan& table = plan_.tables[t];
    const bool replicated = table.sharding == spec::Sharding::kDataParallel;
    LocalShard place;
    place.table = static_cast<std::int64_t>(t);
    place.replicated = replicated;
    for (std::size_t k = 0; k < table.shards.size(); ++k) {
      if (table.shards[k].rank == rank_) {
        place.shard = replicated ? 0 : static_cast<std::int64_t>(k);
        add_shard(place, table.shards[k].rows, table.shards[k].cols, {}, device);
      }
    }
    if (!table.hot.empty()) {
      std::vector<std::int64_t> rows;
      for (const Range& range : table.hot) {
        for (std::int64_t row = range.begin; row < range.end; ++row) {
          rows.push_back(row);
        }
      }
      place.shard = kHotShard;
      place.replicated = true;
      const Range all{0, static_cast<std::int64_t>(rows.size())};
      add_shard(place, all, {0, config_.tables[t].embedding_dim}, std::move(rows), device);
    }
  }
}

void ReplicaSet::add_shard(const LocalShard& place,
                           const RowSet& rows,
                           Range cols,
                           std::vector<std::int64_t> row_list,
                           Device& device) {
  LocalShard& local = shards_.emplace_back();
  local.table = place.table;
  local.shard = place.shard;
  local.replicated = place.replicated;
  spec::Table table = config_.tables[at(local.table)];
  if (!local.replicated) {
    table.optimizer = optim::momentum_scaled(table.optimizer, config_.mesh.resolved_moment_scale());
  }
  storage::RowBacking* backing = nullptr;
  std::int64_t cache_bytes = 0;
  if (row_list.empty() && table.memory.tier == spec::MemoryTier::kSsd) {
    WEFT_CHECK(disk_rows_ != nullptr, "table '{}' without a store for its rows", table.name);
    backing = &disk_rows_->add_shard(table, rows, cols);
    cache_bytes = local.replicated ? disk_rows_->copy_cache_bytes(at(local.table))
                                   : disk_rows_->cache_bytes(at(local.table), at(local.shard));
  }
  local.rows = std::make_unique<embedding::TableShard>(
      device, table, rows, cols, config_.seed,
      embedding::TableShardOptions{
          .parts = plan_.parts,
          .first_holder = group_ == 0 && (!local.replicated || rank_ == 0),
          .replica = local.replicated || !config_.mesh.averages() ? 0 : group_,
          .draw_rule = config_.numerics.draw_rule(),
          .row_list = std::move(row_list),
          .backing = backing,
          .cache_bytes = cache_bytes});
  const std::int64_t server = local.replicated ? routing_.replicated() : rank_;
  for (std::int64_t j = 0; j < routing_.num_slots(server); ++j) {
    if (routing_.kind({server, j}).table == local.table &&
        routing_.slot({server, j}).shard == local.shard) {
      local.slots.push_back(j);
    }
  }
}

ReplicaSet::UpdatePath ReplicaSet::path(const LocalShard& local) const {
  if (local.replicated) {
    return UpdatePath::kReplicated;
  }
  return local.rows->needs_statistic() || local.rows->needs_max_norm() ? UpdatePath::kColumns
                                                                       : UpdatePath::kWhole;
}

/// The shards of the same rows.
ColumnGroup ReplicaSet::column_group(const LocalShard& local) const {
  const auto& shards = plan_.tables[at(local.table)].shards;
  ColumnGroup group{.own = local.rows.get()};
  group.dim = config_.tables[at(local.table)].embedding_dim;
  for (std::size_t k = 0; k < shards.size(); ++k) {
    if (shards[k].rows != local.rows->rows()) {
      continue;
    }
    if (static_cast<std::int64_t>(k) == local.shard) {
      group.position = static_cast<std::int64_t>(group.ranks.size());
    }
    group.ranks.push_back(shards[k].rank);
    group.blocks.push_back(layout::column_blocks(shards[k].cols.size()));
  }
  return group;
}

void ReplicaSet::make_sync(Device& device) {
  std::vector<ColumnGroup> groups;
  std::vector<embedding::TableShard*> copied;
  for (const LocalShard& local : shards_) {
    if (path(local) == UpdatePath::kColumns) {
      groups.push_back(column_group(local));
    } else if (path(local) == UpdatePath::kReplicated) {
      copied.push_back(local.rows.get());
    }
  }
  bool any_statistic = false;
  bool any_max_norm = false;
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    const auto& shards = plan_.tables[t].shards;
    if (!shards.empty() && shards.front().cols.size() < config_.tables[t].embedding_dim) {
      any_statistic |= traits(config_.tables[t].optimizer.type).is_row_wise;
      any_max_norm |= config_.tables[t].optimizer.max_norm > 0;
    }
  }
  columns_ = std::make_unique<ColumnSync>(*rows_comm_, device, std::move(groups), any_statistic,
                                          any_max_norm);
  replicas_ = make_row_sums(all_comm_ ? *all_comm_ : *rows_comm_, copied);
}

std::unique_ptr<ReplicaSync> ReplicaSet::make_row_sums(
    comm::Communicator& comm, std::span<embedding::TableShard* const> shards) const {
  return std::make_unique<ReplicaSync>(comm, device_, shards, plan_.parts,
                                       row_sums_.value_or(layout::row_sums(comm.size())));
}

/// The shards of which other groups hold replicas are averaged, or their gradients summed.
void ReplicaSet::make_replica_sync(Device& device) {
  if (plan_.groups == 1) {
    return;
  }
  std::vector<embedding::TableShard*> shards;
  for (const LocalShard& local : shards_) {
    if (!local.replicated) {
      shards.push_back(local.rows.get());
    }
  }
  if (config_.mesh.averages()) {
    average_ = std::make_unique<ReplicaAverage>(
        *replicas_comm_, device, shards,
        ReplicaAverageOptions{
            .form = config_.mesh.sync,
            .seed = config_.seed,
            .codec = {.format = config_.codecs.sync, .group = config_.codecs.group_size},
            .error_feedback = config_.codecs.error_feedback});
  } else {
    group_gradients_ = make_row_sums(*replicas_comm_, shards);
  }
}

std::unique_ptr<ReplicaSetStep> ReplicaSet::make_step(const SparseStepOptions& options,
                                                      const ReplicaSetStep* matrices) {
  const BatchMatrices* const shared = matrices == nullptr ? nullptr : &matrices->output.matrices;
  auto step = std::make_unique<ReplicaSetStep>(
      routing_, rank_, control_bytes_, output_.make_step(config_, device_, options, shared));
  step->input.served.keeps_samples = paths_.keys().is_on;
  for (const LocalShard& local : shards_) {
    step->shards.push_back(std::make_unique<ShardStep>(device_, *local.rows));
    embedding::RowGradients* const gradients = &step->shards.back()->gradients;
    switch (path(local)) {
      case UpdatePath::kWhole:
        step->whole.push_back(gradients);
        break;
      case UpdatePath::kReplicated:
        step->copied.push_back(gradients);
        break;
      case UpdatePath::kColumns:
        step->cut.push_back(gradients);
        break;
    }
    if (!local.replicated) {
      step->sharded.push_back(gradients);
    }
  }
  return step;
}

void ReplicaSet::exchange_counts(Context& ctx,
                                 ReplicaSetStep& step,
                                 const BatchView& batch,
                                 std::span<const std::byte> control) {
  step.output.forward_wire.begin_batch();
  step.output.backward_wire.begin_batch();
  input_.exchange_counts(ctx, step.input, batch, control);
}

void ReplicaSet::refuse_batch(Context& ctx,
                              ReplicaSetStep& step,
                              std::int64_t number,
                              const Error& error) {
  input_.refuse(ctx, step.input, number, error);
}

void ReplicaSet::exchange_ids(Context& ctx, ReplicaSetStep& step) {
  input_.exchange_ids(ctx, step.input);
  output_.prepare(step.input, step.output);
}

/// Lists the ids of the batch that read a shard: those of its gradients, which begin with those of
/// its lookups.
void ReplicaSet::list_fetched(ReplicaSetStep& step, std::size_t shard) const {
  std::vector<kernels::Bags>& fetched = step.shards[shard]->fetched;
  fetched.clear();
  for_each_block(step, shards_[shard], [&](const ServedBlock& of, const SlotKind&) {
    if (of.block.num_ids > 0) {
      fetched.push_back(step.input.incoming.bags(of.block, of.block.gradient));
    }
  });
}

/// Rows in the memory of the device always have a slot.
void ReplicaSet::fetch_rows(Context& ctx, ReplicaSetStep& step) {
  step.turns.begin();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    storage::Residency* const residency = shards_[i].rows->residency();
    if (residency == nullptr) {
      continue;
    }
    WEFT_CHECK(shards_[i].rows->tier() != nullptr || (!shards_[i].replicated && !average_),
               "table '{}': its updates touch rows that no fetch has named",
               config_.tables[at(shards_[i].table)].name);
    ShardStep& own = *step.shards[i];
    if (own.resident == nullptr) {
      own.resident = residency->make_batch();
    }
    list_fetched(step, i);
    own.resident->begin_fetch(ctx, own.fetched);
    step.turns.add(ctx, *own.resident);
  }
  step.turns.finish(ctx);
}

void ReplicaSet::fetch(Context& ctx, ReplicaSetStep& step) {
  try {
    fetch_rows(ctx, step);
  } catch (...) {
    release(step);  // an inserted batch waits for fetches that have begun
    throw;
  }
}

/// Rows of other groups' or ranks' batches get slots too, which the gradients have come of by now.
void ReplicaSet::fetch_updated(Context& ctx, ReplicaSetStep& step, Updated which) const {
  const auto is_meant = [&](std::size_t i) {
    return shards_[i].rows->residency() != nullptr &&
           shards_[i].replicated == (which == Updated::kCopies);
  };
  step.turns.begin();
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (!is_meant(i)) {
      continue;
    }
    storage::Residency* const residency = shards_[i].rows->residency();
    ShardStep& own = *step.shards[i];
    if (own.updated == nullptr) {
      own.updated = residency->make_inserted_batch();
    }
    const std::array<std::int64_t, 2> ends = {0, own.gradients.num_unique()};
    auto* const device_ends = own.updated_ends.resize_for(layout::bag_offsets(std::int64_t{1}));
    device_.copy_to_device(ctx, device_ends, ends.data(), sizeof(ends));
    const kernels::Bags rows{
        .ids = own.gradients.unique_rows(), .offsets = device_ends, .weights = nullptr, .bags = 1};
    own.updated->begin_fetch(ctx, std::span(&rows, 1));
    step.turns.add(ctx, *own.updated);
  }
  step.turns.finish(ctx);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (is_meant(i)) {
      step.shards[i]->updated->fetch_late(ctx);
    }
  }
}

void ReplicaSet::release(ReplicaSetStep& step) {
  release(step, storage::Release::kUnchanged);
}

void ReplicaSet::release(ReplicaSetStep& step, storage::Release how) {
  for (const auto& own : step.shards) {
    for (storage::ResidentRows* const rows : {own->resident.get(), own->updated.get()}) {
      if (rows != nullptr) {
        rows->release(how);
      }
    }
  }
}

/// In the order of fetch_rows(), which begin_fetch_late() asks for.
void ReplicaSet::fetch_late(Context& ctx, ReplicaSetStep& step) {
  for (const auto& own : step.shards) {
    if (own->resident != nullptr) {
      own->resident->begin_fetch_late(ctx);
    }
  }
  for (const auto& own : step.shards) {
    if (own->resident != nullptr) {
      own->resident->fetch_late(ctx);
    }
  }
}

void ReplicaSet::output_dist(Context& ctx, ReplicaSetStep& step, std::int64_t cut) {
  output_.forward(ctx, step.input, step.output, cut);
}

void ReplicaSet::grad_dist(Context& ctx, ReplicaSetStep& step, std::int64_t cut) {
  output_.backward(ctx, step.input, step.output, cut);
}

/// Where the rows to update are, of shards that have not all rows in memory.
void ReplicaSet::resolve_updates(Context& ctx, ReplicaSetStep& step, Updated which) const {
  const bool has_more = which == Updated::kCopies || group_gradients_ != nullptr;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].rows->tier() == nullptr ||
        shards_[i].replicated != (which == Updated::kCopies)) {
      continue;
    }
    ShardStep& own = *step.shards[i];
    embedding::RowGradients& gradients = own.gradients;
    storage::ResidentRows& rows = has_more ? *own.updated : *own.resident;
    gradients.use_slots(
        rows.resolve(ctx, {gradients.unique_rows(), at(gradients.num_unique())}).data());
  }
}

void ReplicaSet::update(Context& ctx, ReplicaSetStep& step, const embedding::UpdateStep& update) {
  if (group_gradients_) {
    group_gradients_->accumulate(ctx, step.sharded);
    fetch_updated(ctx, step, Updated::kShards);
  }
  resolve_updates(ctx, step, Updated::kShards);
  if (average_) {
    embedding::RowGradients::accumulate(ctx, step.sharded, static_cast<float>(plan_.groups));
    average_->keep_values(ctx, step.sharded);
  }
  embedding::TableShard::update(ctx, step.whole, update);
  columns_->update(ctx, step.cut, update);
  const auto find_copies = [&] {
    fetch_updated(ctx, step, Updated::kCopies);
    resolve_updates(ctx, step, Updated::kCopies);
  };
  // One pointer: nothing is allocated.
  replicas_->update(ctx, step.copied, update, [&find_copies] { find_copies(); });
  release(step, storage::Release::kUpdated);
  if (average_) {
    average_->note_updated(step.sharded);
    replicas_differ_ = true;
  }
}

}  // namespace weft::sharding
