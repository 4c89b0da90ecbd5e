#include "weft/checkpoint/row_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "weft/base/at.h"

namespace weft::checkpoint {
namespace {

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

RowSelection::RowSelection(const StoredTable& table,
                           const RowStream& stream,
                           const RowTarget& target)
    : target_(&target),
      row_bytes_(packed_bytes(table, stream)),
      whole_(taker_of(table, stream, target)) {
  // An item of each row is in every stream: the weights say which stream it is taken from.
  const auto weights = std::find_if(target.items.begin(), target.items.end(),
                                    [](const RowTarget::Item& item) { return item.stored == 0; });
  meets_ = weights == target.items.end() || !common(weights->cols, stream.cols).empty();
  if (whole_ == nullptr) {
    plan_parts(table, stream);
  }
}

void RowSelection::plan_parts(const StoredTable& table, const RowStream& stream) {
  for (const RowTarget::Item& item : target_->items) {
    const Range stored = item_cols(table, stream, item.stored);
    const Range cols = common(stored, item.cols);
    if (cols.size() <= 0) {
      continue;
    }
    Part part{.index = item.index,
              .cols = cols,
              .first = cols.begin - stored.begin,
              .stored_cols = stored.size(),
              .size = size_of(table.items[item.stored].dtype),
              .in_halves = item.stored == 0 && stream.dtype == DType::kSplitBFloat16};
    for (std::size_t i = 0; i < item.stored; ++i) {
      part.offset += item_cols(table, stream, i).size() *
                     size_of(i == 0 ? stream.dtype : table.items[i].dtype);
    }
    parts_.push_back(part);
  }
}

void RowBatch::begin(const RowSelection& selection, std::size_t most) {
  selection_ = &selection;
  rows_.clear();
  rows_.reserve(most);
  packed_.clear();
  packed_.reserve(most * at(selection.row_bytes_));
  cut_.clear();
}

void RowBatch::add(rowfile::RowId id, const std::byte* packed) {
  rows_.push_back(static_cast<std::int64_t>(id));
  packed_.insert(packed_.end(), packed, packed + selection_->row_bytes_);
}

void RowBatch::prepare() {
  bytes_ = std::ssize(packed_);
  sort();
  for (const RowSelection::Part& part : selection_->parts_) {
    cut(part);
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
    const std::byte* from = packed_.data() + order[i] * at(selection_->row_bytes_);
    packed.insert(packed.end(), from, from + selection_->row_bytes_);
  }
  rows_ = std::move(rows);
  packed_ = std::move(packed);
}

/// A part of all rows, behind those that were cut before.
void RowBatch::cut(const RowSelection::Part& part) {
  const std::int64_t part_bytes = part.cols.size() * part.size;
  const std::size_t begin = cut_.size();
  cut_.resize(begin + rows_.size() * at(part_bytes));
  std::byte* to = cut_.data() + begin;
  const std::byte* from = packed_.data() + part.offset;
  for (std::size_t r = 0; r < rows_.size(); ++r, to += part_bytes, from += selection_->row_bytes_) {
    if (part.in_halves) {
      join_halves(from, {part.first, part.first + part.cols.size()}, part.stored_cols, to);
    } else {
      std::memcpy(to, from + part.first * part.size, at(part_bytes));
    }
  }
}

std::int64_t RowBatch::hand_over() {
  if (rows_.empty()) {
    return 0;
  }
  if (selection_->whole_ != nullptr) {
    selection_->whole_->write_rows(rows_, packed_.data());
    return bytes_;
  }
  const std::byte* next = cut_.data();
  for (const RowSelection::Part& part : selection_->parts_) {
    selection_->target_->sink->write_listed_state(part.index, rows_, part.cols.begin, part.cols.end,
                                                  next);
    next += std::ssize(rows_) * part.cols.size() * part.size;
  }
  return bytes_;
}

}  // namespace weft::checkpoint
