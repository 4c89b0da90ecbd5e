#include "weft/sharding/sharded_embeddings.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::sharding {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

bool is_row_wise(spec::SparseOptimizerKind kind) {
  return kind == spec::SparseOptimizerKind::kRowWiseAdagrad ||
         kind == spec::SparseOptimizerKind::kRowWiseAdam;
}

}  // namespace

ShardedEmbeddings::ShardedEmbeddings(const spec::Config& config,
                                     const spec::Plan& plan,
                                     comm::Communicator& world,
                                     Device& device,
                                     const ShardedEmbeddingsOptions& options)
    : config_(config),
      routing_(config, plan),
      ids_comm_(world.duplicate("ids")),
      vectors_comm_(world.duplicate("vectors")),
      rank_(world.rank()),
      input_(routing_, *ids_comm_, device, options.control_bytes),
      output_(routing_, *vectors_comm_, device) {
  WEFT_CHECK(plan.ranks == world.size(), "plan for {} ranks, world of {}", plan.ranks,
             world.size());
  make_shards(plan, device);
  make_sync(plan, device);
}

void ShardedEmbeddings::make_shards(const spec::Plan& plan, Device& device) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const bool replicated = plan.tables[t].sharding == spec::Sharding::kDataParallel;
    const auto& table_shards = plan.tables[t].shards;
    for (std::size_t k = 0; k < table_shards.size(); ++k) {
      if (table_shards[k].rank != rank_) {
        continue;
      }
      LocalShard local;
      local.table = static_cast<std::int64_t>(t);
      local.shard = replicated ? 0 : static_cast<std::int64_t>(k);
      local.replicated = replicated;
      local.rows = std::make_unique<embedding::TableShard>(
          device, config_.tables[t], table_shards[k].rows, table_shards[k].cols, config_.seed,
          embedding::TableShardOptions{.parts = plan.parts,
                                       .first_holder = !replicated || rank_ == 0});
      const auto& served = routing_.served[at(replicated ? routing_.replicated() : rank_)];
      for (std::size_t j = 0; j < served.size(); ++j) {
        if (served[j].table == local.table && served[j].shard == local.shard) {
          local.slots.push_back(static_cast<std::int64_t>(j));
        }
      }
      shards_.push_back(std::move(local));
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
ColumnGroup ShardedEmbeddings::column_group(const LocalShard& local, const spec::Plan& plan) const {
  const auto& shards = plan.tables[at(local.table)].shards;
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

void ShardedEmbeddings::make_sync(const spec::Plan& plan, Device& device) {
  std::vector<ColumnGroup> groups;
  std::vector<embedding::TableShard*> replicas;
  for (const LocalShard& local : shards_) {
    switch (path(local)) {
      case UpdatePath::kWhole:
        whole_.push_back(local.rows.get());
        break;
      case UpdatePath::kReplicated:
        replicas.push_back(local.rows.get());
        break;
      case UpdatePath::kColumns:
        groups.push_back(column_group(local, plan));
        break;
    }
  }
  bool any_statistic = false;
  bool any_max_norm = false;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (plan.tables[t].shards.front().cols.size() < config_.tables[t].embedding_dim) {
      any_statistic |= is_row_wise(config_.tables[t].optimizer.type);
      any_max_norm |= config_.tables[t].optimizer.max_norm > 0;
    }
  }
  columns_ = std::make_unique<ColumnSync>(*vectors_comm_, device, std::move(groups), any_statistic,
                                          any_max_norm);
  replicas_ =
      std::make_unique<ReplicaSync>(*vectors_comm_, device, std::move(replicas), plan.parts);
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
    coalesces_.emplace_back(local.rows.get(), local.gradient_blocks);
  }
  embedding::TableShard::coalesce(ctx, coalesces_);
  output_.coalesce(ctx, input_);
}

void ShardedEmbeddings::grad_dist(Context& ctx) {
  output_.backward(ctx, input_);
}

void ShardedEmbeddings::update(Context& ctx, const embedding::UpdateStep& step) {
  embedding::TableShard::update(ctx, whole_, step);
  columns_->update(ctx, step);
  replicas_->update(ctx, step);
}

TableOverflow ShardedEmbeddings::overflow() const {
  TableOverflow overflow;
  for (const LocalShard& local : shards_) {
    if (local.replicated && rank_ != 0) {
      continue;  // replicas overflow alike, and rank 0 says so
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
    all.push_back(local.rows.get());
  }
  return all;
}

std::int64_t ShardedEmbeddings::bytes() const {
  std::int64_t total = 0;
  for (const LocalShard& local : shards_) {
    total += local.rows->bytes();
  }
  return total;
}

}  // namespace weft::sharding
