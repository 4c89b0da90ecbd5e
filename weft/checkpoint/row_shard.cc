#include "weft/checkpoint/row_shard.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/checkpoint/manifest.h"
#include "weft/rowfile/layout.h"

namespace weft::checkpoint {
namespace {

/// Whether rows of all columns, and so of any, are of a length that a segment can hold.
bool fits_segments(const StoredTable& table, DType dtype) {
  const bool has_any =
      table.rows > 0 && std::all_of(table.items.begin(), table.items.end(), [](const RowItem& one) {
        return 1 <= one.cols && one.cols <= rowfile::kMaxRowBytes;
      });
  return has_any &&
         packed_bytes(table, {{0, table.items.front().cols}, dtype}) <= rowfile::kMaxRowBytes;
}

}  // namespace

StoredTable describe_rows(const RowState::Shape& shape, std::span<const StateItem> items) {
  const auto first = static_cast<std::size_t>(shape.first_item);
  const auto count = static_cast<std::size_t>(shape.items);
  WEFT_CHECK(count > 0 && first + count <= items.size(), "rows of {}: items {} to {} of {}",
             shape.parameter, first, first + count, items.size());
  StoredTable table{.parameter = shape.parameter,
                    .rows = items[first].rows,
                    .initial = shape.initial,
                    .items = {},
                    .streams = {{shape.cols, shape.dtype}}};
  for (const StateItem& item : items.subspan(first, count)) {
    WEFT_CHECK(item.parameter == shape.parameter && item.rows == table.rows, "rows of {} beside {}",
               shape.parameter, item_name(item.parameter, item.kind));
    table.items.push_back({item.kind, item.dtype, item.cols});
  }
  return table;
}

std::optional<RowShard> row_shard_of(const StateSource& source, std::size_t index) {
  const RowState* state = source.row_state();
  if (state == nullptr) {
    return std::nullopt;
  }
  RowShard shard;
  shard.source = index;
  shard.state = state;
  shard.shape = state->row_shape();
  shard.table = describe_rows(shard.shape, source.state_items());
  if (!fits_segments(shard.table, shard.shape.dtype) || shard.shape.cols.empty()) {
    return std::nullopt;
  }
  const RowStream& stream = shard.table.streams.front();
  WEFT_CHECK(packed_bytes(shard.table, stream) == shard.row_bytes(),
             "rows of {} have {} bytes, their items {}", shard.shape.parameter, shard.row_bytes(),
             packed_bytes(shard.table, stream));
  shard.key = stream_key(shard.table, stream);
  return shard;
}

std::vector<RowShard> row_shards(std::span<const StateSource* const> sources) {
  std::vector<RowShard> shards;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (auto shard = row_shard_of(*sources[i], i)) {
      shards.push_back(std::move(*shard));
    }
  }
  return shards;
}

std::vector<std::int64_t> list_rows(const RowState& state, StateRows which) {
  std::vector<std::int64_t> list;
  state.for_each_row(which, [&](std::span<const std::int64_t> rows) {
    list.insert(list.end(), rows.begin(), rows.end());
  });
  return list;
}

std::int64_t count_rows(const RowState& state, StateRows which) {
  std::int64_t count = 0;
  state.for_each_row(which, [&](std::span<const std::int64_t> rows) {
    count += static_cast<std::int64_t>(rows.size());
  });
  return count;
}

}  // namespace weft::checkpoint
