/// Row sync: what updates of shards need from other ranks.
///
/// ColumnSync   column shards whose optimizer looks at the whole row: sums of squares of blocks of
///              16 columns travel between the shards of the same rows, coalesced over tables, and
///              go up
///              one tree on every shard, so that all keep the same value. One exchange per step
///              for row-wise statistics, a second for max-norm, made only where a table has it.
///              Bytes sent per rank and exchange: 4 · U · (own blocks) · (shards - 1) per table.
/// ReplicaSync  data_parallel tables: partial sums of row gradients per whole subtree of each
///              rank's parts are merged up the tree, so that every replica makes the same update.
///              The same for shards of replica groups, whose ranks have a group's parts each. Of up
///              to 8 ranks everybody gathers everybody's: one gather of counts, one of rows; bytes
///              sent per rank: (12 + 4·D) per partial row to each other rank. Of more ranks a
///              row's owner adds them up and sends the sum to all (owned_sums.h), so that bytes
///              do not grow with the ranks (weft/layout/row_sums.h).
///
/// Copies     what other ranks have is read where they hold it, over `local`; over `mpi` it is
///            received first. Nothing is allocated once the longest batch has been seen.
/// Notation   U unique rows of the step in a shard (equal on all shards of the same rows: they see
///            the same ids).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_sums.h"
#include "weft/sharding/owned_sums.h"
#include "weft/sharding/row_lanes.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

/// The shards of some rows of one table, one of which is held here, by column.
struct ColumnGroup {
  const embedding::TableShard* own = nullptr;
  std::int64_t position = 0;              ///< of the own shard among them
  std::vector<std::int64_t> ranks = {};   ///< [shards] holder of each, all different
  std::vector<std::int64_t> blocks = {};  ///< [shards] blocks of 16 columns of each
  std::int64_t dim = 0;                   ///< D of the whole row
};

class ColumnSync {
 public:
  /// `groups` in the order of tables, then rows. The communicator and the shards outlive it.
  ColumnSync(comm::Communicator& comm,
             Device& device,
             std::vector<ColumnGroup> groups,
             bool any_statistic,
             bool any_max_norm);

  /// Updates every group's shard by its coalesced gradients, given in the order of groups.
  /// Collective over all ranks, also those that hold no such shard.
  void update(Context& ctx,
              std::span<embedding::RowGradients* const> gradients,
              const embedding::UpdateStep& step);

 private:
  struct Member {
    ColumnGroup group;
    embedding::RowGradients* gradients = nullptr;  // of the step in hand
    Buffer own_blocks;                             // [U, blocks of the own shard]
    Buffer received;                   // [other shards][U, blocks of the shard], where not lent
    Buffer gathered;                   // [U] row values
    std::vector<std::size_t> pieces;   // [shards] of a shard's blocks in its rank's lane
    std::vector<const float*> blocks;  // [shards] where they have come
  };

  using Fill = void (*)(Context&,
                        std::span<embedding::RowGradients* const>,
                        std::span<float* const>);

  /// What becomes of a row's sum.
  enum class Value { kSum, kMean };

  void exchange(Context& ctx, std::span<Member* const> members, Fill fill, Value value);
  void gather(std::span<Member* const> members);
  void add_pieces(Member& member);
  void find_row_values(Context& ctx,
                       std::span<Member* const> members,
                       std::span<const comm::Lane> arrived,
                       Value value);

  comm::Communicator& comm_;
  std::vector<Member> members_;
  std::vector<Member*> with_statistic_, with_max_norm_;
  bool any_statistic_;
  bool any_max_norm_;
  std::vector<embedding::RowGradients*> gradients_;  // of the members of a call
  std::vector<float*> own_blocks_;                   // likewise
  std::vector<const float*> statistics_;             // likewise; null where there is none
  std::vector<kernels::RowBlocks> row_blocks_;       // likewise
  std::vector<std::vector<comm::Piece>> send_pieces_, recv_pieces_;
  std::vector<comm::Lane> send_, recv_;
};

class ReplicaSync {
 public:
  /// `shards`: the copies held here, in the order of tables, equal on all ranks. They outlive it.
  ReplicaSync(comm::Communicator& comm,
              Device& device,
              std::span<embedding::TableShard* const> shards,
              std::int64_t parts,
              layout::RowSums sums);

  /// Merges the ranks' coalesced gradients of every copy, which are given in the order of tables,
  /// and updates all copies. `find_rows` is called before the update, when the gradients have the
  /// rows of all ranks: it gives slots to those that are not all in memory. Others may wait for it.
  void update(Context& ctx,
              std::span<embedding::RowGradients* const> gradients,
              const embedding::UpdateStep& step,
              const std::function<void()>& find_rows);

  /// Merges them, and leaves the update to the caller: the gradients have accumulated what it
  /// needs.
  void accumulate(Context& ctx, std::span<embedding::RowGradients* const> gradients);

 private:
  using Gradients = std::span<embedding::RowGradients* const>;

  /// Calls use() when the gradients have the rows of all ranks. What these lend is read until it
  /// returns.
  template <typename Use>
  void merge(Context& ctx, Gradients gradients, const Use& use);

  comm::Communicator& comm_;
  Range own_parts_;
  RowLanes partials_;                        // where they are gathered
  std::vector<embedding::PartialRows> own_;  // [tables]
  std::unique_ptr<OwnedSums> owned_;         // null where they are gathered
};

}  // namespace weft::sharding
