#include "weft/checkpoint/row_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "weft/base/at.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kHandedOver = std::int64_t{1} << 19;

Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// The sink's rows where they lie as the stream's do.
RowState* taker_of(const StoredTable& table, const RowStream& stream, const RowTarget& target) {
  RowState* rows = target.sink->row_sink();
  if (rows == nullptr) {
    return nullptr;
  }
  const RowState::Shape shape = rows->row_shape();
  bool same = shape.cols == stream.cols && shape.dtype == stream.dtype &&
              shape.packed.bytes() == packed_bytes(table, stream) &&
              target.items.size() == table.items.size();
  for (std::size_t i = 0; same && i < target.items.size(); ++i) {
    same = target.items[i].stored == i &&
           std::cmp_equal(target.items[i].index, shape.first_item + static_cast<std::int64_t>(i));
  }
  return same ? rows : nullptr;
}

/// The fp32 words of a row whose high halves come first, then its low halves.
void join_halves(const std::byte* halves, Range cols, std::int64_t stored_cols, std::byte* out) {
  for (std::int64_t c = cols.begin; c < cols.end; ++c) {
    std::uint16_t high = 0;
    std::uint16_t low = 0;
    std::memcpy(&high, halves + 2 * c, sizeof high);
    std::memcpy(&low, halves + 2 * (stored_cols + c), sizeof low);
    // The low half is signed: what the high one, which is rounded, is too much.
    const auto units = static_cast<std::uint32_t>(static_cast<std::int16_t>(low));
    const std::uint32_t word = (std::uint32_t{high} << 16) + units;
    std::memcpy(out, &word, sizeof word);
    out += sizeof word;
  }
}

}  // namespace

RowBatch::RowBatch(const StoredTable& table, const RowStream& stream, const RowTarget& target)
    : table_(table),
      stream_(stream),
      target_(target),
      row_bytes_(packed_bytes(table, stream)),
      whole_(taker_of(table, stream, target)) {
  // An item of each row is in every stream: the weights say which stream it is taken from.
  const auto weights = std::find_if(target.items.begin(), target.items.end(),
                                    [](const RowTarget::Item& item) { return item.stored == 0; });
  meets_ = weights == target.items.end() || !common(weights->cols, stream.cols).empty();
}

void RowBatch::add(rowfile::RowId id, const std::byte* packed) {
  rows_.push_back(static_cast<std::int64_t>(id));
  packed_.insert(packed_.end(), packed, packed + row_bytes_);
  if (std::cmp_greater_equal(packed_.size(), kHandedOver)) {
    hand_over();
  }
}

/// Ascending rows, of equal ones the last.
void RowBatch::sort() {
  const auto not_ascending = [](std::int64_t a, std::int64_t b) { return a >= b; };
  if (std::adjacent_find(rows_.begin(), rows_.end(), not_ascending) == rows_.end()) {
    return;
  }
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rows_[a] < rows_[b]; });
  std::vector<std::int64_t> rows;
  std::vector<std::byte> packed;
  packed.reserve(packed_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t row = rows_[order[i]];
    if (i + 1 < order.size() && rows_[order[i + 1]] == row) {
      continue;
    }
    rows.push_back(row);
    const std::byte* from = packed_.data() + order[i] * at(row_bytes_);
    packed.insert(packed.end(), from, from + row_bytes_);
  }
  rows_ = std::move(rows);
  packed_ = std::move(packed);
}

std::int64_t RowBatch::flush() {
  hand_over();
  rows_ = {};
  packed_ = {};
  item_ = {};
  return std::exchange(handed_over_, 0);
}

void RowBatch::hand_over() {
  if (rows_.empty()) {
    return;
  }
  handed_over_ += static_cast<std::int64_t>(packed_.size());
  sort();
  if (whole_ != nullptr) {
    whole_->write_rows(rows_, packed_.data());
  } else {
    for (const RowTarget::Item& item : target_.items) {
      write_item(item);
    }
  }
  rows_.clear();
  packed_.clear();
}

/// The columns of an item that are both stored here and held.
void RowBatch::write_item(const RowTarget::Item& item) {
  const Range stored = item_cols(table_, stream_, item.stored);
  const Range cols = common(stored, item.cols);
  if (cols.size() <= 0) {
    return;
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < item.stored; ++i) {
    offset += item_cols(table_, stream_, i).size() *
              size_of(i == 0 ? stream_.dtype : table_.items[i].dtype);
  }
  const std::int64_t size = size_of(table_.items[item.stored].dtype);
  const Range place{cols.begin - stored.begin, cols.end - stored.begin};
  const bool in_halves = item.stored == 0 && stream_.dtype == DType::kSplitBFloat16;
  item_.resize(rows_.size() * at(cols.size() * size));
  std::byte* to = item_.data();
  for (std::size_t r = 0; r < rows_.size(); ++r, to += cols.size() * size) {
    const std::byte* from = packed_.data() + r * at(row_bytes_) + offset;
    if (in_halves) {
      join_halves(from, place, stored.size(), to);
    } else {
      std::memcpy(to, from + place.begin * size, at(place.size() * size));
    }
  }
  target_.sink->write_listed_state(item.index, rows_, cols.begin, cols.end, item_.data());
}

}  // namespace weft::checkpoint
