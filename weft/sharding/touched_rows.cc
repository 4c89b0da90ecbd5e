#include "weft/sharding/touched_rows.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::sharding {
TouchedRows::TouchedRows(comm::Communicator& replicas, std::vector<embedding::TableShard*> shards)
    : replicas_(replicas),
      shards_(std::move(shards)),
      lists_(shards_.size()),
      own_counts_(shards_.size()),
      counts_(shards_.size() * at(replicas.size())),
      bytes_(at(replicas.size())),
      begin_(counts_.size()) {
  for (const embedding::TableShard* shard : shards_) {
    const bool is_tier = shard->tier() != nullptr;
    if (shard->rows().size() > std::numeric_limits<std::int32_t>::max()) {
      fail(ErrorCode::kConfig,
           "{} lists rows of a shard in 4 bytes each, and one of table {} has {}; cut it over more "
           "ranks, or set {}",
           is_tier ? "an average of groups with memory.tier lazy or ssd" : "mesh.sync touched",
           shard->table().name, shard->rows().size(),
           is_tier ? "mesh.sync=gradients" : "mesh.sync=dense");
    }
  }
}

void TouchedRows::note_updated(std::span<embedding::RowGradients* const> gradients) {
  for (std::size_t s = 0; s < shards_.size(); ++s) {
    gradients[s]->read_unique_rows(updated_);
    List& list = lists_[s];
    std::transform(updated_.begin(), updated_.end(), std::back_inserter(list.own),
                   [](std::int64_t row) { return static_cast<std::int32_t>(row); });
    if (list.ascending == 0) {
      list.ascending = list.own.size();
    } else if (list.own.size() > 2 * list.ascending) {
      compact(list);
    }
  }
}

void TouchedRows::add(std::size_t shard, std::span<const std::int32_t> rows) {
  List& list = lists_[shard];
  list.own.insert(list.own.end(), rows.begin(), rows.end());
  if (list.ascending == 0) {
    list.ascending = list.own.size();
  }
}

std::int64_t TouchedRows::entries() const {
  std::int64_t total = 0;
  for (const List& list : lists_) {
    total += static_cast<std::int64_t>(list.own.size());
  }
  return total;
}

/// Sorted, each row once.
void TouchedRows::compact(List& list) {
  const auto middle = list.own.begin() + static_cast<std::ptrdiff_t>(list.ascending);
  std::sort(middle, list.own.end());
  const auto end = std::unique(middle, list.own.end());
  list.merged.clear();
  std::set_union(list.own.begin(), middle, middle, end, std::back_inserter(list.merged));
  std::swap(list.own, list.merged);
  list.ascending = list.own.size();
}

void TouchedRows::unite(Context& ctx) {
  const std::size_t shards = shards_.size();
  ctx.pool->parallel_for(static_cast<std::int64_t>(shards),
                         [&](std::int64_t s) { compact(lists_[at(s)]); });
  send_.clear();
  for (std::size_t s = 0; s < shards; ++s) {
    own_counts_[s] = static_cast<std::int64_t>(lists_[s].own.size());
    send_.insert(send_.end(), lists_[s].own.begin(), lists_[s].own.end());
  }
  replicas_.all_gather(ctx, own_counts_.data(), counts_.data(),
                       static_cast<std::int64_t>(shards) * 8);
  std::int64_t total = 0;
  for (std::size_t m = 0; m < bytes_.size(); ++m) {
    const std::int64_t first = total;
    for (std::size_t s = 0; s < shards; ++s) {
      begin_[m * shards + s] = total;
      total += counts_[m * shards + s];
    }
    bytes_[m] = 4 * (total - first);
  }
  recv_.resize(at(total));
  replicas_.all_gather_v(ctx, {.send = send_.data(),
                               .send_bytes = 4 * static_cast<std::int64_t>(send_.size()),
                               .recv = recv_.data(),
                               .recv_bytes = bytes_});
  ctx.pool->parallel_for(static_cast<std::int64_t>(shards),
                         [&](std::int64_t s) { unite_list(at(s)); });
}

void TouchedRows::unite_list(std::size_t shard) {
  List& list = lists_[shard];
  list.rows.clear();
  for (std::size_t m = 0; m < bytes_.size(); ++m) {
    const std::size_t entry = m * shards_.size() + shard;
    const std::int32_t* const rows = recv_.data() + begin_[entry];
    list.merged.clear();
    std::set_union(list.rows.begin(), list.rows.end(), rows, rows + counts_[entry],
                   std::back_inserter(list.merged));
    std::swap(list.rows, list.merged);
  }
  list.own.clear();
  list.ascending = 0;
}

}  // namespace weft::sharding
