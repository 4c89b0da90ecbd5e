/// RowGradients: the gradients of one shard's rows that one batch has in flight. Each batch in
/// flight has its own; the rows and their optimizer state stay in the TableShard.
///
/// The entries of a batch are coalesced: sorted by (row, part), with the addresses of their
/// vectors, before any gradient exists. Then a row's gradient is summed up the tree of parts: by
/// the update itself (TableShard::update()), which reads the entries; before it, by accumulate(),
/// into a matrix; or in part, by accumulate_partials(), for whoever adds up the partial sums of all
/// ranks (merge_partials()).
///
/// Memory: buffers are reused from step to step; once the longest batch has been seen nothing is
/// allocated.
/// Threads: one caller at a time, inside a stage; a Context's pool is used.
/// Determinism: bits depend on the entries and their parts, never on the pool.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/parts.h"
#include "weft/embedding/partial_sums.h"
#include "weft/embedding/written_rows.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/rows.h"
#include "weft/kernels/sparse_update.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::embedding {

class TableShard;

class RowGradients {
 public:
  /// Of `shard`, on the device of its rows. The shard outlives it.
  RowGradients(Device& device, TableShard& shard);

  [[nodiscard]] TableShard& shard() const { return *shard_; }

  /// Sorts the entries of a batch; needs ids, parts and addresses, no gradient values. The blocks
  /// are given in the order of addition: feature as configured, then sample. What they point to
  /// stays valid until the update.
  void coalesce(Context& ctx, std::span<const kernels::GradientBlock> blocks);

  /// Coalesces the batch's entries of several shards in one call.
  static void coalesce(
      Context& ctx,
      std::span<const std::pair<RowGradients*, std::span<const kernels::GradientBlock>>> all);

  /// Number of rows that the batch touches.
  [[nodiscard]] std::int64_t num_unique() const { return runs_.num_rows; }

  /// [num_unique()] rows, ascending, counted within the shard; valid until the next coalesce().
  [[nodiscard]] const std::int64_t* unique_rows() const { return runs_.rows; }

  /// Says where the rows of the batch are, in the order of unique_rows(), until the update: for
  /// shards whose rows are not all in memory.
  void use_slots(const std::int64_t* slots) { runs_.slots = slots; }

  /// Copies unique_rows() to the host. They are there once coalesce() has returned.
  void read_unique_rows(std::vector<std::int64_t>& out) const;

  /// Copies the slots of use_slots() to the host. REQUIRES: they have been said.
  void read_slots(std::vector<std::int64_t>& out) const;

  /// Makes row_gradients() `factor` times the sums of the rows' entries. Once they are there
  /// another call does nothing.
  void accumulate(Context& ctx, float factor = 1.0F);

  /// Does that for several shards in one call.
  static void accumulate(Context& ctx, std::span<RowGradients* const> all, float factor = 1.0F);

  /// [num_unique(), columns], after accumulate() and until the next coalesce().
  [[nodiscard]] const float* row_gradients() const { return sums_.as<float>(); }

  /// Sums the entries of several shards per maximal whole subtree of `own_parts`, this rank's run
  /// of parts.
  static void accumulate_partials(Context& ctx,
                                  std::span<RowGradients* const> all,
                                  Range own_parts);

  /// The sums of accumulate_partials(), valid until the next call of it.
  [[nodiscard]] PartialRows partials() const { return partials_.rows(); }

  /// Replaces the coalesced entries of each shard by the ranks' partial sums of it, from_ranks[i]
  /// of all[i], to be summed up the tree by the update or accumulate(). The vectors stay valid
  /// until then. Any order of ranks will do.
  static void merge_partials(Context& ctx,
                             std::span<RowGradients* const> all,
                             std::span<const std::vector<PartialRows>> from_ranks);

 private:
  friend class TableShard;  // applies the optimizer to them

  enum class State : std::uint8_t {
    kNone,
    kCoalesced,
    kAccumulated,
    kRowsToStore,  ///< sums_ has become the new rows, not yet scaled to their largest norm
  };

  /// Jobs of the operations for several shards. Those of the first in a call are used, so that a
  /// call allocates nothing.
  struct Jobs {
    std::vector<kernels::CoalesceJob> coalesces;
    std::vector<kernels::CountUp> counts;
    std::vector<kernels::GradientSum> sums;
    std::vector<PartialSums::Work> partials;
    std::vector<kernels::SparseUpdate> updates;
    std::vector<kernels::StatisticUpdate> statistic_updates;
    std::vector<kernels::BlockSquares> block_squares;
    std::vector<kernels::RowSquares> row_squares;
    std::vector<RowsToMark> marks;
  };

  void read_list(const std::int64_t* list, std::vector<std::int64_t>& out) const;
  [[nodiscard]] kernels::CoalesceJob coalesce_job(std::span<const kernels::GradientBlock> blocks);
  void add_merge_blocks(std::span<const PartialRows> from_ranks, Jobs& jobs);

  TableShard* shard_;
  kernels::RunBuffers buffers_;
  kernels::RowRuns runs_;
  State state_ = State::kNone;
  Buffer sums_;  ///< [num_unique(), columns]
  PartialSums partials_;
  Buffer merge_places_;                               ///< 0, 1, 2, …: one bag per partial sum
  std::int64_t places_ = 0;                           ///< how many of them are there
  std::vector<kernels::GradientBlock> merge_blocks_;  ///< one per rank
  kernels::SparseUpdate update_;                      ///< what the kernels of the update work with
  Jobs jobs_;
  std::vector<std::int64_t> changed_;  ///< unique_rows(), where changes are noted
};

}  // namespace weft::embedding
