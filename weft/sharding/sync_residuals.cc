#include "weft/sharding/sync_residuals.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::sharding {

SyncResiduals::SyncResiduals(Device& device,
                             const std::vector<embedding::TableShard*>& shards,
                             std::int64_t group)
    : group_(group) {
  for (const embedding::TableShard* shard : shards) {
    Shard& own = shards_.emplace_back();
    own.rows = shard;
    for (StateItem item : shard->state_items()) {
      // Of one number per row every shard of columns has its own copy.
      item.first_holder = item.cols == shard->table().embedding_dim || shard->cols().begin == 0;
      item.kind = fmt::format("{} {} of group {}", shard->table().name, item.kind, group_);
      item.parameter = kSyncResidualParameter;
      item.dtype = DType::kFloat32;
      places_.push_back({.shard = shards_.size() - 1, .item = item, .first = own.floats});
      own.floats += item.col_end - item.col_begin;
    }
    own.values = Buffer(device, shard->rows().size() * own.floats * 4);
  }
}

void SyncResiduals::clear() {
  for (const Shard& shard : shards_) {
    std::fill_n(shard.values.as<float>(), shard.rows->rows().size() * shard.floats, 0.0F);
  }
}

bool SyncResiduals::any(std::size_t shard, std::int64_t index) const {
  const float* const values = row(shard, index);
  return std::any_of(values, values + floats(shard), [](float value) { return value != 0.0F; });
}

std::vector<StateItem> SyncResiduals::state_items() const {
  std::vector<StateItem> items;
  items.reserve(places_.size());
  for (const Place& place : places_) {
    items.push_back(place.item);
  }
  return items;
}

void SyncResiduals::read_state(std::size_t index,
                               std::int64_t row_begin,
                               std::int64_t rows,
                               void* out) const {
  const Place& place = places_.at(index);
  const RowSet held = place.item.held();
  WEFT_CHECK(rows == 0 || (held.contains(row_begin) && held.index(row_begin) + rows <= held.size()),
             "{} rows from {} of {}", rows, row_begin, place.item.kind);
  const std::int64_t cols = place.item.col_end - place.item.col_begin;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<float*>(out) + i * cols,
                row(place.shard, held.index(row_begin) + i) + place.first,
                static_cast<std::size_t>(cols) * sizeof(float));
  }
}

void SyncResiduals::write_state(std::size_t index,
                                std::int64_t row_begin,
                                std::int64_t rows,
                                std::int64_t col_begin,
                                std::int64_t col_end,
                                const void* in) {
  const Place& place = places_.at(index);
  const RowSet held = place.item.held();
  WEFT_CHECK(rows == 0 || (held.contains(row_begin) && held.index(row_begin) + rows <= held.size()),
             "{} rows from {} of {}", rows, row_begin, place.item.kind);
  WEFT_CHECK(
      place.item.col_begin <= col_begin && col_begin <= col_end && col_end <= place.item.col_end,
      "columns [{}, {}) of {}", col_begin, col_end, place.item.kind);
  const std::int64_t cols = col_end - col_begin;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::memcpy(row(place.shard, held.index(row_begin) + i) + place.first +
                    (col_begin - place.item.col_begin),
                static_cast<const float*>(in) + i * cols,
                static_cast<std::size_t>(cols) * sizeof(float));
  }
}

}  // namespace weft::sharding
