#include "weft/storage/store_segments.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/storage/place_index.h"

namespace weft::storage {
namespace {

/// Sealed segments may take so many more than their factor allows: what one cleaning frees.
constexpr std::int64_t kSlackSegments = 2;

/// A segment whose rows nearly all hold is not worth moving them.
constexpr double kMostLiveShare = 15.0 / 16;

/// More segments than these that are less than half full are put together.
constexpr std::int64_t kMostSmallSegments = 16;

/// One for rows that are written, and one for those that cleaning moves.
constexpr std::int64_t kOpenSegments = 2;

}  // namespace

std::int64_t most_segments(double live_bytes, const SpaceBounds& bounds) {
  const double full =
      std::ceil(bounds.factor * live_bytes / static_cast<double>(bounds.segment_bytes));
  constexpr double kMost = PlaceCode::kMaxSegments;
  return static_cast<std::int64_t>(std::min(full, kMost)) + kSlackSegments + kMostSmallSegments +
         kOpenSegments;
}

OpenFile::OpenFile(io::BlockReads& reads, std::string path, io::OpenMode mode)
    : reads_(reads), path_(std::move(path)), number_(reads_.add(path_, mode)) {
}

OpenFile::~OpenFile() {
  reads_.remove(number_);
}

std::uint32_t StoreSegments::add(StoreSegment segment) {
  auto added = std::make_unique<StoreSegment>(std::move(segment));
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = std::move(added);
    return slot;
  }
  WEFT_CHECK(slots_.size() < PlaceCode::kMaxSegments, "{} segments", slots_.size());
  slots_.push_back(std::move(added));
  return static_cast<std::uint32_t>(slots_.size()) - 1;
}

void StoreSegments::append(std::uint32_t slot, const CountedRow& row, bool holds) {
  StoreSegment& segment = *slots_[slot];
  ++segment.rows;
  segment.row_bytes += row.bytes;
  if (holds) {
    segment.live_bytes += row.bytes;
    ++segment.live_rows;
    ++segment.live_of_shard[row.shard];
  }
}

void StoreSegments::lose(std::uint32_t slot, const CountedRow& row) {
  StoreSegment& segment = *slots_[slot];
  segment.live_bytes -= row.bytes;
  --segment.live_rows;
  --segment.live_of_shard[row.shard];
}

std::optional<StoreSegment> StoreSegments::take_dead() {
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const auto& segment = slots_[slot];
    if (segment != nullptr && segment->is_sealed() && segment->pins == 0 &&
        segment->live_rows == 0) {
      StoreSegment taken = std::move(*segment);
      slots_[slot].reset();
      free_.push_back(slot);
      return taken;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> StoreSegments::victim(const SpaceBounds& bounds) const {
  double bytes = 0;
  double live_bytes = 0;
  std::int64_t small = 0;
  std::optional<std::uint32_t> best;
  std::optional<std::uint32_t> smallest;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const StoreSegment* const segment = slots_[slot].get();
    if (segment == nullptr || !segment->is_sealed() || segment->pins > 0) {
      continue;
    }
    bytes += static_cast<double>(segment->bytes);
    live_bytes += static_cast<double>(segment->bytes) * segment->live_share();
    small += segment->bytes * 2 < bounds.segment_bytes ? 1 : 0;
    if (!best || segment->live_share() < slots_[*best]->live_share()) {
      best = slot;
    }
    if (!smallest || segment->bytes < slots_[*smallest]->bytes) {
      smallest = slot;
    }
  }
  const auto slack = static_cast<double>(kSlackSegments * bounds.segment_bytes);
  if (best && bytes > bounds.factor * live_bytes + slack &&
      slots_[*best]->live_share() < kMostLiveShare) {
    return best;
  }
  return small > kMostSmallSegments ? smallest : std::nullopt;
}

std::vector<std::uint32_t> StoreSegments::in_order() const {
  std::vector<std::uint32_t> order;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] != nullptr) {
      order.push_back(slot);
    }
  }
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
    return slots_[a]->position < slots_[b]->position;
  });
  return order;
}

}  // namespace weft::storage
