#include "weft/sharding/row_sync.h"

#include <numeric>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/row_statistics.h"
#include "weft/layout/row_gradients.h"

namespace weft::sharding {
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
    member.own_blocks = Buffer(device);
    member.received = Buffer(device);
    member.gathered = Buffer(device);
    member.pieces.resize(group.ranks.size());
    member.blocks.resize(group.ranks.size());
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

void ColumnSync::update(Context& ctx,
                        std::span<embedding::RowGradients* const> gradients,
                        const embedding::UpdateStep& step) {
  for (std::size_t m = 0; m < members_.size(); ++m) {
    members_[m].gradients = gradients[m];
  }
  embedding::RowGradients::accumulate(ctx, gradients);
  if (any_statistic_) {
    exchange(ctx, with_statistic_, &embedding::TableShard::block_squares, Value::kMean);
  }
  statistics_.clear();
  for (const Member& member : members_) {
    const bool statistic = member.group.own->needs_statistic();
    statistics_.push_back(statistic ? member.gathered.as<float>() : nullptr);
  }
  embedding::TableShard::update_with_statistic(ctx, gradients, step, statistics_);
  if (any_max_norm_) {
    exchange(ctx, with_max_norm_, &embedding::TableShard::row_block_squares, Value::kSum);
  }
  gather(with_max_norm_);
  statistics_.clear();
  for (const Member* member : with_max_norm_) {
    statistics_.push_back(member->gathered.as<float>());
  }
  embedding::TableShard::scale_to_max_norm(ctx, gradients_, statistics_);
}

/// The gradients of members, as operations take them.
void ColumnSync::gather(std::span<Member* const> members) {
  gradients_.clear();
  for (const Member* member : members) {
    gradients_.push_back(member->gradients);
  }
}

/// Every shard's blocks to every other shard of its table; then gathered[row] of all members.
void ColumnSync::exchange(Context& ctx, std::span<Member* const> members, Fill fill, Value value) {
  for (std::size_t r = 0; r < send_.size(); ++r) {
    send_pieces_[r].clear();
    recv_pieces_[r].clear();
  }
  gather(members);
  own_blocks_.clear();
  for (Member* member : members) {
    add_pieces(*member);
  }
  fill(ctx, gradients_, own_blocks_);
  for (std::size_t r = 0; r < send_.size(); ++r) {
    // Who has other columns of these rows is known to both.
    send_[r] = comm::Lane::of(send_pieces_[r]);
    recv_[r] = comm::Lane::of(recv_pieces_[r]);
  }
  comm_.exchange_lent(ctx, send_, recv_, [&](std::span<const comm::Lane> arrived) {
    find_row_values(ctx, members, arrived, value);
  });
}

void ColumnSync::add_pieces(Member& member) {
  const ColumnGroup& group = member.group;
  const std::int64_t rows = member.gradients->num_unique();
  const std::int64_t own_blocks = group.blocks[at(group.position)];
  const std::int64_t all_blocks =
      std::accumulate(group.blocks.begin(), group.blocks.end(), std::int64_t{0});
  const auto lengths = layout::statistic_lengths(rows, own_blocks, all_blocks - own_blocks);
  auto* const own = member.own_blocks.resize_for(lengths.own_blocks);
  float* received = comm_.lends() ? nullptr : member.received.resize_for(lengths.received);
  member.gathered.resize_for(lengths.gathered);
  own_blocks_.push_back(own);
  for (std::size_t k = 0; k < group.ranks.size(); ++k) {
    if (static_cast<std::int64_t>(k) == group.position) {
      member.blocks[k] = own;
      continue;
    }
    const std::size_t r = at(group.ranks[k]);
    const std::int64_t floats = rows * group.blocks[k];
    member.pieces[k] = recv_pieces_[r].size();
    send_pieces_[r].push_back({own, lengths.own_blocks.bytes()});
    recv_pieces_[r].push_back({received, floats * 4});
    received += received == nullptr ? 0 : floats;
  }
}

void ColumnSync::find_row_values(Context& ctx,
                                 std::span<Member* const> members,
                                 std::span<const comm::Lane> arrived,
                                 Value value) {
  row_blocks_.clear();
  for (Member* member : members) {
    const ColumnGroup& group = member->group;
    for (std::size_t k = 0; k < group.ranks.size(); ++k) {
      if (static_cast<std::int64_t>(k) != group.position) {
        const comm::Lane& lane = arrived[at(group.ranks[k])];
        member->blocks[k] = lane.pieces.empty()  // silent: no row has a statistic
                                ? nullptr
                                : static_cast<const float*>(lane.pieces[member->pieces[k]].data);
      }
    }
    const std::int64_t rows = member->gradients->num_unique();
    row_blocks_.push_back({.rows = rows,
                           .blocks = member->blocks,
                           .counts = group.blocks,
                           .divisor = value == Value::kMean ? static_cast<float>(group.dim) : 1.0F,
                           .out = member->gathered.as<float>()});
  }
  kernels::sum_row_blocks(ctx, row_blocks_);
}

ReplicaSync::ReplicaSync(comm::Communicator& comm,
                         Device& device,
                         std::span<embedding::TableShard* const> shards,
                         std::int64_t parts,
                         layout::RowSums sums)
    : comm_(comm),
      own_parts_(rank_parts(parts, comm.size(), comm.rank())),
      partials_(comm, device, columns_of(shards), RowLanes::Vectors::kPartial),
      own_(shards.size()) {
  if (sums == layout::RowSums::kOwned && comm.size() > 1 && !shards.empty()) {
    owned_ = std::make_unique<OwnedSums>(comm, device, shards, parts);
  }
}

void ReplicaSync::update(Context& ctx,
                         Gradients gradients,
                         const embedding::UpdateStep& step,
                         const std::function<void()>& find_rows) {
  if (gradients.empty()) {
    return;
  }
  if (comm_.size() == 1) {
    find_rows();
    embedding::TableShard::update(ctx, gradients, step);
    return;
  }
  // The update reads what the other ranks lend, so it is part of the exchange.
  merge(ctx, gradients, [&] {
    find_rows();
    embedding::TableShard::update(ctx, gradients, step);
  });
}

void ReplicaSync::accumulate(Context& ctx, Gradients gradients) {
  merge(ctx, gradients, [&] { embedding::RowGradients::accumulate(ctx, gradients); });
}

template <typename Use>
void ReplicaSync::merge(Context& ctx, Gradients gradients, const Use& use) {
  WEFT_CHECK(gradients.size() == own_.size(), "gradients of {} shards, {} expected",
             gradients.size(), own_.size());
  embedding::RowGradients::accumulate_partials(ctx, gradients, own_parts_);
  if (owned_ != nullptr) {
    owned_->exchange(ctx, gradients, use);
    return;
  }
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    own_[t] = gradients[t]->partials();
  }
  partials_.share_own(ctx, own_);
  comm_.gather_lent(
      ctx, partials_.own_lane(), partials_.recv(), [&](std::span<const comm::Lane> arrived) {
        embedding::RowGradients::merge_partials(ctx, gradients, partials_.lists(arrived));
        use();
      });
}

}  // namespace weft::sharding
