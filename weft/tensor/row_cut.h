/// Rows as they were at one point between two steps, read while later steps change them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace weft {

/// What the cuts of a rank may hold in copies of rows that a step was about to change, and what
/// these copies have cost. Threads: any.
class CopyRoom {
 public:
  explicit CopyRoom(std::int64_t bytes) : limit_(bytes) {}

  /// Takes room for a copy; waits until there is some. A copy that is larger than all the room
  /// gets it when it is empty. Waits no longer once open() has been called.
  void take(std::int64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ || used_ == 0 || used_ + bytes <= limit_; });
    used_ += bytes;
    peak_ = used_ > peak_ ? used_ : peak_;
  }

  /// Gives room back.
  void give(std::int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    used_ -= bytes;
    changed_.notify_all();
  }

  /// Nobody takes copies away any more: whoever waits for room goes on.
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  /// Counts time that updates have spent on copies and on waiting.
  void add_time(std::chrono::duration<double> time) {
    const std::scoped_lock lock(mutex_);
    seconds_ += time.count();
  }

  /// The sum of add_time(), over shards that are updated one after the other.
  [[nodiscard]] double seconds() const {
    const std::scoped_lock lock(mutex_);
    return seconds_;
  }

  /// The most bytes that were taken at a time.
  [[nodiscard]] std::int64_t peak() const {
    const std::scoped_lock lock(mutex_);
    return peak_;
  }

 private:
  const std::int64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
  double seconds_ = 0.0;
};

/// Rows of a RowState at the moment of RowState::cut(). An update copies those that it is about to
/// change and that nobody has taken yet. Threads: one caller at a time, beside updates.
class RowCut {
 public:
  /// Ends the cut: what has not been taken is forgotten, and updates copy nothing more. Where rows
  /// may be left, after CopyRoom::open().
  virtual ~RowCut() = default;

  /// Some rows: their numbers in the whole matrix and the packed rows, one behind the other.
  struct Rows {
    std::vector<std::int64_t> numbers;
    std::vector<std::byte> packed;
  };

  /// Takes the copies that updates have made. False where there is none. Their room is free with
  /// the next call of this or of take().
  virtual bool take_copies(Rows& rows) = 0;

  /// Takes copies, or up to `most` rows from where they lie. An update of the shard waits
  /// meanwhile. False when all rows have been taken.
  virtual bool take(std::int64_t most, Rows& rows) = 0;
};

}  // namespace weft
