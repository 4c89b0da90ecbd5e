/// Private to sharding/: the averages of replica_average.h, with what rows and their optimizer
/// state have changed by since the last sync as codes (weft/kernels/codec.h).
///
/// Each rank keeps, of its shards, the value at the last sync and what encoding has lost. A sync is
///
///   sender   change = value - last + lost; sends its code to the row's owner; lost = change -
///            decoded
///   owner    mean = (sum of the groups' changes, in fp64, in the order of groups) / M + lost; the
///            others' changes are decoded, its own is as it is. Rounded to fp32; sends its code to
///            all; lost = mean - decoded
///   all      value = last = last + decoded, rounded once, and of fp16 and bf16 stochastically as
///            in replica_average.h. All decode the same bytes: replicas are equal bit by bit
///
/// so that the decoded changes of many syncs lack no more than one encoding loses. `lost` is one
/// number per number of a row: of the owner's rows that of the mean, of others that of the change.
/// It becomes 0 where it is below 2^-26 of the value (or 2^-120): less than the value's own
/// rounding; otherwise rows that were touched once would be sent for ever.
///
/// Owners     the group whose number is the row's, counted in the shard, modulo M: fixed, so that
///            what an owner has lost stays with it, and the lists of touched rows are cut evenly.
/// Vectors    a row's columns, and each matrix of its state by itself: groups of a codec cross
///            neither and begin at multiples of their size from column 0. A row's moments of other
///            magnitude do not cost the weights their digits.
/// Stays      a mean that decodes to 0 leaves a number's bits, so rows without change and loss keep
///            theirs, and `touched` has the bits of `dense`. A number that would not be finite, or
///            a sum of squares or second moment that would be negative, stays as it was at the last
///            sync, is counted, and its whole mean is what was lost.
/// Notation   C encoded bytes of the rows to average, M groups.
/// Exchanges  2 for each 64 MiB of C. Bytes sent per rank: 2 (M - 1)/M · C where M divides the rows
///            of every shard.
/// Memory     of all rows and their state a copy as wide as they are, and with `lost` 4 bytes per
///            number more; of shards whose rows are not all in memory the same of those rows alone
///            of which there is anything to keep (kept_rows.h); encoded up to 64 MiB, over `mpi` up
///            to 128 MiB; of touched 4 bytes per touched row (weft/layout/replicas.h).
/// Rounds     rows of a shard that has not all in slots get theirs for a round (average_slots.h).
/// Threads    as the communicator's; four operations (weft/kernels/row_changes.h). Allocates
///            nothing once the longest list of rows has been seen and every thread of the pool has
///            had a task, which makes its scratch memory.
/// Source     error feedback: Seide et al., "1-bit stochastic gradient descent", Interspeech 2014;
///            of differences to a common value: Mishchenko et al., "Distributed learning with
///            compressed gradient differences", arXiv 1901.09269.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/row_changes.h"
#include "weft/kernels/row_copies.h"
#include "weft/sharding/average_slots.h"
#include "weft/sharding/kept_rows.h"
#include "weft/sharding/listed_residuals.h"
#include "weft/sharding/owned_rows.h"
#include "weft/sharding/sync_residuals.h"
#include "weft/sharding/touched_rows.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

/// Counts of changes and means that an encoder clipped or found non-finite (weft/kernels/codec.h,
/// "Limits"), and of values that stayed as they were at a sync, by the owners of their rows.
struct SyncClips {
  kernels::CodecClips codec;
  std::int64_t kept = 0;

  SyncClips& operator+=(const SyncClips& other) {
    codec += other.codec;
    kept += other.kept;
    return *this;
  }

  friend bool operator==(const SyncClips&, const SyncClips&) = default;
};

struct CodedAverageOptions {
  kernels::Codec codec;        ///< not fp32; rounds to nearest
  bool error_feedback = true;  ///< whether `lost` is kept
  std::uint64_t seed = 0;      ///< of the job, for stochastic rounding
  KeptLeftOut left_out = KeptLeftOut::kNothing;
};

/// Which rows of its shards are averaged, and where they are.
struct AveragedRows {
  TouchedRows* touched = nullptr;  ///< lists, united before every run(); null: none
  std::vector<std::size_t> lists;  ///< of each shard its list there, or kAllRows
  AverageSlots* slots = nullptr;   ///< has agreed before every run()
};

class CodedAverage {
 public:
  /// As ReplicaAverage's. Takes the rows as those of the last sync. What `rows` points to outlives
  /// it; shards whose rows are not all in slots have lists.
  CodedAverage(comm::Communicator& replicas,
               Device& device,
               const std::vector<embedding::TableShard*>& shards,
               AveragedRows rows,
               const CodedAverageOptions& options);

  /// Keeps the values of rows that an update is about to change, where nobody has since the last
  /// sync; `gradients` are those of the shards, in their order, and know the slots of their rows.
  void keep_values(Context& ctx, std::span<embedding::RowGradients* const> gradients);

  /// Averages, after the update of `step`. Collective over `replicas`.
  void run(Context& ctx, std::int64_t step);

  /// After rows and residuals have been written, alike on all groups: rows are those of the last
  /// sync. Inside a stage.
  void restored(Context& ctx);

  /// The same after some rows of a shard, numbered in the whole table, have been written; those
  /// that it does not hold are passed over.
  void stored(const embedding::TableShard& shard, std::span<const Range> rows);

  /// Of the shards whose rows are all in memory. Null without error feedback.
  [[nodiscard]] SyncResiduals* residuals() { return residuals_ ? &*residuals_ : nullptr; }

  /// Of all shards; empty without error feedback.
  [[nodiscard]] std::vector<ResidualState*> residual_states();

  /// Bytes of the values of the last sync and of what encoding has lost.
  [[nodiscard]] std::int64_t copies_bytes() const;

  /// Of this rank, since it was made. From any thread.
  [[nodiscard]] SyncClips clips() const;

 private:
  struct Member {
    const embedding::TableShard* shard = nullptr;
    kernels::RowTable table;
    std::vector<kernels::ChangeVector> vectors;
    std::int64_t state_floats = 0;
    std::int64_t row_bytes = 0;  // encoded
    RowDraws draws = {};
    std::size_t list = kAllRows;  // of touched rows
    // At the last sync, of a shard whose rows are all in memory.
    Buffer weights;  // [rows][cols]: halves of fp16 and bf16, else floats
    Buffer state;    // [rows][state_floats]
    // Of others.
    std::unique_ptr<KeptRows> kept;
    std::unique_ptr<ListedResiduals> residuals;  // null without error feedback
    std::vector<std::int32_t> rows, slots;       // of an update
  };

  void add_member(Device& device,
                  const embedding::TableShard& shard,
                  std::size_t list,
                  const CodedAverageOptions& options);
  void take_rows(const Member& member, Range rows);
  void add_fresh(const Member& member, const std::int32_t* rows, const std::int32_t* slots);
  void place_flags();
  void run_round(Context& ctx, std::span<RowBlock> round, std::int64_t step);
  void fetch_round(Context& ctx, std::span<const RowBlock> round);
  void settle_round(std::span<const RowBlock> round);

  [[nodiscard]] bool is_listed(const RowBlock& block) const {
    return members_[block.shard].list != kAllRows;
  }

  [[nodiscard]] std::uint8_t* flags_of(const RowBlock& block);
  void describe_round(std::span<RowBlock> round);
  void describe_changes();
  void describe_means();
  void note_residuals();
  [[nodiscard]] kernels::RowChanges changes(const RowBlock& block,
                                            std::size_t group,
                                            std::byte* lane,
                                            std::int64_t step);
  void encode_changes(Context& ctx, std::span<const RowBlock> round, std::int64_t step);
  void average(Context& ctx,
               std::span<const RowBlock> round,
               std::span<const comm::Lane> arrived,
               std::int64_t step);
  void add_means(Context& ctx,
                 std::span<const RowBlock> round,
                 std::span<const comm::Lane> arrived,
                 std::int64_t step);

  comm::Communicator& replicas_;
  AveragedRows rows_;
  kernels::Codec codec_;
  std::size_t self_;
  std::size_t groups_;
  std::vector<Member> members_;
  std::vector<OwnedRows::Shard> sizes_;  // [members]
  std::optional<SyncResiduals> residuals_;
  OwnedRows owned_;
  std::vector<std::size_t> first_flags_;     // [members] in flags_
  std::vector<std::uint8_t> flags_;          // by place in the lists: whether something is lost
  std::vector<std::int32_t> residual_rows_;  // of one shard
  std::vector<std::int64_t> updated_;        // rows of one shard, then their slots
  std::vector<std::int64_t> offsets_;        // [a round's blocks][M] of codes in their lanes
  std::vector<std::int64_t> lane_bytes_;     // [M] of all rows of a round that a group owns
  std::vector<std::int64_t> lane_begins_;    // [M] of others' rows, in sent_ and received_
  Buffer sent_;                              // codes of changes, by owner
  Buffer means_;                             // codes of the means of the own rows
  Buffer received_;                          // where not lent
  std::vector<comm::Piece> send_pieces_, recv_pieces_;  // [M]
  std::vector<comm::Lane> send_, recv_;                 // [M]
  std::vector<kernels::RowCopy> copies_;
  std::vector<kernels::RowChanges> changes_;
  std::vector<const std::byte*> arrived_;  // [a round's blocks][M] codes of the own rows
  std::vector<kernels::ChangeAverage> averages_;
  kernels::CodecClips clips_;  // added to atomically
  std::int64_t kept_ = 0;      // likewise
};

}  // namespace weft::sharding
