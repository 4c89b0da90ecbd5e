#include "weft/embedding/row_cut.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "weft/base/at.h"
#include "weft/embedding/shard_rows.h"

namespace weft::embedding {
namespace {

using Clock = std::chrono::steady_clock;

/// Rows that an update copies at a time.
constexpr std::int64_t kRowsCopiedAtOnce = 1024;

}  // namespace

ShardCut::ShardCut(ShardRows& owner, RowMarks rows, std::int64_t row_bytes, CopyRoom& room)
    : owner_(owner), row_bytes_(row_bytes), room_(room), left_(std::move(rows)) {
}

ShardCut::~ShardCut() {
  owner_.end_cut();
  room_.give(std::ssize(copies_.packed) + taken_bytes_);
}

bool ShardCut::take_copies(Rows& rows) {
  const std::scoped_lock lock(mutex_);
  return move_copies(rows);
}

/// Copies that were taken before are written by now.
bool ShardCut::move_copies(Rows& rows) {
  room_.give(std::exchange(taken_bytes_, 0));
  if (copies_.numbers.empty()) {
    return false;
  }
  rows = std::exchange(copies_, {});
  taken_bytes_ = std::ssize(rows.packed);
  return true;
}

bool ShardCut::take(std::int64_t most, Rows& rows) {
  const std::scoped_lock lock(mutex_);
  if (move_copies(rows)) {
    return true;
  }
  found_.clear();
  next_ = left_.take(next_, most, found_);
  if (found_.empty()) {
    left_.clear();
    is_empty_ = true;
    return false;
  }
  owner_.whole_rows(found_, rows.numbers);
  rows.packed.resize(at(std::ssize(found_) * row_bytes_));
  owner_.read_rows(rows.numbers, rows.packed.data());
  return true;
}

void ShardCut::before_change(std::span<const std::int64_t> rows) {
  if (is_empty_) {
    return;
  }
  const Clock::time_point begin = Clock::now();
  for (std::int64_t first = 0; first < std::ssize(rows); first += kRowsCopiedAtOnce) {
    copy(rows.subspan(at(first), at(std::min(kRowsCopiedAtOnce, std::ssize(rows) - first))));
  }
  room_.add_time(Clock::now() - begin);
}

void ShardCut::copy(std::span<const std::int64_t> rows) {
  const auto in_cut = [this](std::int64_t row) { return left_.contains(row); };
  std::int64_t bytes = 0;
  {
    const std::scoped_lock lock(mutex_);
    bytes = std::count_if(rows.begin(), rows.end(), in_cut) * row_bytes_;
  }
  if (bytes == 0) {
    return;
  }
  room_.take(bytes);  // outside the lock: whoever gives room needs it
  const std::scoped_lock lock(mutex_);
  found_.clear();
  for (const std::int64_t row : rows) {
    if (in_cut(row)) {
      found_.push_back(row);
      left_.reset(row);
    }
  }
  std::vector<std::int64_t> numbers;
  owner_.whole_rows(found_, numbers);
  const std::int64_t copied = std::ssize(numbers) * row_bytes_;
  const std::size_t before = copies_.packed.size();
  copies_.packed.resize(before + at(copied));
  owner_.read_rows(numbers, copies_.packed.data() + before);
  copies_.numbers.insert(copies_.numbers.end(), numbers.begin(), numbers.end());
  room_.give(bytes - copied);
}

}  // namespace weft::embedding
