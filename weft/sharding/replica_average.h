/// ReplicaAverage: makes the replicas of shards that M replica groups hold equal again, by the
/// average of rows and of all their optimizer state (weft/spec/mesh.h).
///
/// Each row is averaged once, by its owner among the M ranks that hold it: rows travel to their
/// owners (all-to-all), are summed in fp64 in the order of groups, divided by M, rounded to fp32
/// and, of fp16 and bf16 rows, from there stochastically, with Philox(kReplicaAverage, table; row,
/// step · 2^20 + column/4); split_bf16 rows are averaged as the fp32 words that they are. The
/// averages travel to the others (all-gather). So afterwards all replicas have the same bits, and
/// equal values, whose sum and its quotient are exact in fp64, stay as they are for every M.
///
/// Forms      dense: all rows. touched: those that some group's updates have touched since the last
///            average; the others are equal already, so the bits are those of dense. Of shards
///            whose rows are not all in memory always touched, in rounds that their slots have room
///            for (average_slots.h).
/// Notation   S bytes of the rows to average and their state, without padding.
/// Exchanges  2 for each 64 MiB of S; touched: and those of touched_rows.h.
/// Bytes      sent per rank: (M - 1)/M · S to the owners, as many from them: 2 (M - 1)/M · S, where
///            M divides the rows. touched: and those of touched_rows.h.
/// Memory     over `mpi` up to (M - 1)/M · 64 MiB; over `local` none: the owner reads the others'
///            rows where they are, and writes its own in place.
/// Threads    as the communicator's; rows are cut into tasks for the context's pool.
/// Codec      with one, what rows have changed by travels, as codes: coded_average.h says what then
///            differs. Without, nothing is copied and nothing is kept.
/// Source     arXiv 2508.03854 (average of rows and moments); the reduce-scatter/all-gather split
///            of Rabenseifner, 2004.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/row_draws.h"
#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/row_average.h"
#include "weft/kernels/row_fields.h"
#include "weft/sharding/average_slots.h"
#include "weft/sharding/coded_average.h"
#include "weft/sharding/sync_residuals.h"
#include "weft/sharding/touched_rows.h"
#include "weft/spec/mesh.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

/// The form, the rounding and the codec of an average; equal on all ranks that take part.
struct ReplicaAverageOptions {
  spec::SyncForm form = spec::SyncForm::kDense;  ///< dense or touched
  std::uint64_t seed = 0;                        ///< of the job, for stochastic rounding
  kernels::Codec codec = {};                     ///< of changes; rounds to nearest. fp32: none
  bool error_feedback = true;                    ///< of the codec
  KeptLeftOut left_out = KeptLeftOut::kNothing;  ///< for negative controls
};

class ReplicaAverage {
 public:
  /// `replicas`: the ranks that hold the same shards, in the order of groups. `shards` in the order
  /// of tables, the same on all of them. Communicator, device and shards outlive it. Throws what
  /// TouchedRows does, and KeptRows.
  ReplicaAverage(comm::Communicator& replicas,
                 Device& device,
                 const std::vector<embedding::TableShard*>& shards,
                 const ReplicaAverageOptions& options);

  /// Before every update, once the slots of its rows are known: keeps what a codec needs of rows
  /// that are not all in memory. `gradients` as below.
  void keep_values(Context& ctx, std::span<embedding::RowGradients* const> gradients) {
    if (coded_) {
      coded_->keep_values(ctx, gradients);
    }
  }

  /// Notes the rows that the update of a step has changed; `gradients` are those of the shards, in
  /// their order. After every update, before the gradients are coalesced anew.
  void note_updated(std::span<embedding::RowGradients* const> gradients);

  /// Averages, after the update of `step`. Collective over `replicas`.
  void run(Context& ctx, std::int64_t step);

  /// For the codec, which keeps copies. restored(): after all rows, and the residuals, have been
  /// written; stored(): after those of a shard, numbered in the whole table; both alike on all
  /// groups, at a sync, inside a stage.
  void restored(Context& ctx);
  void stored(const embedding::TableShard& shard, std::span<const Range> rows);

  /// What encoding has lost of the shards whose rows are all in memory; null without a codec or its
  /// feedback.
  [[nodiscard]] SyncResiduals* residuals() { return coded_ ? coded_->residuals() : nullptr; }

  /// The same of all shards; empty without.
  [[nodiscard]] std::vector<ResidualState*> residual_states() {
    return coded_ ? coded_->residual_states() : std::vector<ResidualState*>{};
  }

  /// Bytes that the codec keeps of rows, buffers of a sync apart.
  [[nodiscard]] std::int64_t copies_bytes() const { return coded_ ? coded_->copies_bytes() : 0; }

  /// Of this rank, since it was made. From any thread.
  [[nodiscard]] SyncClips clips() const { return coded_ ? coded_->clips() : SyncClips{}; }

 private:
  struct Member {
    embedding::TableShard* shard = nullptr;
    std::size_t list = kAllRows;  // of touched_
    kernels::RowTable table;
    kernels::RowFields fields;
    std::int64_t state_floats = 0;
    std::int64_t row_bytes = 0;  // of all fields
    RowDraws draws = {};
  };

  /// Rows of a member that are averaged together: by their numbers, or their places in the list.
  struct Block {
    std::size_t member = 0;
    Range rows;
    std::size_t first_piece = 0;  // of a lane
  };

  void cut_rounds();
  void fetch_round(Context& ctx, std::span<const Block> round);
  void note_written();
  [[nodiscard]] bool is_listed(const Block& block) const;
  [[nodiscard]] std::span<const std::int32_t> numbers(const Block& block) const;
  [[nodiscard]] const std::int32_t* places(const Block& block, Range rows) const;
  void run_round(Context& ctx, std::span<Block> round, std::int64_t step);
  void describe_lanes(std::span<const Block> round);
  void add_pieces(const Block& block, Range rows, std::vector<comm::Piece>& to) const;
  void average(Context& ctx,
               std::span<const Block> round,
               std::span<const comm::Lane> arrived,
               std::int64_t step);
  void add_parts(const Block& block, Range own, std::span<const comm::Lane> arrived);
  [[nodiscard]] Range owned(const Block& block, std::int64_t group) const;

  comm::Communicator& replicas_;
  std::size_t self_;
  std::vector<Member> members_;
  std::vector<std::size_t> listed_;  // members whose touched rows are averaged
  std::vector<embedding::RowGradients*> listed_gradients_;  // of an update
  std::optional<TouchedRows> touched_;                      // of listed_, where there are any
  AverageSlots slots_;
  std::unique_ptr<CodedAverage> coded_;  // null where rows travel as they are
  std::vector<Block> blocks_;
  std::vector<std::size_t> round_ends_;  // in blocks_
  Buffer received_;                      // rows of the others, where not lent
  std::vector<std::vector<comm::Piece>> send_pieces_, recv_pieces_;  // [M]
  std::vector<comm::Lane> send_, recv_;                              // [M]
  std::vector<kernels::RowPart> parts_;                              // of a round
  std::vector<kernels::RowAverage> averages_;                        // of its blocks
};

}  // namespace weft::sharding
