#include "weft/sharding/owned_sums.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/layout/lengths.h"

namespace weft::sharding {
namespace {

using embedding::PartialRows;
using embedding::RowGradients;

/// Places [begin, end) of a list.
PartialRows cut_of(const PartialRows& list, Range places, std::int64_t columns) {
  return {.count = places.size(),
          .rows = list.rows + places.begin,
          .nodes = list.nodes + places.begin,
          .vectors = list.vectors + places.begin * columns};
}

std::vector<layout::SumBlocks> blocks_of(std::span<embedding::TableShard* const> shards,
                                         std::int64_t ranks) {
  std::vector<layout::SumBlocks> blocks;
  for (const embedding::TableShard* const shard : shards) {
    blocks.push_back({.rows = shard->rows().size(),
                      .ranks = ranks,
                      .table = static_cast<std::int64_t>(blocks.size()),
                      .tables = static_cast<std::int64_t>(shards.size())});
  }
  return blocks;
}

/// [ranks][tables] bits of a number of rows that a rank owns, where each may come `times` times.
std::vector<std::uint8_t> owned_bits(std::span<const layout::SumBlocks> blocks,
                                     std::int64_t ranks,
                                     std::int64_t times) {
  std::vector<std::uint8_t> bits;
  bits.reserve(at(ranks) * blocks.size());
  for (std::int64_t r = 0; r < ranks; ++r) {
    for (const layout::SumBlocks& of_table : blocks) {
      bits.push_back(
          static_cast<std::uint8_t>(layout::count_bits(times * of_table.owned(r).size())));
    }
  }
  return bits;
}

}  // namespace

OwnedSums::OwnedSums(comm::Communicator& comm,
                     Device& device,
                     std::span<embedding::TableShard* const> shards,
                     std::int64_t parts)
    : comm_(comm),
      device_(device),
      blocks_(blocks_of(shards, comm.size())),
      partials_(comm,
                device,
                columns_of(shards),
                RowLanes::Vectors::kPartial,
                owned_bits(blocks_, comm.size(), layout::most_nodes(parts, comm.size()))),
      sums_(comm,
            device,
            columns_of(shards),
            RowLanes::Vectors::kWhole,
            owned_bits(blocks_, comm.size(), 1)),
      to_owners_(at(comm.size()) * shards.size()),
      own_sums_(shards.size()),
      all_sums_(shards.size()),
      nodes_(device) {
  for (embedding::TableShard* const shard : shards) {
    owned_list_.push_back(
        owned_.emplace_back(std::make_unique<RowGradients>(device, *shard)).get());
  }
}

/// Partial sums ascend by row, so that those of a block lie side by side.
void OwnedSums::cut_by_owner(Context& ctx, std::span<RowGradients* const> gradients) {
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const PartialRows own = gradients[t]->partials();
    const std::int64_t columns = gradients[t]->shard().cols().size();
    rows_.resize(at(own.count));
    device_.copy_to_host(ctx, rows_.data(), own.rows, own.count * 8);
    auto begin = rows_.begin();
    for (std::int64_t b = 0; b < comm_.size(); ++b) {
      const auto end = std::lower_bound(begin, rows_.end(), blocks_[t].block(b).end);
      to_owners_[at(blocks_[t].owner(b)) * gradients.size() + t] =
          cut_of(own, {begin - rows_.begin(), end - rows_.begin()}, columns);
      begin = end;
    }
  }
}

void OwnedSums::add_up(Context& ctx, std::span<RowGradients* const> gradients) {
  cut_by_owner(ctx, gradients);
  partials_.share_each(ctx, to_owners_);
  comm_.exchange_lent(ctx, partials_.lanes(), partials_.recv(),
                      [&](std::span<const comm::Lane> arrived) {
                        RowGradients::merge_partials(ctx, owned_list_, partials_.lists(arrived));
                        RowGradients::accumulate(ctx, owned_list_);
                      });
  for (std::size_t t = 0; t < owned_list_.size(); ++t) {
    own_sums_[t] = {.count = owned_list_[t]->num_unique(),
                    .rows = owned_list_[t]->unique_rows(),
                    .nodes = nullptr,
                    .vectors = owned_list_[t]->row_gradients()};
  }
  sums_.share_own(ctx, own_sums_);
}

/// A sum over all parts is one of the first node, and the only one of its row.
void OwnedSums::take_sums(Context& ctx,
                          std::span<RowGradients* const> gradients,
                          std::span<const comm::Lane> arrived) {
  const auto lists = sums_.lists(arrived);
  std::int64_t most = 0;
  for (std::size_t t = 0; t < lists.size(); ++t) {
    all_sums_[t].assign(lists[t].begin(), lists[t].end());
    for (const PartialRows& list : lists[t]) {
      most = std::max(most, list.count);
    }
  }
  if (most > zeros_) {
    zeros_ = most;
    auto* const zeros = nodes_.resize_for(layout::Array<std::int32_t>{most});
    device_.fill_zero(ctx, zeros, nodes_.bytes());
  }
  for (auto& table : all_sums_) {
    for (PartialRows& list : table) {
      list.nodes = nodes_.as<const std::int32_t>();
    }
  }
  RowGradients::merge_partials(ctx, gradients, all_sums_);
}

}  // namespace weft::sharding
