// A slower memory for tests of a cache: a MemoryBacking whose reads and writes take their time.
// Rows that are written wait in a bounded buffer and land late, those of different writes in any
// order; however slow the test runs, half of the buffer stays in it until a drain.
// The backing keeps the rules of weft/storage/row_backing.h, or breaks one of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "weft/storage/memory_backing.h"

namespace weft::storage::test {

/// What a backing leaves out, for negative controls.
enum class BrokenBacking : std::uint8_t {
  kNothing,
  kWriteOrder,  ///< reads do not see what has not landed
  kState,       ///< the bytes behind the weights stay behind
  kFails,       ///< every write throws
};

struct LateBackingOptions {
  std::int64_t row_bytes = 0;
  std::int64_t weight_bytes = 0;             ///< for kState
  std::size_t most_writes = 24;              ///< rows in the buffer
  std::chrono::microseconds write_delay{0};  ///< the longest until a row lands
  std::chrono::microseconds read_delay{0};   ///< the longest of one read in eight
  std::uint64_t seed = 1;
  BrokenBacking broken = BrokenBacking::kNothing;
};

class LateBacking final : public RowBacking {
 public:
  explicit LateBacking(const LateBackingOptions& options);
  ~LateBacking() override;

  LateBacking(const LateBacking&) = delete;
  LateBacking& operator=(const LateBacking&) = delete;

  [[nodiscard]] std::int64_t row_bytes() const override { return options_.row_bytes; }

  std::unique_ptr<RowReads> make_reads() override;
  void write(std::span<const std::int64_t> rows, const std::byte* packed) override;
  void drain() override;
  [[nodiscard]] std::int64_t rows_held() const override;
  void for_each_row(const RowsVisitor& visit) const override;

  /// Reads that were served from the buffer.
  [[nodiscard]] std::int64_t buffered() const;

  /// Writes that landed before one that had come earlier.
  [[nodiscard]] std::int64_t reordered() const;

 private:
  class Reads;
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  struct Write {
    std::int64_t row = 0;
    std::uint64_t number = 0;
    std::vector<std::byte> packed;
  };

  bool read(std::int64_t row, std::byte* packed);
  [[nodiscard]] bool may_land() const;
  void put(const Write& write);
  void run();
  std::chrono::microseconds draw(std::chrono::microseconds longest);

  LateBackingOptions options_;
  MemoryBacking landed_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::multimap<Clock::time_point, Write> writes_;              // on their way
  std::map<std::int64_t, std::vector<Clock::time_point>> due_;  // of a row, ascending
  std::mt19937_64 random_;
  std::uint64_t next_write_ = 0;
  std::int64_t buffered_ = 0;
  std::int64_t reordered_ = 0;
  std::int64_t drains_ = 0;  // that wait
  bool is_ending_ = false;
  std::thread lander_;
};

}  // namespace weft::storage::test
