/// Private to sharding/: the gradients of rows that all ranks hold, added up by the rows' owners.
///
/// Notation: W ranks, u partial sums of a rank (one per touched row and whole subtree of its
/// parts), V rows that any rank has touched, D columns. Owners are a rule of the row's number
/// (weft/layout/row_sums.h).
///
///   to owners   counts, then of each partial sum row, vector and node to the row's owner
///   add         owners sort what has come by (row, node) and go up the tree of parts
///   to all      counts, then the owners' rows and sums to every rank: each row comes once
///
/// Bits        those of a rank that has all partial sums: the owner makes the same additions up the
///             same tree (weft/base/parts.h), and no rank adds to a sum.
/// Bytes       a rank sends (12 + 4D) u (1 - 1/W) to owners, and to each other rank (8 + 4D) per
/// row
///             it owns: in all (8 + 4D) V (1 - 1/W) come to a rank, at any W. Counts take
///             the bits that hold the most rows which can be: of each table with b rows of the
///             owner ⌈log2(n b + 1)⌉ to it, n the most whole subtrees that a rank has, and
///             ⌈log2(b + 1)⌉ from it to each. An owner gets at most its share of the rows from each
///             rank: W ⌈R/W⌉ rows of a table of R, however skewed the ids are.
/// Hosts       with a hierarchical communicator both exchanges go through its relays; sums cross
///             once for each pair of hosts.
/// Compared    gathering (ReplicaSync) brings (12 + 4D) u (W - 1) to a rank, which sorts and adds
///             W u partial sums, in two exchanges in place of four.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/row_gradients.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_sums.h"
#include "weft/sharding/row_lanes.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

class OwnedSums {
 public:
  /// `shards`: the copies held here, of the same tables on all ranks, which outlive it. `parts`:
  /// of the global batch.
  OwnedSums(comm::Communicator& comm,
            Device& device,
            std::span<embedding::TableShard* const> shards,
            std::int64_t parts);

  /// Brings the partial sums of `gradients` (accumulate_partials()) to their owners and the sums
  /// back: gradients then have one entry per row that any rank has touched, whose vector is the
  /// sum. `use` takes them; vectors are other ranks' own memory until it returns. Collective.
  template <typename Use>
  void exchange(Context& ctx, std::span<embedding::RowGradients* const> gradients, const Use& use) {
    add_up(ctx, gradients);
    comm_.gather_lent(ctx, sums_.own_lane(), sums_.recv(), [&](std::span<const comm::Lane> come) {
      take_sums(ctx, gradients, come);
      use();
    });
  }

 private:
  void add_up(Context& ctx, std::span<embedding::RowGradients* const> gradients);
  void cut_by_owner(Context& ctx, std::span<embedding::RowGradients* const> gradients);
  void take_sums(Context& ctx,
                 std::span<embedding::RowGradients* const> gradients,
                 std::span<const comm::Lane> arrived);

  comm::Communicator& comm_;
  Device& device_;
  std::vector<layout::SumBlocks> blocks_;  // [tables]
  RowLanes partials_, sums_;
  std::vector<std::unique_ptr<embedding::RowGradients>> owned_;  // [tables] of the rows owned here
  std::vector<embedding::RowGradients*> owned_list_;             // the same
  std::vector<embedding::PartialRows> to_owners_;                // [ranks][tables]
  std::vector<embedding::PartialRows> own_sums_;                 // [tables]
  std::vector<std::vector<embedding::PartialRows>> all_sums_;    // [tables][ranks]
  std::vector<std::int64_t> rows_;                               // of a table, on the host
  Buffer nodes_;                                                 // zeros: of sums over all parts
  std::int64_t zeros_ = 0;
};

}  // namespace weft::sharding
