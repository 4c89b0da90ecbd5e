/// How far a long piece of work has come: written by those who do it, read by those who wait for
/// it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace weft {

/// The progress of work that may take long: disk, decompression, hashing.
///
/// "reading 'ck/rank-0001.bin', 12.0 GiB of 40.0 GiB": an activity, its place, and how much of how
/// much is done. Every call that is not const counts as a movement, and whoever waits only needs to
/// know that there are any. Any thread may call anything at any time. Nothing blocks for longer
/// than it takes to copy a text; add() and move() are an atomic addition and may be called per
/// megabyte, not per row.
class WorkProgress {
 public:
  /// The unit in which the amounts of a part are counted and printed.
  enum class Unit : std::uint8_t { kBytes, kSamples, kElements };

  /// The values with which a part of the work begins; begin() copies the texts.
  struct Part {
    std::string_view activity;  ///< "reading", "writing": a verb that follows "rank 1 has been"
    std::string_view place;     ///< a file or another noun, quoted by the caller; may be empty
    std::int64_t total = -1;    ///< -1 where it is not known
    Unit unit = Unit::kBytes;
    std::int64_t done = 0;
  };

  /// Begins a part of the work; the amounts are counted anew.
  void begin(const Part& part);

  /// The same part goes on at another place.
  void go_to(std::string_view place);

  /// So much more is done.
  void add(std::int64_t amount);

  /// Something has been done that has no amount.
  void move();

  /// How often anything has moved; a reader that sees another value than before knows that the work
  /// goes on.
  [[nodiscard]] std::uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }

  /// "reading 'FILE'"; "working" before the first begin().
  [[nodiscard]] std::string what() const;

  /// "12.0 MiB of 40.0 GiB", "12 samples"; empty where nothing is counted.
  [[nodiscard]] std::string how_much() const;

  /// Both, with a comma between them.
  [[nodiscard]] std::string text() const;

 private:
  std::atomic<std::uint64_t> moves_ = 0;
  std::atomic<std::int64_t> done_ = 0;
  mutable std::mutex mutex_;  ///< of all below
  std::string activity_;
  std::string place_;
  std::int64_t total_ = -1;
  Unit unit_ = Unit::kBytes;
};

}  // namespace weft
