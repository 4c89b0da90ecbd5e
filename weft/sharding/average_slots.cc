#include "weft/sharding/average_slots.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"

namespace weft::sharding {

AverageSlots::AverageSlots(comm::Communicator& replicas,
                           Device& device,
                           std::span<embedding::TableShard* const> shards)
    : replicas_(replicas), device_(device), shards_(shards.begin(), shards.end()) {
  for (embedding::TableShard* const shard : shards_) {
    auto& rows = rows_.emplace_back();
    if (shard->tier() != nullptr) {
      rows = std::make_unique<Rows>(device);
      rows->resident = shard->tier()->make_inserted_batch();
      is_any_ = true;
    }
  }
}

void AverageSlots::agree(Context& ctx) {
  if (!is_any_ || !most_rows_.empty()) {
    return;
  }
  for (const embedding::TableShard* const shard : shards_) {
    const std::int64_t slots =
        shard->tier() != nullptr ? shard->tier()->most_rows() : shard->rows().size();
    most_rows_.push_back(std::max<std::int64_t>(1, slots / 2));
  }
  replicas_.all_reduce(ctx, most_rows_.data(), std::ssize(most_rows_), comm::ReduceOp::kMin);
}

void AverageSlots::begin(Context& ctx, std::size_t shard, std::span<const std::int32_t> rows) {
  Rows& own = *rows_[shard];
  WEFT_CHECK(!own.is_begun && std::ssize(rows) <= most_rows_[shard],
             "table '{}': {} rows of a round, at most {} at once", shards_[shard]->table().name,
             rows.size(), most_rows_[shard]);
  own.is_begun = true;
  own.host.assign(rows.begin(), rows.end());
  const auto length = layout::row_numbers(std::ssize(rows));
  auto* const numbers = own.numbers.resize_for(length);
  device_.copy_to_device(ctx, numbers, own.host.data(), length.bytes());
  const std::array<std::int64_t, 2> ends = {0, std::ssize(rows)};
  auto* const device_ends = own.ends.resize_for(layout::bag_offsets(std::int64_t{1}));
  device_.copy_to_device(ctx, device_ends, ends.data(), sizeof(ends));
  const kernels::Bags bags{.ids = numbers, .offsets = device_ends, .weights = nullptr, .bags = 1};
  own.resident->begin_fetch(ctx, std::span(&bags, 1));
}

void AverageSlots::finish(Context& ctx) {
  for (const auto& own : rows_) {
    if (own != nullptr && own->is_begun) {
      own->resident->finish_fetch(ctx);
    }
  }
  for (const auto& own : rows_) {
    if (own == nullptr || !own->is_begun) {
      continue;
    }
    own->resident->fetch_late(ctx);
    const auto slots =
        own->resident->resolve(ctx, {own->numbers.as<const std::int64_t>(), own->host.size()});
    device_.copy_to_host(ctx, own->host.data(), slots.data(),
                         layout::row_numbers(std::ssize(slots)).bytes());
    own->slots.resize(own->host.size());
    std::transform(own->host.begin(), own->host.end(), own->slots.begin(),
                   [](std::int64_t slot) { return static_cast<std::int32_t>(slot); });
  }
}

void AverageSlots::release() {
  for (const auto& own : rows_) {
    if (own != nullptr && std::exchange(own->is_begun, false)) {
      own->resident->release(storage::Release::kUpdated);
    }
  }
}

}  // namespace weft::sharding
