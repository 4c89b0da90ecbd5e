/// Private to checkpoint/: pieces of a checkpoint that several threads read, and one hands over.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "weft/base/at.h"
#include "weft/base/work_progress.h"
#include "weft/checkpoint/manifest.h"
#include "weft/io/file_system.h"

namespace weft::checkpoint {

/// A rule that a ReadAhead leaves out, as a control of tests.
enum class ReadRule : std::uint8_t {
  kNone,
  kOrder,  ///< the piece that was given last comes before all others that are there
};

/// How many threads a rank reads with, the calling one among them.
struct ReadThreads {
  int most = 1;                       ///< threads at most,
  std::int64_t bytes_per_thread = 1;  ///< one for each so many bytes
  ReadRule left_out = ReadRule::kNone;

  /// The threads that so many bytes are worth: one at least.
  [[nodiscard]] std::int64_t worth(std::int64_t bytes) const {
    return std::clamp<std::int64_t>(bytes / bytes_per_thread, 1, std::max(most, 1));
  }
};

/// What a load reads from.
struct LoadSource {
  io::FileSystem& files;
  const Manifest& manifest;
  std::string directory;  ///< of the checkpoint
  ReadThreads threads = {};
};

/// Reads pieces ahead. The calling thread describes one piece after the other and gives them; any
/// thread calls read() of a piece, and the calling thread its hand_over(), in the order in which
/// pieces were given. So what a sink is told does not depend on the number of threads. The calling
/// thread reads too, while the piece that it needs next is not there.
///
/// A Piece has:
///   const std::string& path() const   the file that it is read from, for the progress
///   void read()                       from any thread
///   void hand_over()                  from the calling thread
///
/// Threads   they begin as the bytes that were given grow, and end with this. Where the system
///           refuses a thread, those that there are go on.
/// Memory    the pieces: one more than there are threads, or one without others. They are used
///           again, so what a piece has allocated stays.
/// Errors    what read() throws is thrown where the piece would have been handed over, so the error
///           is the first in the order of pieces, whichever thread met it. Nothing is handed over
///           behind it.
template <typename Piece>
class ReadAhead {
 public:
  /// `progress` outlives it.
  ReadAhead(const ReadThreads& threads, WorkProgress& progress)
      : limits_(threads), progress_(progress), slots_(at(std::max(threads.most, 1) + 1)) {}

  /// Drops what has not been handed over.
  ~ReadAhead() {
    {
      const std::scoped_lock lock(mutex_);
      is_ending_ = true;
    }
    given_more_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The piece to be described next, as its last use has left it. Where all are in use the oldest
  /// is handed over.
  Piece& next() {
    while (given_ - handed_over_ >= places()) {
      hand_over_oldest();
    }
    return slot(given_).piece;
  }

  /// Gives the piece that next() returned, of so many bytes.
  void give(std::int64_t bytes) {
    bytes_ += bytes;
    {
      const std::scoped_lock lock(mutex_);
      slot(given_).is_read = false;
      ++given_;
    }
    given_more_.notify_one();
    begin_threads();
  }

  /// Hands over all that was given. Does nothing after an error of another call.
  void finish() {
    while (!has_failed_ && handed_over_ < given_) {
      hand_over_oldest();
    }
  }

 private:
  struct Slot {
    Piece piece;
    bool is_read = false;
    std::exception_ptr error = nullptr;
  };

  [[nodiscard]] Slot& slot(std::int64_t number) { return slots_[at(number % std::ssize(slots_))]; }

  [[nodiscard]] std::int64_t places() const {
    return threads_.empty() ? 1 : std::ssize(threads_) + 2;
  }

  void begin_threads() {
    while (!is_refused_ && std::ssize(threads_) + 1 < limits_.worth(bytes_)) {
      try {
        threads_.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        is_refused_ = true;
      }
    }
  }

  void hand_over_oldest() {
    has_failed_ = true;  // until it has gone well
    Slot& oldest = slot(handed_over_);
    if (limits_.left_out == ReadRule::kOrder) {
      put_last_first();
    }
    progress_.go_to(fmt::format("'{}'", oldest.piece.path()));
    std::unique_lock lock(mutex_);
    while (!oldest.is_read) {
      if (begun_ < given_) {
        read_next(lock);
      } else {
        has_read_.wait(lock);
      }
    }
    lock.unlock();
    if (oldest.error) {
      std::rethrow_exception(oldest.error);
    }
    oldest.piece.hand_over();
    ++handed_over_;
    has_failed_ = false;
  }

  void put_last_first() {
    std::unique_lock lock(mutex_);
    while (begun_ < given_) {
      read_next(lock);
    }
    for (std::int64_t i = handed_over_; i < given_; ++i) {
      has_read_.wait(lock, [&] { return slot(i).is_read; });
    }
    std::swap(slot(handed_over_), slot(given_ - 1));
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      given_more_.wait(lock, [this] { return is_ending_ || begun_ < given_; });
      if (is_ending_) {
        return;
      }
      read_next(lock);
    }
  }

  /// With the lock, which is given up meanwhile.
  void read_next(std::unique_lock<std::mutex>& lock) {
    Slot& next = slot(begun_++);
    lock.unlock();
    std::exception_ptr error;
    try {
      next.piece.read();
    } catch (...) {
      error = std::current_exception();
    }
    progress_.move();
    lock.lock();
    next.error = error;
    next.is_read = true;
    has_read_.notify_one();
  }

  const ReadThreads limits_;
  WorkProgress& progress_;
  std::vector<Slot> slots_;
  std::int64_t bytes_ = 0;        ///< given
  std::int64_t handed_over_ = 0;  ///< pieces; of the calling thread
  bool has_failed_ = false;
  bool is_refused_ = false;  ///< another thread
  std::vector<std::thread> threads_;
  std::mutex mutex_;  ///< of all below, and of Slot::is_read and error
  std::condition_variable given_more_;
  std::condition_variable has_read_;
  std::int64_t given_ = 0;  ///< pieces; changed by the calling thread alone
  std::int64_t begun_ = 0;  ///< pieces that some thread reads or has read
  bool is_ending_ = false;
};

}  // namespace weft::checkpoint
