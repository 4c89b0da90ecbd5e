/// TableShard: a block of rows x columns of an embedding table with its optimizer state. Rows are a
/// range, every n-th or a list; row numbers are local to the shard unless a comment says "the whole
/// table's". The shard looks rows up and applies the optimizer exactly once per touched row. What a
/// batch has in flight, the gradients of its rows, is a RowGradients, of which several may exist.
///
/// Memory: rows on `device`: all of them (RowStore), or those that the table's memory.tier has
/// there (RowTier). Threads: one caller at a time per shard, inside a stage; a Context's pool is
/// used, or none. Determinism: bits depend on the table, seed, step and the entries given, never on
/// the pool, on the cut into shards, or on the target's vector width. docs/numerics.md has the
/// orders of sums. Errors: none per row; a row whose sum or update overflows is left as it was and
/// counted.
///
/// One step, of a shard and its gradients, for a shard that holds whole rows:
///   lookup() ... coalesce() -> update()
/// for a column shard with a row-wise statistic or max-norm (needs_statistic(), needs_max_norm()):
///   coalesce() -> accumulate() -> block_squares(), exchange -> update_with_statistic()
///              -> row_block_squares(), exchange -> scale_to_max_norm()
/// for a data_parallel table on several ranks:
///   coalesce() -> accumulate_partials() -> partials(), gather -> merge_partials() -> update()
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/embedding/initial_value.h"
#include "weft/embedding/row_gradients.h"
#include "weft/embedding/shard_rows.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/kernels/row_copies.h"
#include "weft/kernels/row_statistics.h"
#include "weft/kernels/rows.h"
#include "weft/kernels/sparse_update.h"
#include "weft/spec/config.h"
#include "weft/storage/row_store.h"
#include "weft/storage/row_tier.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::embedding {

using kernels::Bags;
using kernels::block_tree_sum;
using kernels::GradientBlock;

/// One lookup. Pooled: `out` has one row per bag, the (weighted) sum of its rows in the order of
/// the bag, zero for an empty bag; otherwise one row per id, at its place counted from
/// bags.offsets[0], and weights are ignored. Mean pooling is the caller's scaling.
struct Lookup {
  Bags bags;
  bool pooled = true;
  float* out = nullptr;
  std::int64_t out_stride = 0;           ///< elements
  const std::int64_t* places = nullptr;  ///< in its place, as kernels::BagLookup
};

/// What an update depends on besides the gradients.
struct UpdateStep {
  double learning_rate_factor = 1.0;  ///< of the schedule; multiplies the table's learning rate
  std::int64_t step = 1;              ///< global, counted from 1 (Adam's t)
  std::uint64_t seed = 0;             ///< of the job, for stochastic rounding
};

/// The choices for a shard that its table does not make.
struct TableShardOptions {
  std::int64_t parts = 8;    ///< P of the rule of parts
  bool first_holder = true;  ///< this rank saves and counts what several ranks hold
  /// Which of the replicas that are updated by themselves and averaged later this is: their
  /// stochastic roundings draw other words. 0 for the first, and where replicas stay equal.
  std::int64_t replica = 0;
  DrawRule draw_rule = kNewestDrawRule;  ///< of stochastic roundings
  /// The whole table's numbers of the rows, ascending, where they are a list, as hot rows are. Then
  /// `rows` is [0, their number), and so are rows of the state, whose parameter is
  /// "tables.<name>.head".
  std::vector<std::int64_t> row_list = {};
  /// The memory below the cache, of a table with memory.tier ssd: packed rows of the block. It
  /// outlives the shard.
  storage::RowBacking* backing = nullptr;
  std::int64_t cache_bytes = 0;  ///< of the cache above it
};

/// One block of a table: its rows and state, and the gradients of the step in hand.
class TableShard final : public StateSource, public StateSink {
 public:
  /// Allocates and initialises the block on the device, with the device's pool. Blocks until done.
  TableShard(Device& device,
             const spec::Table& table,
             const RowSet& rows,
             Range cols,
             std::uint64_t seed,
             const TableShardOptions& options);

  [[nodiscard]] const spec::Table& table() const { return table_; }

  [[nodiscard]] const RowSet& rows() const { return rows_; }

  /// The whole table's number of each row, where they are a list; else empty.
  [[nodiscard]] std::span<const std::int64_t> row_list() const { return options_.row_list; }

  [[nodiscard]] Range cols() const { return cols_; }

  /// Returns the draws with which averages over replicas are rounded: the same on all of them.
  [[nodiscard]] RowDraws average_draws(std::uint64_t seed) const;

  /// Whether update() must be replaced by the split form because the block lacks columns.
  [[nodiscard]] bool needs_statistic() const;  ///< block_squares() and an exchange
  [[nodiscard]] bool needs_max_norm() const;   ///< row_block_squares() and an exchange

  /// Who gives rows their slots, or null (weft/storage/residency.h).
  [[nodiscard]] storage::Residency* residency() const {
    return tier_ != nullptr ? tier_.get() : store_->residency();
  }

  /// As RowStore's, of this shard's rows. REQUIRES: all rows are in memory.
  void set_residency(storage::Residency* residency) { store_->set_residency(residency); }

  /// The memories of rows that are not all in memory; null for others.
  [[nodiscard]] storage::RowTier* tier() const { return tier_.get(); }

  /// A lookup in these rows, as a job of kernels::embedding_bag(), which takes those of all tables
  /// in one call. Bags have slots: the rows themselves, or what the batch's ResidentRows says.
  [[nodiscard]] kernels::BagLookup lookup(const Lookup& lookup) const;

  /// P of the rule of parts.
  [[nodiscard]] std::int64_t parts() const { return options_.parts; }

  /// Sums each touched row's gradient up the tree of parts and applies the optimizer. `gradients`
  /// are this shard's, after coalesce(), accumulate() or merge_partials(). The shard holds whole
  /// rows, or the optimizer needs nothing of the row's other columns.
  void update(Context& ctx, RowGradients& gradients, const UpdateStep& step);

  /// Updates the shards of several gradients in one task pool.
  static void update(Context& ctx,
                     std::span<RowGradients* const> gradients,
                     const UpdateStep& step);

  [[nodiscard]] std::int64_t num_blocks() const;  ///< ⌈cols / 16⌉

  // The split form, of several gradients in one call; out[i] and the statistics belong to
  // gradients[i].

  /// Writes sums of squares of the gradient, plus weight_decay x row for L2, per block of 16
  /// columns: out [num_unique(), num_blocks()].
  static void block_squares(Context& ctx,
                            std::span<RowGradients* const> gradients,
                            std::span<float* const> out);

  /// Applies the optimizer after accumulate(). `mean_square` [num_unique()], the row's
  /// block_tree_sum / D (see mean_square()); null for optimizers without a row statistic. With
  /// max_norm the weights are written by scale_to_max_norm(), which must follow.
  static void update_with_statistic(Context& ctx,
                                    std::span<RowGradients* const> gradients,
                                    const UpdateStep& step,
                                    std::span<const float* const> mean_square);

  /// Writes the same sums of the updated row before rounding, [num_unique(), num_blocks()].
  static void row_block_squares(Context& ctx,
                                std::span<RowGradients* const> gradients,
                                std::span<float* const> out);

  /// `row_square` [num_unique()]: block_tree_sum over all blocks of the row.
  static void scale_to_max_norm(Context& ctx,
                                std::span<RowGradients* const> gradients,
                                std::span<const float* const> row_square);

  /// Rows left as they were because their gradient, state or weights would not be finite, since
  /// the shard was made; and the first one's row in the whole table (lowest of its step), or -1.
  [[nodiscard]] std::int64_t overflow_count() const { return overflow_copy_.count; }

  [[nodiscard]] std::int64_t first_overflow_row() const { return overflow_copy_.first_row; }

  /// parameter "tables.<name>", kinds "weight" (dtype of the rows; fp32 for split_bf16), then fp32
  /// "sum" (Adagrad: [E, D]; row-wise: [E, 1]) or "exp_avg" [E, D] and "exp_avg_sq" ([E, D];
  /// row-wise: [E, 1]).
  /// Row-wise state of a column shard is counted by the shard with column 0. Inside a stage.
  [[nodiscard]] std::vector<StateItem> state_items() const override;

  /// The key of such rows in segments, of a shard with these columns: what checkpoints call them.
  [[nodiscard]] static std::uint64_t stream_key(const spec::Table& table, Range cols);
  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override;
  [[nodiscard]] RowsInPlace rows_in_place(std::size_t index,
                                          std::int64_t row_begin,
                                          std::int64_t rows) const override;
  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override;

  /// What read_state() gave before the first step: same shape and type, without reading rows. Not
  /// of a list of rows.
  void initial_state(std::size_t index, std::int64_t row_begin, std::int64_t rows, void* out) const;

  /// All items of a row together, by list.
  [[nodiscard]] const RowState* row_state() const override { return row_state_.get(); }

  [[nodiscard]] RowState* row_sink() override { return row_state_.get(); }

  /// Bytes of memory for rows and their state, and for where they are.
  [[nodiscard]] std::int64_t bytes() const {
    return tier_ != nullptr ? tier_->bytes() : store_->bytes();
  }

  /// Where the rows are, for whoever makes replicas of them equal. Inside a stage.
  [[nodiscard]] kernels::RowTable row_table() const;

  /// Notes rows, counted within the shard, or all of them, that somebody has written where they
  /// are, for who asks what has changed (RowState::mark()) or what was ever written. Whoever writes
  /// through row_table() has to: a hash does not look at other rows.
  void note_written(std::span<const std::int32_t> rows);
  void note_all_written();

  /// Says where the store has the rows of coalesced entries; of rows that are not all in memory
  /// nothing, until the update asks the batch's ResidentRows.
  void resolve(kernels::RowRuns& runs) const;

  /// The slots of rows, counted within the shard, for jobs over row_table(). Valid as long as
  /// `rows`.
  [[nodiscard]] std::span<const std::int32_t> resolve(std::span<const std::int32_t> rows) const {
    return store_->resolve(rows);
  }

  /// The slots of a range of rows.
  [[nodiscard]] Range resolve(Range rows) const { return store_->resolve(rows); }

 private:
  /// Where an item of state lies in a row.
  struct ItemPlace {
    kernels::RowCopy::Part part;
    std::int64_t first;  ///< of the row's columns here, or of the floats of its state
    std::int64_t cols;
    std::int64_t first_col;  ///< the item's number of the first
  };

  friend class ShardRows;  // its rows by list

  void initialise(Context& ctx);
  [[nodiscard]] std::unique_ptr<storage::RowTier> make_tier(Device& device);
  void make_rows(Context& ctx,
                 const kernels::RowTable& table,
                 std::span<const std::int64_t> rows,
                 std::span<const std::int64_t> slots);
  void pack_slots(std::span<const std::int64_t> rows, std::byte* packed) const;
  void unpack_slots(std::span<const std::int64_t> rows, const std::byte* packed);
  void pack_initial(std::span<const std::int64_t> rows, std::byte* packed) const;
  void read_tier(const ItemPlace& place, std::int64_t begin, std::int64_t rows, void* out) const;
  void write_tier(const ItemPlace& place,
                  std::span<const std::int64_t> rows,
                  Range cols,
                  const void* in);
  static void note_changes(Context& ctx, std::span<RowGradients* const> gradients);
  const kernels::SparseUpdate& prepare(RowGradients& gradients, const UpdateStep& step) const;
  static void collect_overflow(Context& ctx, std::span<RowGradients* const> gradients);
  void check_rows(std::int64_t row_begin, std::int64_t rows) const;
  [[nodiscard]] ItemPlace item_place(std::size_t index) const;
  [[nodiscard]] kernels::RowCopy item_copy(const ItemPlace& place,
                                           std::int64_t row_begin,
                                           std::int64_t rows) const;

  spec::Table table_;
  RowSet rows_;
  Range cols_;
  TableShardOptions options_;
  kernels::InitialRows initial_;
  std::unique_ptr<storage::RowStore> store_;  ///< null where rows are not all in memory
  std::mutex making_;                         ///< of the next two
  Buffer made_numbers_, made_slots_;          ///< of rows that get their initial values
  std::unique_ptr<storage::RowTier> tier_;    ///< null where they are
  kernels::RowTable view_;                    ///< of slots, without numbers of rows
  std::int64_t state_floats_ = 0;             ///< of a row
  std::unique_ptr<ShardRows> row_state_;
  Buffer row_list_;                     ///< options_.row_list, on the device
  Buffer overflow_;                     ///< one kernels::RowOverflow, on the device
  kernels::RowOverflow overflow_copy_;  ///< on the host, as of the last update
};

}  // namespace weft::embedding
