/// Lengths of what a step keeps of the gradients of a table's rows: coalesced entries, partial sums
/// that travel, and statistics of rows whose columns are cut.
///
/// Notation: n entries, S segments (row, part), s partial sums (row, whole subtree of parts), U
/// unique rows, C columns.
#pragma once

#include <cstdint>
#include <tuple>

#include "weft/layout/lengths.h"

namespace weft::layout {

/// Vectors of fp32 that lie behind each other: gradients of U rows, sums, rows of a matrix.
template <typename N>
Array<float, N> vectors(const N& count, std::int64_t columns) {
  return {count * columns};
}

/// Coalesced entries of a table (kernels::RunBuffers).
template <typename N>
struct RunLengths {
  Array<std::int64_t, N> rows;
  Array<std::int32_t, N> row_segments;
  Array<std::int32_t, N> segment_entries;
  Array<std::int32_t, N> segment_parts;
  Array<const float*, N> gradients;  ///< where each entry's is
  Array<float, N> weights;           ///< none where all are 1

  [[nodiscard]] auto all() const {
    return std::tuple(rows, row_segments, segment_entries, segment_parts, gradients, weights);
  }
};

/// Of n entries, and as many `weights` or none.
template <typename N>
RunLengths<N> run_lengths(const N& entries, const N& weights) {
  return {.rows = {entries},
          .row_segments = {entries + 1},
          .segment_entries = {entries + 1},
          .segment_parts = {entries},
          .gradients = {entries},
          .weights = {weights}};
}

/// Where the partial sums of coalesced entries begin (embedding::PartialSums).
template <typename N>
struct PartialCutLengths {
  Array<std::int64_t, N> rows;
  Array<std::int32_t, N> nodes;
  Array<std::int64_t, N> segments;

  [[nodiscard]] auto all() const { return std::tuple(rows, nodes, segments); }
};

/// Of S segments, since every one may be a sum of its own; the sums are vectors().
template <typename N>
PartialCutLengths<N> partial_cut_lengths(const N& segments) {
  return {.rows = {segments}, .nodes = {segments}, .segments = {segments + 1}};
}

/// Partial sums as they travel, the pieces in this order.
template <typename N>
struct PartialRowLengths {
  Array<std::int64_t, N> rows;
  Array<float, N> vectors;
  Array<std::int32_t, N> nodes;

  [[nodiscard]] auto all() const { return std::tuple(rows, vectors, nodes); }
};

/// Of s sums.
template <typename N>
PartialRowLengths<N> partial_row_lengths(const N& sums, std::int64_t columns) {
  return {.rows = {sums}, .vectors = layout::vectors(sums, columns), .nodes = {sums}};
}

/// The room that a piece takes where it is received, so that the next one is aligned.
constexpr std::int64_t piece_room(std::int64_t bytes) {
  return round_up(bytes, 8);
}

/// Offsets of bags that have one partial sum each.
template <typename N>
Array<std::int64_t, N> bag_offsets(const N& bags) {
  return {bags + 1};
}

/// Statistics of U rows of which a rank holds some columns (sharding::ColumnSync).
template <typename N>
struct StatisticLengths {
  Array<float, N> own_blocks;
  Array<float, N> gathered;  ///< one value per row
  Array<float, N> received;  ///< blocks of the other shards, where they are not lent

  [[nodiscard]] auto all() const { return std::tuple(own_blocks, gathered, received); }
};

/// `blocks` (column_blocks(), weft/layout/tables.h) of the own shard, `others` of those whose
/// blocks are received.
template <typename N>
StatisticLengths<N> statistic_lengths(const N& rows, std::int64_t blocks, std::int64_t others) {
  return {.own_blocks = {rows * blocks}, .gathered = {rows}, .received = {rows * others}};
}

}  // namespace weft::layout
