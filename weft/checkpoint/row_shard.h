/// Private to checkpoint/: the rows of this rank's sources that go to segments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/checkpoint/stored_rows.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// A source's rows, and what a manifest says of them.
struct RowShard {
  std::size_t source = 0;  ///< index into the sources
  const RowState* state = nullptr;
  RowState::Shape shape;
  StoredTable table;  ///< with one stream
  std::uint64_t key = 0;
  RowSeal* seal = nullptr;  ///< of the files that are linked for a part of its rows; null: of none

  // The rows that are written: those of the cut, else of the list, else what the state visits.
  RowCut* cut = nullptr;
  const std::vector<std::int64_t>* list = nullptr;

  [[nodiscard]] std::int64_t row_bytes() const { return shape.packed.bytes(); }
};

/// What a manifest says of rows of this shape that are `items` of their source: with one stream.
/// Throws Error(kInternal) where shape and items do not fit together.
StoredTable describe_rows(const RowState::Shape& shape, std::span<const StateItem> items);

/// The rows of a source, where it has any that segments can hold. Others (no rows, no columns, rows
/// longer than rowfile::kMaxRowBytes) are stored as blocks. Equal for all shards of a table.
std::optional<RowShard> row_shard_of(const StateSource& source, std::size_t index);

/// Of all sources, in their order.
std::vector<RowShard> row_shards(std::span<const StateSource* const> sources);

/// The rows that it visits. Cost: a visit.
std::vector<std::int64_t> list_rows(const RowState& state, StateRows which);

/// How many they are.
std::int64_t count_rows(const RowState& state, StateRows which);

}  // namespace weft::checkpoint
