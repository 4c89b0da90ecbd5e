#include "weft/sharding/sharded_embeddings.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"
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

ShardedEmbeddings::ShardedEmbeddings(const spec::Config& config,
                                     const spec::Plan& plan,
                                     comm::Communicator& world,
                                     Device& device,
                                     const ShardedEmbeddingsOptions& options)
    : config_(config),
      plan_(plan),
      group_(world.rank() / plan.ranks),
      routing_(config, plan, group_),
      ids_comm_(group_comm(world, plan, "ids" + options.set, plan.collectives.ids)),
      vectors_comm_(group_comm(world, plan, "vectors" + options.set, plan.collectives.vectors)),
      rank_(world.rank() % plan.ranks),
      input_(routing_, *ids_comm_, device, options.control_bytes),
      output_(config,
              routing_,
              *vectors_comm_,
              device,
              options.matrices == nullptr ? nullptr : &options.matrices->output_) {
  WEFT_CHECK(plan.world() == world.size() && plan.groups == config.mesh.groups,
             "plan for {} groups of {} ranks, world of {} and {} groups", plan.groups, plan.ranks,
             world.size(), config.mesh.groups);
  if (plan.groups > 1) {
    all_comm_ = world.duplicate("replicated tables" + options.set);
    replicas_comm_ =
        world.split(static_cast<int>(rank_), static_cast<int>(group_), "replicas" + options.set);
  }
  if (config.codecs.rounding == CodecRounding::kStochastic) {
    input_.keep_samples();
  }
  make_shards(device);
  make_sync(device);
  make_replica_sync(device);
}

void ShardedEmbeddings::make_shards(Device& device) {
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

void ShardedEmbeddings::add_shard(const LocalShard& place,
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
  local.rows = std::make_unique<embedding::TableShard>(
      device, table, rows, cols, config_.seed,
      embedding::TableShardOptions{
          .parts = plan_.parts,
          .first_holder = group_ == 0 && (!local.replicated || rank_ == 0),
          .replica = local.replicated || !config_.mesh.averages() ? 0 : group_,
          .row_list = std::move(row_list)});
  local.gradients = std::make_unique<embedding::RowGradients>(device, *local.rows);
  const auto& served = routing_.served[at(local.replicated ? routing_.replicated() : rank_)];
  for (std::size_t j = 0; j < served.size(); ++j) {
    if (served[j].table == local.table && served[j].shard == local.shard) {
      local.slots.push_back(static_cast<std::int64_t>(j));
    }
  }
}

ShardedEmbeddings::UpdatePath ShardedEmbeddings::path(const LocalShard& local) const {
  if (local.replicated) {
    return UpdatePath::kReplicated;
  }
  return local.rows->needs_statistic() || local.rows->needs_max_norm() ? UpdatePath::kColumns
                                                                       : UpdatePath::kWhole;
}

/// The shards of the same rows.
ColumnGroup ShardedEmbeddings::column_group(const LocalShard& local) const {
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
    group.blocks.push_back((shards[k].cols.size() + spec::kColumnBlock - 1) / spec::kColumnBlock);
  }
  return group;
}

void ShardedEmbeddings::make_sync(Device& device) {
  std::vector<ColumnGroup> groups;
  for (const LocalShard& local : shards_) {
    switch (path(local)) {
      case UpdatePath::kWhole:
        whole_.push_back(local.gradients.get());
        break;
      case UpdatePath::kReplicated:
        copied_.push_back(local.gradients.get());
        break;
      case UpdatePath::kColumns:
        cut_.push_back(local.gradients.get());
        groups.push_back(column_group(local));
        break;
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
  columns_ = std::make_unique<ColumnSync>(*vectors_comm_, device, std::move(groups), any_statistic,
                                          any_max_norm);
  replicas_ = std::make_unique<ReplicaSync>(all_comm_ ? *all_comm_ : *vectors_comm_, device,
                                            copied_.size(), plan_.parts);
}

/// The shards of which other groups hold replicas are averaged, or their gradients summed.
void ShardedEmbeddings::make_replica_sync(Device& device) {
  if (plan_.groups == 1) {
    return;
  }
  std::vector<embedding::TableShard*> shards;
  for (const LocalShard& local : shards_) {
    if (!local.replicated) {
      shards.push_back(local.rows.get());
      sharded_.push_back(local.gradients.get());
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
    group_gradients_ =
        std::make_unique<ReplicaSync>(*replicas_comm_, device, sharded_.size(), plan_.parts);
  }
}

void ShardedEmbeddings::exchange_counts(Context& ctx,
                                        const BatchView& batch,
                                        std::span<const std::byte> control) {
  input_.exchange_counts(ctx, batch, control);
}

std::span<const std::byte> ShardedEmbeddings::control(std::int64_t rank) const {
  return input_.control(rank);
}

void ShardedEmbeddings::exchange_ids(Context& ctx) {
  input_.exchange_ids(ctx);
  output_.prepare(input_);
}

template <typename Visit>
void ShardedEmbeddings::for_each_block(const LocalShard& local, const Visit& visit) const {
  const IncomingIds& incoming = input_.incoming();
  for (const std::int64_t j : local.slots) {
    if (local.replicated) {
      visit(SlotAddress{routing_.replicated(), j}, incoming.replicated[at(j)], rank_);
      continue;
    }
    for (std::int64_t r = 0; r < routing_.ranks; ++r) {
      visit(SlotAddress{rank_, j}, incoming.blocks[at(j * routing_.ranks + r)], r);
    }
  }
}

void ShardedEmbeddings::add_lookup(const LocalShard& local,
                                   const SlotAddress& address,
                                   const IncomingBlock& block,
                                   std::int64_t source) {
  if (block.lookup.bags > 0) {
    const VectorPlace out = output_.output(address, source);
    lookups_.emplace_back(local.rows.get(),
                          embedding::Lookup{.bags = input_.incoming().bags(block, block.lookup),
                                            .pooled = !routing_.slot(address).sequence,
                                            .out = out.data,
                                            .out_stride = out.stride});
  }
}

void ShardedEmbeddings::lookup(Context& ctx) {
  lookups_.clear();
  for (LocalShard& local : shards_) {
    for_each_block(
        local, [&](const SlotAddress& address, const IncomingBlock& block, std::int64_t source) {
          local.rows_read += routing_.slot(address).of_rows() ? block.vectors : block.num_ids;
          add_lookup(local, address, block, source);
        });
  }
  embedding::TableShard::forward(ctx, lookups_);
}

void ShardedEmbeddings::output_dist(Context& ctx) {
  output_.forward(ctx, input_);
}

void ShardedEmbeddings::add_gradient_block(LocalShard& local,
                                           const SlotAddress& address,
                                           const IncomingBlock& block,
                                           std::int64_t source) {
  if (block.num_ids > 0) {
    const VectorPlace grads = output_.gradient(address, source);
    local.gradient_blocks.push_back({.bags = input_.incoming().bags(block, block.gradient),
                                     .pooled = !routing_.slot(address).sequence,
                                     .grads = grads.data,
                                     .grad_stride = grads.stride,
                                     .parts = input_.incoming().parts + block.parts_begin});
  }
}

void ShardedEmbeddings::coalesce(Context& ctx) {
  coalesces_.clear();
  for (LocalShard& local : shards_) {
    local.gradient_blocks.clear();
    for_each_block(
        local, [&](const SlotAddress& address, const IncomingBlock& block, std::int64_t source) {
          add_gradient_block(local, address, block, source);
        });
    coalesces_.emplace_back(local.gradients.get(), local.gradient_blocks);
  }
  embedding::RowGradients::coalesce(ctx, coalesces_);
  output_.coalesce(ctx, input_);
}

void ShardedEmbeddings::grad_dist(Context& ctx) {
  output_.backward(ctx, input_);
}

void ShardedEmbeddings::update(Context& ctx, const embedding::UpdateStep& step) {
  if (group_gradients_) {
    group_gradients_->accumulate(ctx, sharded_);
  }
  if (average_) {
    const auto groups = static_cast<float>(plan_.groups);
    for (embedding::RowGradients* gradients : sharded_) {
      gradients->accumulate(ctx, groups);
    }
  }
  embedding::TableShard::update(ctx, whole_, step);
  columns_->update(ctx, cut_, step);
  replicas_->update(ctx, copied_, step);
  if (average_) {
    average_->note_updated(sharded_);
    replicas_differ_ = true;
  }
}

void ShardedEmbeddings::sync_replicas(Context& ctx, std::int64_t step) {
  if (replicas_differ_) {
    average_->run(ctx, step);
    replicas_differ_ = false;
  }
}

std::vector<SyncResiduals*> ShardedEmbeddings::sync_residuals() const {
  SyncResiduals* const residuals = average_ ? average_->residuals() : nullptr;
  return residuals == nullptr ? std::vector<SyncResiduals*>{} : std::vector{residuals};
}

TableOverflow ShardedEmbeddings::overflow() const {
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

std::vector<TableReads> ShardedEmbeddings::reads() const {
  std::vector<TableReads> all;
  for (const LocalShard& local : shards_) {
    const spec::Table& table = config_.tables[at(local.table)];
    const bool halves = table.dtype != spec::RowDType::kFp32;  // split_bf16: forward reads one
    all.push_back({.table = local.table,
                   .rows = local.rows_read,
                   .bytes = local.rows_read * local.rows->cols().size() * (halves ? 2 : 4)});
  }
  return all;
}

std::vector<embedding::TableShard*> ShardedEmbeddings::shards() const {
  std::vector<embedding::TableShard*> all;
  for (const LocalShard& local : shards_) {
    if (local.shard != kHotShard) {
      all.push_back(local.rows.get());
    }
  }
  return all;
}

std::vector<embedding::TableShard*> ShardedEmbeddings::hot_shards() const {
  std::vector<embedding::TableShard*> all;
  for (const LocalShard& local : shards_) {
    if (local.shard == kHotShard) {
      all.push_back(local.rows.get());
    }
  }
  return all;
}

std::vector<HotTable> ShardedEmbeddings::hot_tables() const {
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

void ShardedEmbeddings::store_hot_rows(Context& /*ctx*/) {
  for (const HotTable& table : hot_tables()) {
    store_hot(table);
    for (const embedding::TableShard* shard : table.shards) {
      if (average_ && shard != nullptr) {
        average_->stored(*shard, table.plan->hot);
      }
    }
  }
}

void ShardedEmbeddings::load_hot_rows(Context& ctx) {
  for (const HotTable& table : hot_tables()) {
    load_hot(*vectors_comm_, ctx, table);
  }
  if (average_) {
    average_->restored(ctx);
  }
}

std::int64_t ShardedEmbeddings::bytes() const {
  std::int64_t total = 0;
  for (const LocalShard& local : shards_) {
    total += local.rows->bytes();
  }
  return total;
}

}  // namespace weft::sharding
