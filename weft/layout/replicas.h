/// Lengths of what a rank holds to keep replicas of its rows equal (sharding::GroupAverage): copies
/// of rows whose changes travel as codes, buffers of a round of a sync, lists of touched rows.
///
/// Notation: M groups, R rows of a shard, U of them touched by this group since the last sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "weft/layout/blocks.h"
#include "weft/layout/lengths.h"
#include "weft/spec/config.h"

namespace weft::layout {

/// Groups send at most so much of their rows at a time, or one row.
inline constexpr std::int64_t kRoundBytes = std::int64_t{64} << 20;

/// A row without gaps, as syncs see it.
struct SyncRow {
  std::int64_t weight_bytes = 0;   ///< of split_bf16 both halves
  std::int64_t state_floats = 0;   ///< optimizer state
  std::int64_t vectors = 0;        ///< weights and matrices of the state with a number per column
  std::int64_t single_floats = 0;  ///< matrices of the state with one number per row

  /// Numbers of a row of `cols` columns.
  [[nodiscard]] std::int64_t floats(std::int64_t cols) const {
    return vectors * cols + single_floats;
  }
};

/// Of `cols` columns of the table, held by one shard.
SyncRow sync_row(const spec::Table& table, std::int64_t cols);

/// What a rank keeps of rows whose changes are encoded.
template <typename N>
struct SyncCopyLengths {
  Array<std::byte, N> weights;  ///< at the last sync, as wide as they are
  Array<float, N> state;        ///< likewise
  Array<float, N> lost;         ///< with error feedback, per number: what encoding has lost

  [[nodiscard]] auto all() const { return std::tuple(weights, state, lost); }
};

/// Of R rows; `lost`: numbers of a row of which losses are kept, SyncRow::floats() or 0.
template <typename N>
SyncCopyLengths<N> sync_copy_lengths(const N& rows, const SyncRow& row, std::int64_t lost) {
  return {.weights = {rows * row.weight_bytes},
          .state = {rows * row.state_floats},
          .lost = {rows * lost}};
}

/// Of the index of rows of which a rank keeps anything (sharding::RowIndex).
inline constexpr std::int64_t kRowIndexCellBytes = 8;

/// Its cells for so many rows: a power of two, of which half are free at least.
constexpr std::int64_t row_index_cells(std::int64_t rows) {
  std::int64_t cells = 64;
  while (cells < 2 * rows) {
    cells *= 2;
  }
  return cells;
}

/// Rows of a shard that are not all in memory, and of which some are kept (sharding::KeptRows).
struct KeptCounts {
  std::int64_t rows = 0;   ///< of the shard
  std::int64_t slots = 0;  ///< that were ever needed at once
};

/// Bytes of what is kept of such a shard, in memory of the device that grows where it lies; `lost`
/// as for sync_copy_lengths().
inline std::int64_t kept_row_bytes(const KeptCounts& counts,
                                   const SyncRow& row,
                                   std::int64_t lost) {
  const auto slots = sync_copy_lengths(counts.slots, row, lost);
  const auto most = sync_copy_lengths(counts.rows, row, lost);
  return reserved_capacity(slots.weights.bytes(), most.weights.bytes()) +
         reserved_capacity(slots.state.bytes(), most.state.bytes()) +
         reserved_capacity(slots.lost.bytes(), most.lost.bytes());
}

/// Bytes of host memory of what finds them: the index, and of each slot a mark and its place in the
/// list of free ones.
constexpr std::int64_t kept_place_bytes(const KeptCounts& counts) {
  return row_index_cells(counts.slots) * kRowIndexCellBytes + counts.slots * std::int64_t{5};
}

/// A round of a sync, as one rank sees it.
template <typename N>
struct SyncRound {
  N own = {};   ///< bytes of code of this rank's rows
  N away = {};  ///< and of those of the other groups
  std::int64_t groups = 1;
  bool lent = true;  ///< others' memory is read where it is
};

/// Buffers of codes in a round.
template <typename N>
struct SyncRoundLengths {
  Array<std::byte, N> sent;      ///< changes, to the owners of rows
  Array<std::byte, N> means;     ///< of the own rows
  Array<std::byte, N> received;  ///< where others' memory is not lent: changes, then means

  [[nodiscard]] auto all() const { return std::tuple(sent, means, received); }
};

/// Of a round.
template <typename N>
SyncRoundLengths<N> sync_round_lengths(const SyncRound<N>& round) {
  return {.sent = {round.away},
          .means = {round.own},
          .received = {round.lent ? N{} : larger(round.away, round.own * (round.groups - 1))}};
}

/// Lists of touched rows, in host memory.
template <typename N>
struct TouchedLengths {
  Array<std::int32_t, N> own;       ///< since the last sync, and as long again to merge it
  Array<std::int64_t, N> of_step;   ///< rows of one update
  Array<std::int32_t, N> received;  ///< of the other groups
  Array<std::int32_t, N> places;    ///< of rows that any group touched, by their owners

  [[nodiscard]] auto all() const { return std::tuple(own, of_step, received, places); }
};

/// `own`: U; `of_step` rows of an update; `any`: rows that are dealt to owners, none where rows
/// travel as they are.
template <typename N>
TouchedLengths<N> touched_lengths(const N& own,
                                  const N& of_step,
                                  const N& any,
                                  std::int64_t groups) {
  return {
      .own = {own * 2}, .of_step = {of_step}, .received = {own * (groups - 1)}, .places = {any}};
}

}  // namespace weft::layout
