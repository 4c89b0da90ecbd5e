#include "weft/sharding/row_sync.h"

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Rows per task when row values are added up.
constexpr std::int64_t kRowsPerTask = 1024;

}  // namespace

ColumnSync::ColumnSync(comm::Communicator& comm,
                       Device& device,
                       std::vector<ColumnGroup> groups,
                       bool any_statistic,
                       bool any_max_norm)
    : comm_(comm),
      any_statistic_(any_statistic),
      any_max_norm_(any_max_norm),
      send_pieces_(at(comm.size())),
      recv_pieces_(at(comm.size())),
      send_(at(comm.size())),
      recv_(at(comm.size())) {
  members_.reserve(groups.size());
  for (ColumnGroup& group : groups) {
    Member member;
    member.block_begin.resize(group.ranks.size());
    member.blocks = Buffer(device);
    member.gathered = Buffer(device);
    member.group = std::move(group);
    members_.push_back(std::move(member));
  }
  for (Member& member : members_) {
    if (member.group.own->needs_statistic()) {
      with_statistic_.push_back(&member);
    }
    if (member.group.own->needs_max_norm()) {
      with_max_norm_.push_back(&member);
    }
  }
}

void ColumnSync::update(Context& ctx, const embedding::UpdateStep& step) {
  for (Member& member : members_) {
    member.group.own->accumulate(ctx);
  }
  if (any_statistic_) {
    exchange(ctx, with_statistic_,
             [&](embedding::TableShard& shard, float* out) { shard.block_squares(ctx, out); });
  }
  for (Member& member : members_) {
    const float* statistic = nullptr;
    if (member.group.own->needs_statistic()) {
      row_values(ctx, member, static_cast<float>(member.group.dim));
      statistic = member.gathered.as<float>();
    }
    member.group.own->update_with_statistic(ctx, step, statistic);
  }
  if (any_max_norm_) {
    exchange(ctx, with_max_norm_,
             [&](embedding::TableShard& shard, float* out) { shard.row_block_squares(ctx, out); });
  }
  for (Member* member : with_max_norm_) {
    row_values(ctx, *member, 1.0F);
    member->group.own->scale_to_max_norm(ctx, member->gathered.as<float>());
  }
}

/// Every shard's blocks to every other shard of its table.
void ColumnSync::exchange(Context& ctx, std::span<Member* const> members, const Fill& fill) {
  for (std::size_t r = 0; r < send_.size(); ++r) {
    send_pieces_[r].clear();
    recv_pieces_[r].clear();
  }
  for (Member* member : members) {
    const ColumnGroup& group = member->group;
    const std::int64_t rows = group.own->num_unique();
    std::int64_t floats = 0;
    for (std::size_t k = 0; k < group.ranks.size(); ++k) {
      member->block_begin[k] = floats;
      floats += rows * group.blocks[k];
    }
    auto* blocks = member->blocks.resize_for<float>(floats);
    float* own = blocks + member->block_begin[at(group.position)];
    fill(*group.own, own);
    const std::int64_t own_bytes = rows * group.blocks[at(group.position)] * 4;
    for (std::size_t k = 0; k < group.ranks.size(); ++k) {
      if (static_cast<std::int64_t>(k) != group.position) {
        send_pieces_[at(group.ranks[k])].push_back({own, own_bytes});
        recv_pieces_[at(group.ranks[k])].push_back(
            {blocks + member->block_begin[k], rows * group.blocks[k] * 4});
      }
    }
  }
  for (std::size_t r = 0; r < send_.size(); ++r) {
    send_[r] = {.pieces = send_pieces_[r]};
    recv_[r] = {.pieces = recv_pieces_[r]};
  }
  comm_.exchange(ctx, send_, recv_);
}

/// gathered[row] = the tree over the row's blocks, divided by `divisor`.
void ColumnSync::row_values(Context& ctx, Member& member, float divisor) {
  const ColumnGroup& group = member.group;
  const std::int64_t rows = group.own->num_unique();
  std::int64_t total = 0;
  for (const std::int64_t blocks : group.blocks) {
    total += blocks;
  }
  auto* gathered = member.gathered.resize_for<float>(rows);
  const float* blocks = member.blocks.as<float>();
  const std::int64_t tasks = (rows + kRowsPerTask - 1) / kRowsPerTask;
  ctx.pool->parallel_for(tasks, [&](std::int64_t task) {
    std::vector<float> row(at(total));
    const std::int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (std::int64_t u = task * kRowsPerTask; u < end; ++u) {
      float* to = row.data();
      for (std::size_t k = 0; k < group.blocks.size(); ++k) {
        const float* from = blocks + member.block_begin[k] + u * group.blocks[k];
        to = std::copy_n(from, group.blocks[k], to);
      }
      gathered[u] = embedding::block_tree_sum(row.data(), total) / divisor;
    }
  });
}

ReplicaSync::ReplicaSync(comm::Communicator& comm,
                         Device& device,
                         std::vector<embedding::TableShard*> shards,
                         std::int64_t parts)
    : comm_(comm),
      shards_(std::move(shards)),
      own_parts_(rank_parts(parts, comm.size(), comm.rank())),
      counts_(at(comm.size()) * shards_.size()),
      begin_(at(comm.size()) * shards_.size()),
      received_(device),
      recv_pieces_(at(comm.size())),
      send_(at(comm.size())),
      recv_(at(comm.size())) {
}

void ReplicaSync::update(Context& ctx, const embedding::UpdateStep& step) {
  if (shards_.empty()) {
    return;
  }
  if (comm_.size() > 1) {
    ctx.pool->parallel_for(static_cast<std::int64_t>(shards_.size()), [&](std::int64_t t) {
      shards_[at(t)]->accumulate_partials(ctx, own_parts_);
    });
    lay_out(ctx);
    gather(ctx);
  }
  embedding::TableShard::update(ctx, shards_, step);
}

/// Tells everybody how many partial rows come, and places them.
void ReplicaSync::lay_out(Context& ctx) {
  const std::size_t tables = shards_.size();
  std::vector<std::int64_t> own(tables);
  for (std::size_t t = 0; t < tables; ++t) {
    own[t] = shards_[t]->partials().count;
  }
  comm_.all_gather(ctx, own.data(), counts_.data(), static_cast<std::int64_t>(tables * 8));
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    begin_[i] = bytes;
    const std::int64_t cols = shards_[i % tables]->cols().size();
    bytes += counts_[i] * (8 + 4 * cols) + (4 * counts_[i] + 7) / 8 * 8;
    bytes = (bytes + 7) / 8 * 8;
  }
  received_.resize(bytes);
}

void ReplicaSync::gather(Context& ctx) {
  const std::size_t tables = shards_.size();
  const auto ranks = at(comm_.size());
  const auto self = at(comm_.rank());
  std::vector<std::vector<embedding::PartialRows>> partials(tables);
  send_pieces_.clear();
  for (std::size_t r = 0; r < ranks; ++r) {
    recv_pieces_[r].clear();
    for (std::size_t t = 0; t < tables; ++t) {
      const std::int64_t count = counts_[r * tables + t];
      const std::int64_t cols = shards_[t]->cols().size();
      auto* rows =
          reinterpret_cast<std::int64_t*>(received_.as<std::byte>() + begin_[r * tables + t]);
      auto* vectors = reinterpret_cast<float*>(rows + count);
      auto* nodes = reinterpret_cast<std::int32_t*>(vectors + count * cols);
      if (r == self) {
        const embedding::PartialRows own = shards_[t]->partials();
        partials[t].push_back(own);
        send_pieces_.push_back({const_cast<std::int64_t*>(own.rows), count * 8});
        send_pieces_.push_back({const_cast<float*>(own.vectors), count * cols * 4});
        send_pieces_.push_back({const_cast<std::int32_t*>(own.nodes), count * 4});
      } else {
        partials[t].push_back({.count = count, .rows = rows, .nodes = nodes, .vectors = vectors});
        recv_pieces_[r].push_back({rows, count * 8});
        recv_pieces_[r].push_back({vectors, count * cols * 4});
        recv_pieces_[r].push_back({nodes, count * 4});
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    send_[r] = r == self ? comm::Lane{} : comm::Lane{.pieces = send_pieces_};
    recv_[r] = {.pieces = recv_pieces_[r]};
  }
  comm_.exchange(ctx, send_, recv_);
  ctx.pool->parallel_for(static_cast<std::int64_t>(tables), [&](std::int64_t t) {
    shards_[at(t)]->merge_partials(ctx, partials[at(t)]);
  });
}

}  // namespace weft::sharding
