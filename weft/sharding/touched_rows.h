/// TouchedRows: the rows of replicated shards that some group's updates have touched.
///
/// Exchanges  2: counts, lists. Bytes sent per rank: (M - 1)(8 shards + 4 U), U the rows touched
///            here since the last union, each once, M the groups.
/// Memory     layout::touched_lengths(): at most 8 bytes per row touched here since the last union,
///            4 of them to merge lists, 8 per row of one update, 4 per row of the others' lists,
///            and what vectors keep in hand as they grow. A list is sorted, and repeated rows leave
///            it, whenever it has grown to twice what it then had, so that sorting costs a
///            logarithm per entry however many steps lie between two unions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"

namespace weft::sharding {

class TouchedRows {
 public:
  /// `replicas`: the ranks that hold the same shards; `shards` the same on all of them. Both
  /// outlive it. Throws Error(kConfig) where a shard has 2^31 rows or more.
  TouchedRows(comm::Communicator& replicas, std::vector<embedding::TableShard*> shards);

  /// Notes the rows of `gradients`, one of each shard in their order, which an update has changed.
  void note_updated(std::span<embedding::RowGradients* const> gradients);

  /// Notes rows of shard number `shard`, counted within it, ascending.
  void add(std::size_t shard, std::span<const std::int32_t> rows);

  /// Finds the rows that any group has touched since the last call, and begins anew. Collective.
  void unite(Context& ctx);

  /// Of shard number `shard`: ascending, counted within its rows; valid until the next unite().
  [[nodiscard]] std::span<const std::int32_t> rows(std::size_t shard) const {
    return lists_[shard].rows;
  }

  /// Entries of the own lists at hand.
  [[nodiscard]] std::int64_t entries() const;

 private:
  struct List {
    std::vector<std::int32_t> own;  // since the last union
    std::size_t ascending = 0;      // as many of its first entries ascend strictly
    std::vector<std::int32_t> rows, merged;
  };

  static void compact(List& list);
  void unite_list(std::size_t shard);

  comm::Communicator& replicas_;
  std::vector<embedding::TableShard*> shards_;
  std::vector<List> lists_;                  // [shards]
  std::vector<std::int64_t> updated_;        // rows of one update
  std::vector<std::int32_t> send_, recv_;    // [M][shards] lists, one after the other
  std::vector<std::int64_t> own_counts_;     // [shards]
  std::vector<std::int64_t> counts_;         // [M][shards]
  std::vector<std::int64_t> bytes_, begin_;  // [M], [M][shards] in recv_
};

}  // namespace weft::sharding
