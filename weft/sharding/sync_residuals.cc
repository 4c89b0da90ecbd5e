#include "weft/sharding/sync_residuals.h"

#include <algorithm>
#include <span>

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

void SyncResiduals::clear(Context& ctx) {
  for (const Shard& shard : shards_) {
    ctx.device->fill_zero(ctx, shard.values.as<void>(), shard.values.bytes());
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

/// An item of rows that are held here, to be copied.
kernels::RowCopy SyncResiduals::copy_of(const Place& place,
                                        std::int64_t row_begin,
                                        std::int64_t rows) const {
  const RowSet held = place.item.held();
  WEFT_CHECK(rows == 0 || (held.contains(row_begin) && held.index(row_begin) + rows <= held.size()),
             "{} rows from {} of {}", rows, row_begin, place.item.kind);
  const Shard& shard = shards_[place.shard];
  const std::int64_t begin = rows == 0 ? 0 : held.index(row_begin);
  return {.table = {.weights = shard.values.as<void>(),
                    .weight_stride = shard.floats * static_cast<std::int64_t>(sizeof(float)),
                    .cols = shard.floats,
                    .dim = shard.floats},
          .slots = {begin, begin + rows},
          .first = place.first};
}

void SyncResiduals::read_state(std::size_t index,
                               std::int64_t row_begin,
                               std::int64_t rows,
                               void* out) const {
  const Place& place = places_.at(index);
  kernels::RowCopy copy = copy_of(place, row_begin, rows);
  copy.cols = place.item.col_end - place.item.col_begin;
  copy.matrix = out;
  copy.stride = copy.cols * static_cast<std::int64_t>(sizeof(float));
  Context ctx{.device = shards_[place.shard].values.device()};
  kernels::copy_from_rows(ctx, std::span(&copy, 1));
}

void SyncResiduals::write_state(std::size_t index,
                                std::int64_t row_begin,
                                std::int64_t rows,
                                std::int64_t col_begin,
                                std::int64_t col_end,
                                const void* in) {
  const Place& place = places_.at(index);
  WEFT_CHECK(
      place.item.col_begin <= col_begin && col_begin <= col_end && col_end <= place.item.col_end,
      "columns [{}, {}) of {}", col_begin, col_end, place.item.kind);
  kernels::RowCopy copy = copy_of(place, row_begin, rows);
  copy.first += col_begin - place.item.col_begin;
  copy.cols = col_end - col_begin;
  copy.matrix = const_cast<void*>(in);  // only read
  copy.stride = copy.cols * static_cast<std::int64_t>(sizeof(float));
  Context ctx{.device = shards_[place.shard].values.device()};
  kernels::copy_to_rows(ctx, std::span(&copy, 1));
}

}  // namespace weft::sharding
