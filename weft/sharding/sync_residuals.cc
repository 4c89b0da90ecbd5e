#include "weft/sharding/sync_residuals.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/replicas.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kListedFloats = std::int64_t{1} << 20;  // copied at a time

}  // namespace

std::vector<StateItem> residual_items(const embedding::TableShard& shard, std::int64_t group) {
  std::vector<StateItem> items = shard.state_items();
  for (StateItem& item : items) {
    // Of one number per row every shard of columns has its own copy.
    item.first_holder = item.cols == shard.table().embedding_dim || shard.cols().begin == 0;
    item.kind = fmt::format("{} {} of group {}", shard.table().name, item.kind, group);
    item.parameter = kSyncResidualParameter;
    item.dtype = DType::kFloat32;
  }
  return items;
}

SyncResiduals::SyncResiduals(Device& device,
                             const std::vector<embedding::TableShard*>& shards,
                             std::int64_t group) {
  for (const embedding::TableShard* shard : shards) {
    Shard& own = shards_.emplace_back();
    own.rows = shard;
    if (shard->tier() != nullptr) {
      continue;
    }
    for (const StateItem& item : residual_items(*shard, group)) {
      places_.push_back({.shard = shards_.size() - 1, .item = item, .first = own.floats});
      own.floats += item.col_end - item.col_begin;
    }
    const layout::SyncRow row = layout::sync_row(shard->table(), shard->cols().size());
    const auto lengths =
        layout::sync_copy_lengths(shard->rows().size(), row, row.floats(shard->cols().size()));
    own.values = Buffer(device, lengths.lost.bytes());
  }
}

void SyncResiduals::clear(Context& ctx) {
  for (const Shard& shard : shards_) {
    if (shard.floats > 0) {
      ctx.device->fill_zero(ctx, shard.values.as<void>(), shard.values.bytes());
    }
  }
}

void SyncResiduals::list_rows(Context& ctx,
                              std::size_t shard,
                              std::vector<std::int32_t>& out) const {
  const Shard& of = shards_[shard];
  const std::int64_t rows = of.rows->rows().size();
  const std::int64_t at_once = std::max<std::int64_t>(1, kListedFloats / of.floats);
  std::vector<float> values(at(std::min(rows, at_once) * of.floats));
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t count = std::min(at_once, rows - first);
    kernels::RowCopy copy{.table = table_of(of), .slots = {first, first + count}};
    copy.cols = of.floats;
    copy.matrix = values.data();
    copy.stride = copy.table.weight_stride;
    kernels::copy_from_rows(ctx, std::span(&copy, 1));
    for (std::int64_t row = 0; row < count; ++row) {
      const std::span lost = std::span(values).subspan(at(row * of.floats), at(of.floats));
      if (std::any_of(lost.begin(), lost.end(), [](float value) { return value != 0.0F; })) {
        out.push_back(static_cast<std::int32_t>(first + row));
      }
    }
  }
}

/// Its values as rows.
kernels::RowTable SyncResiduals::table_of(const Shard& shard) {
  return {.weights = shard.values.as<void>(),
          .weight_stride = shard.floats * static_cast<std::int64_t>(sizeof(float)),
          .cols = shard.floats,
          .dim = shard.floats};
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
  return {.table = table_of(shard), .slots = {begin, begin + rows}, .first = place.first};
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
