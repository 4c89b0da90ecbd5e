#include "weft/sharding/kept_rows.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/row_moves.h"
#include "weft/layout/tables.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {
namespace {

constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));

std::int64_t most_lost_bytes(std::int64_t rows, std::int64_t floats) {
  return rows * floats * kFloatBytes;
}

}  // namespace

KeptRows::KeptRows(Device& device, const embedding::TableShard& shard, std::int64_t floats)
    : device_(device),
      rows_(shard.rows().size()),
      row_(layout::sync_row(shard.table(), shard.cols().size())),
      floats_(floats),
      table_(shard.table().name),
      weights_(device, rows_ * row_.weight_bytes),
      state_(device, rows_ * row_.state_floats * kFloatBytes),
      lost_(device, most_lost_bytes(rows_, floats)) {
}

void KeptRows::keep(Context& ctx, std::span<const std::int32_t> rows) {
  copies_.clear();
  fresh_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t slot = slot_of(rows[i]);
    std::uint8_t& mark = marks_[at(slot)];
    if ((mark & kValue) == 0 || left_out_ == KeptLeftOut::kFirstValue) {
      mark |= kValue;
      fresh_.push_back(static_cast<std::int32_t>(i));
    }
    copies_.push_back(slot);
  }
  grow(ctx);
}

void KeptRows::settle(std::span<const std::int32_t> rows, std::span<const std::uint8_t> lost) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int32_t slot = index_.find(rows[i]);
    WEFT_CHECK(slot != RowIndex::kNowhere, "table '{}': row {} was not kept", table_, rows[i]);
    marks_[at(slot)] &= static_cast<std::uint8_t>(~kValue);
    set_lost(rows[i], slot, lost[i] != 0 && left_out_ != KeptLeftOut::kLost);
  }
}

/// The slot of a row, which gets one if it has none.
std::int32_t KeptRows::slot_of(std::int32_t row) {
  std::int32_t slot = index_.find(row);
  if (slot != RowIndex::kNowhere) {
    return slot;
  }
  if (free_.empty()) {
    slot = static_cast<std::int32_t>(marks_.size());
    marks_.push_back(0);
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  index_.insert(row, slot);
  return slot;
}

/// Says whether anything is lost of a row; one of which nothing is kept any more gives up its slot,
/// whose lost numbers are all 0.
void KeptRows::set_lost(std::int32_t row, std::int32_t slot, bool is_lost) {
  std::uint8_t& mark = marks_[at(slot)];
  if (changed_ && (is_lost || (mark & kLost) != 0)) {
    const std::int64_t number = row;
    changed_->set(std::span(&number, 1));
  }
  mark = static_cast<std::uint8_t>(is_lost ? mark | kLost : mark & ~kLost);
  if (mark == 0) {
    index_.erase(row);
    free_.push_back(slot);
  }
}

/// Memory for all slots.
void KeptRows::grow(Context& ctx) {
  const auto lengths = layout::sync_copy_lengths(std::ssize(marks_), row_, floats_);
  try {
    weights_.grow(lengths.weights.bytes());
    state_.grow(lengths.state.bytes());
    const std::int64_t had = lost_.capacity();
    lost_.grow(lengths.lost.bytes());
    if (lost_.capacity() > had) {
      device_.fill_zero(ctx, lost_.as<std::byte>() + had, lost_.capacity() - had);
    }
  } catch (const Error& error) {
    fail(error.code(), "table '{}' needs memory for {} rows that codecs.sync keeps: {}", table_,
         index_.size(), error.what());
  }
}

/// Lost numbers as rows.
kernels::RowTable KeptRows::lost_table() const {
  return {.weights = lost_.as<void>(),
          .weight_stride = floats_ * kFloatBytes,
          .cols = floats_,
          .dim = floats_};
}

void KeptRows::list_lost(std::vector<std::int32_t>& out) const {
  const auto before = std::ssize(out);
  index_.for_each([&](std::int32_t row, std::int32_t slot) {
    if ((marks_[at(slot)] & kLost) != 0) {
      out.push_back(row);
    }
  });
  std::sort(out.begin() + before, out.end());
}

void KeptRows::read_lost(std::span<const std::int64_t> rows, float* out) const {
  std::fill_n(out, at(std::ssize(rows) * floats_), 0.0F);
  std::vector<std::int64_t> slots;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size() && index_.size() > 0; ++i) {
    const std::int32_t slot = index_.find(static_cast<std::int32_t>(rows[i]));
    if (slot != RowIndex::kNowhere && (marks_[at(slot)] & kLost) != 0) {
      slots.push_back(slot);
      places.push_back(i);
    }
  }
  if (slots.empty()) {
    return;
  }
  Context ctx{.device = &device_};
  Buffer list(device_);
  const auto length = layout::row_numbers(std::ssize(slots));
  auto* const device_slots = list.resize_for(length);
  device_.copy_to_device(ctx, device_slots, slots.data(), length.bytes());
  std::vector<float> packed(slots.size() * at(floats_));
  const kernels::RowMove move{.table = lost_table(),
                              .count = length.count,
                              .slots = device_slots,
                              .packed = reinterpret_cast<std::byte*>(packed.data())};
  kernels::pack_rows(ctx, std::span(&move, 1));
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::copy_n(packed.data() + i * at(floats_), floats_, out + places[i] * at(floats_));
  }
}

void KeptRows::write_lost(std::span<const std::int64_t> rows, const float* in) {
  const auto is_lost = [&](std::size_t i) {
    const std::span numbers(in + i * at(floats_), at(floats_));
    return std::any_of(numbers.begin(), numbers.end(), [](float lost) { return lost != 0.0F; });
  };
  std::vector<std::int64_t> slots;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::int32_t>(rows[i]);
    if (is_lost(i) || index_.find(row) != RowIndex::kNowhere) {
      slots.push_back(slot_of(row));
      places.push_back(i);
    }
  }
  if (slots.empty()) {
    return;
  }
  Context ctx{.device = &device_};
  grow(ctx);
  Buffer list(device_);
  const auto length = layout::row_numbers(std::ssize(slots));
  auto* const device_slots = list.resize_for(length);
  device_.copy_to_device(ctx, device_slots, slots.data(), length.bytes());
  std::vector<float> packed;
  for (const std::size_t i : places) {
    packed.insert(packed.end(), in + i * at(floats_), in + (i + 1) * at(floats_));
  }
  const kernels::RowMove move{.table = lost_table(),
                              .count = length.count,
                              .slots = device_slots,
                              .packed = reinterpret_cast<std::byte*>(packed.data())};
  kernels::unpack_rows(ctx, std::span(&move, 1));
  for (std::size_t i = 0; i < places.size(); ++i) {
    set_lost(static_cast<std::int32_t>(rows[places[i]]), static_cast<std::int32_t>(slots[i]),
             is_lost(places[i]));
  }
}

std::int64_t KeptRows::bytes() const {
  return weights_.capacity() + state_.capacity() + lost_.capacity() +
         layout::kept_place_bytes({.rows = rows_, .slots = std::ssize(marks_)});
}

}  // namespace weft::sharding
