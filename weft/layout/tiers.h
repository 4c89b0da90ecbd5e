/// Sizes of what keeps some rows of a shard in slots: the cache (storage::RowCache), and what a
/// batch holds of it.
///
/// Notation: n ids of a batch, U distinct rows, m of them without a slot, b bytes of a packed row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "weft/layout/lengths.h"
#include "weft/layout/tables.h"
#include "weft/spec/config.h"

namespace weft::layout {

/// How the slots of a cache are cut. A row belongs to one set by its number and lies in one of its
/// ways; a row that finds none lies in one of the slots behind the sets, or in a way of another
/// set. So all slots can be in use at once.
struct CacheShape {
  std::int64_t sets = 1;
  std::int64_t ways = 8;   ///< 8 or 32
  std::int64_t spill = 0;  ///< slots behind the sets

  [[nodiscard]] constexpr std::int64_t slots() const { return sets * ways + spill; }

  friend bool operator==(const CacheShape&, const CacheShape&) = default;
};

/// Returns the shape of a cache of `slots` slots, at least one set, of which a share of
/// `spill_share` or a few more lie behind the sets.
constexpr CacheShape cache_shape(std::int64_t slots, std::int64_t ways, double spill_share) {
  const auto spill = static_cast<std::int64_t>(spill_share * static_cast<double>(slots));
  const std::int64_t sets = std::max<std::int64_t>((slots - spill) / ways, 1);
  return {.sets = sets, .ways = ways, .spill = std::max<std::int64_t>(slots - sets * ways, 0)};
}

/// The share of a cache's slots that lies behind its sets.
inline constexpr double kSpillShare = 1.0 / 16;

/// What says which row lies in which slot.
struct CacheLengths {
  Array<std::int64_t> rows;    ///< of each slot
  Array<std::uint64_t> marks;  ///< of each slot: pins, what a policy counts
  Array<std::int32_t> heads;   ///< of each set: the first of its rows that lies elsewhere
  Array<std::int32_t> nexts;   ///< of each slot: the next of these

  [[nodiscard]] auto all() const { return std::tuple(rows, marks, heads, nexts); }
};

/// Of a cache of this shape.
constexpr CacheLengths cache_lengths(const CacheShape& shape) {
  return {.rows = {shape.slots()},
          .marks = {shape.slots()},
          .heads = {shape.sets},
          .nexts = {shape.slots()}};
}

/// Bytes of a cache of this shape for `cols` columns of the table: rows, their state, and which row
/// lies where.
inline std::int64_t cache_bytes(const spec::Table& table,
                                std::int64_t cols,
                                const CacheShape& shape) {
  return shard_bytes(table, shape.slots(), cols) + total_bytes(cache_lengths(shape));
}

/// Returns the largest shape that takes at most so many bytes; one set where there is none.
inline CacheShape cache_shape_of_bytes(const spec::Table& table,
                                       std::int64_t cols,
                                       std::int64_t bytes,
                                       std::int64_t ways,
                                       double spill_share) {
  std::int64_t fits = ways;
  std::int64_t too_many = std::max(bytes / packed_row(table, cols).bytes(), ways) + 1;
  while (too_many - fits > 1) {
    const std::int64_t slots = fits + (too_many - fits) / 2;
    const bool fit = cache_bytes(table, cols, cache_shape(slots, ways, spill_share)) <= bytes;
    (fit ? fits : too_many) = slots;
  }
  return cache_shape(fits, ways, spill_share);
}

/// Returns the slots of the smallest cache that trains: those of the largest batch, and with
/// batches begun ahead also those of an evaluation's, since it may run in between.
constexpr std::int64_t fewest_cache_slots(std::int64_t batch_rows,
                                          std::int64_t evaluation_rows,
                                          std::int64_t ways) {
  return std::max(batch_rows + evaluation_rows, ways);
}

/// Rows of a shard with memory.tier lazy that have a slot (storage::LazyRows).
struct LazyCounts {
  std::int64_t rows = 0;   ///< of the shard
  std::int64_t slots = 0;  ///< that were ever needed at once
  std::int64_t pages = 0;  ///< of kPlacePageRows rows of which one has a slot
};

/// Bytes of what says which row of such a shard has which slot: 8 for each page there could be, 4
/// for each row of those there are, and 1 a slot.
constexpr std::int64_t lazy_place_bytes(const LazyCounts& counts) {
  return (counts.rows + kPlacePageRows - 1) / kPlacePageRows * std::int64_t{8} +
         counts.pages * kPlacePageRows * std::int64_t{4} + counts.slots;
}

/// Bytes of memory for the slots of such a shard, which grows where it lies.
inline std::int64_t lazy_slot_bytes(const spec::Table& table,
                                    std::int64_t cols,
                                    const LazyCounts& counts) {
  const RowGeometry row = row_geometry(table, counts.rows, cols);
  const auto grown = [&](std::int64_t stride) {
    return reserved_capacity(counts.slots * stride, counts.rows * stride);
  };
  const bool together = row_layout(table.optimizer) == RowLayout::kInterleaved;
  return grown(row.weight_stride) + (together ? 0 : grown(row.rest_stride));
}

/// Where a store on disks says which row lies where: 8 bytes a row in pages, of which some are
/// allocated together; and 4 bytes a page in nodes, which are there where a page of them is.
inline constexpr std::int64_t kIndexPageRows = 32;
inline constexpr std::int64_t kIndexSlabPages = 16;
inline constexpr std::int64_t kIndexNodePages = 4096;

/// Bytes of such an index of `rows` rows with `pages` pages, at least one of each node, or as many
/// as there are nodes.
constexpr std::int64_t place_index_bytes(std::int64_t rows, std::int64_t pages) {
  constexpr std::int64_t kPointer = 8;
  const std::int64_t all_pages = (rows + kIndexPageRows - 1) / kIndexPageRows;
  const std::int64_t nodes = (all_pages + kIndexNodePages - 1) / kIndexNodePages;
  const std::int64_t slabs = (pages + kIndexSlabPages - 1) / kIndexSlabPages;
  return nodes * kPointer +
         slabs * (kIndexSlabPages * kIndexPageRows * std::int64_t{8} + kPointer) +
         std::min(all_pages, std::min(nodes, pages) * kIndexNodePages) * std::int64_t{4};
}

/// Rows that are read from the slower memory at a time, so that memory for them is bounded: 1 MiB,
/// and enough of them to keep a disk busy.
constexpr std::int64_t rows_read_at_once(std::int64_t row_bytes) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  constexpr std::int64_t kFewest = 64;
  return std::max(kBytes / std::max<std::int64_t>(row_bytes, 1), kFewest);
}

/// Distinct rows of n ids (kernels::DistinctBuffers).
template <typename N>
struct DistinctLengths {
  Array<std::int64_t, N> rows;
  Array<std::int32_t, N> places;

  [[nodiscard]] auto all() const { return std::tuple(rows, places); }
};

/// Of n ids.
template <typename N>
DistinctLengths<N> distinct_lengths(const N& ids) {
  return {.rows = {ids}, .places = {ids}};
}

/// Slots that a batch of n ids and U rows holds, besides its distinct rows.
template <typename N>
struct BatchSlotLengths {
  Array<std::int64_t, N> slots;     ///< [U]
  Array<std::int64_t, N> ids;       ///< [n] slots in place of ids
  Array<std::int64_t, N> selected;  ///< [U] slots of some of the rows

  [[nodiscard]] auto all() const { return std::tuple(slots, ids, selected); }
};

/// Of n ids of U rows.
template <typename N>
BatchSlotLengths<N> batch_slot_lengths(const N& ids, const N& rows) {
  return {.slots = {rows}, .ids = {ids}, .selected = {rows}};
}

/// Rows that come to slots and rows that leave them, on the device.
template <typename N>
struct MovedRowLengths {
  Array<std::int64_t, N> placed_rows;
  Array<std::int64_t, N> placed_slots;
  Array<std::int64_t, N> leaving_rows;
  Array<std::int64_t, N> leaving_slots;

  [[nodiscard]] auto all() const {
    return std::tuple(placed_rows, placed_slots, leaving_rows, leaving_slots);
  }
};

/// Of m rows without a slot.
template <typename N>
MovedRowLengths<N> moved_row_lengths(const N& rows) {
  return {.placed_rows = {rows},
          .placed_slots = {rows},
          .leaving_rows = {rows},
          .leaving_slots = {rows}};
}

}  // namespace weft::layout
