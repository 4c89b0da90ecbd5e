#include "weft/checkpoint/listed_rows.h"

#include <algorithm>

#include "weft/base/thread_pool.h"
#include "weft/checkpoint/element_hash.h"

namespace weft::checkpoint {

ListedRows::ListedRows(Context& ctx,
                       const RowState& rows,
                       ListOf list,
                       const std::vector<StateItem>& items,
                       const std::vector<std::size_t>& slots)
    : ctx_(ctx),
      rows_(rows),
      list_(list),
      row_bytes_(rows.row_shape().packed.bytes()),
      task_rows_(std::max<std::int64_t>(1, kHashTaskBytes / row_bytes_)) {
  const RowState::Shape shape = rows.row_shape();
  places_ = packed_items(shape, items);
  const auto first = static_cast<std::size_t>(shape.first_item);
  items_ = std::span(items).subspan(first, places_.size());
  slots_.assign(slots.begin() + shape.first_item,
                slots.begin() + shape.first_item + std::ssize(places_));
}

void ListedRows::add_to(std::span<std::uint64_t> sums,
                        std::span<Scratch> scratch,
                        WorkProgress& progress) const {
  const auto most = static_cast<std::size_t>(task_rows_ * std::ssize(scratch) * 4);
  std::vector<std::int64_t> waiting;
  const auto visit = [&](std::span<const std::int64_t> some) {
    waiting.insert(waiting.end(), some.begin(), some.end());
    if (waiting.size() >= most) {
      hash(waiting, sums, scratch, progress);
      waiting.clear();
    }
  };
  if (list_ == ListOf::kExisting) {
    rows_.for_each_row(StateRows::kExisting, visit);
  } else {
    rows_.for_each_written_row(visit);
  }
  hash(waiting, sums, scratch, progress);
}

void ListedRows::hash(std::span<const std::int64_t> rows,
                      std::span<std::uint64_t> sums,
                      std::span<Scratch> scratch,
                      WorkProgress& progress) const {
  const std::int64_t end = std::ssize(rows);
  const std::int64_t tasks = (end + task_rows_ - 1) / task_rows_;
  std::vector<std::atomic<std::uint64_t>> added(sums.size());
  std::atomic<std::int64_t> next = 0;
  parallel_for(ctx_.pool, std::min(std::ssize(scratch), tasks), [&](std::int64_t thread) {
    for (std::int64_t i = next.fetch_add(task_rows_); i < end; i = next.fetch_add(task_rows_)) {
      const auto some = rows.subspan(static_cast<std::size_t>(i),
                                     static_cast<std::size_t>(std::min(task_rows_, end - i)));
      hash_some(some, scratch[static_cast<std::size_t>(thread)], added);
      progress.add(std::ssize(some) * row_bytes_);
    }
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] += added[i];
  }
}

void ListedRows::hash_some(std::span<const std::int64_t> rows,
                           Scratch& scratch,
                           std::vector<std::atomic<std::uint64_t>>& sums) const {
  const auto bytes = rows.size() * static_cast<std::size_t>(row_bytes_);
  scratch.packed.resize(std::max(scratch.packed.size(), bytes));
  scratch.initial.resize(scratch.packed.size());
  rows_.read_rows(rows, scratch.packed.data());
  rows_.initial_rows(rows, scratch.initial.data());
  const std::int64_t count = std::ssize(rows);
  const auto row_at = [rows](std::int64_t r) { return rows[static_cast<std::size_t>(r)]; };
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (slots_[i] != kNoSum) {
      const RowsInPlace values = place_of(i, count, scratch.packed, scratch.values);
      const RowsInPlace initial = place_of(i, count, scratch.initial, scratch.start);
      sums[slots_[i]] += hash_rows(HashedRows{items_[i], count, row_at}, values, initial);
    }
  }
}

/// Item i of packed rows: where it lies among them, or in `copy`, whole again, if it is in halves.
RowsInPlace ListedRows::place_of(std::size_t i,
                                 std::int64_t rows,
                                 const std::vector<std::byte>& packed,
                                 std::vector<std::byte>& copy) const {
  if (!places_[i].in_halves) {
    return {packed.data() + places_[i].offset, row_bytes_};
  }
  const std::int64_t bytes = item_row_bytes(items_[i]);
  copy.resize(std::max(copy.size(), static_cast<std::size_t>(rows * bytes)));
  copy_item(places_[i], packed.data(), row_bytes_, rows, copy.data());
  return {copy.data(), bytes};
}

void add_listed(Context& ctx,
                std::span<const ListedRows> listed,
                std::span<std::uint64_t> sums,
                WorkProgress& progress) {
  std::vector<ListedRows::Scratch> scratch(
      static_cast<std::size_t>(ctx.pool == nullptr ? 1 : ctx.pool->threads()));
  for (const ListedRows& rows : listed) {
    rows.add_to(sums, scratch, progress);
  }
}

}  // namespace weft::checkpoint
