// A store of versions of rows for tests: some slots that lookups and updates reach, and behind them
// memory whose reads and writes take their time. It keeps the rules of weft/storage/residency.h, or
// breaks one of them. A row's value is its number and the last step that updated it, so that a slot
// can hold what is old, or another row's.
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

#include "weft/storage/residency.h"

namespace weft::pipeline {

/// What a slot holds, and what a lookup reads.
struct Versioned {
  std::int64_t row = -1;     ///< -1: nothing
  std::int64_t version = 0;  ///< the step that wrote it; 0: the initial value

  friend bool operator==(const Versioned&, const Versioned&) = default;
};

/// What a store leaves out, for negative controls.
enum class Broken : std::uint8_t {
  kNothing,
  kPins,         ///< rows of batches in flight are victims too
  kWriteBuffer,  ///< a victim that is asked for again is read from below, landed or not
  kRoom,         ///< slots that a batch lacks are not kept from later ones
  kLateOrder,    ///< what has no slot yet is read at once, and not behind the update
};

/// What becomes of a row for which no slot is left.
enum class NoRoom : std::uint8_t {
  kThrow,
  kGoOn,  ///< without it: where a control has broken the order that guarantees room
};

struct SlowStoreOptions {
  std::int64_t rows = 0;
  std::int64_t slots = 0;
  std::int64_t most_writes = 16;             ///< rows in the write buffer
  std::chrono::microseconds read_delay{0};   ///< the longest of one row in eight
  std::chrono::microseconds write_delay{0};  ///< the longest
  std::uint64_t seed = 1;
  Broken broken = Broken::kNothing;
  NoRoom no_room = NoRoom::kThrow;
};

/// What has happened, so that a test can demand that it has.
struct SlowStoreCounts {
  std::int64_t early = 0;      ///< rows that were pinned by fetch()
  std::int64_t late = 0;       ///< and by fetch_late()
  std::int64_t evicted = 0;    ///< changed rows that left their slots
  std::int64_t buffered = 0;   ///< reads served from the write buffer
  std::int64_t reordered = 0;  ///< writes that landed before one that had left earlier

  SlowStoreCounts& operator+=(const SlowStoreCounts& other);
};

/// What the oracle needs of a store: values by slots, which ResidentRows::resolve() says.
class VersionStore : public storage::Residency {
 public:
  /// What a slot holds; nothing where a row has none. Not synchronised with write(): that is the
  /// schedule's work.
  [[nodiscard]] virtual Versioned read(std::int64_t slot) = 0;
  virtual void write(std::int64_t slot, const Versioned& value) = 0;

  /// The versions of rows below the slots. After drain().
  [[nodiscard]] virtual std::vector<std::int64_t> below() = 0;

  [[nodiscard]] virtual SlowStoreCounts counts() = 0;
};

/// Who asks sees a row's number as its slot.
class SlowStore final : public VersionStore {
 public:
  explicit SlowStore(const SlowStoreOptions& options);
  ~SlowStore() override;

  SlowStore(const SlowStore&) = delete;
  SlowStore& operator=(const SlowStore&) = delete;

  std::unique_ptr<storage::ResidentRows> make_batch() override;
  void drain() override;

  [[nodiscard]] Versioned read(std::int64_t row) override;
  void write(std::int64_t row, const Versioned& value) override;
  [[nodiscard]] std::vector<std::int64_t> below() override;
  [[nodiscard]] SlowStoreCounts counts() override;

 private:
  class Batch;
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  struct Slot {
    std::int64_t row = -1;
    std::int64_t pins = 0;
    bool is_changed = false;
    bool is_loading = false;
  };

  /// The last write of a row that is on its way.
  struct Pending {
    std::int64_t version = 0;
    std::uint64_t number = 0;
    Clock::time_point due;
  };

  struct Write {
    std::int64_t row = 0;
    std::int64_t version = 0;
    std::uint64_t number = 0;
  };

  bool take(Lock& lock, const Batch& batch, std::int64_t row, const std::int64_t* staged);
  void wait_for_loaded(Lock& lock, std::int64_t slot);
  [[nodiscard]] std::int64_t room_for(const Batch& batch) const;
  [[nodiscard]] std::int64_t victim();
  bool evict(Lock& lock, std::int64_t slot);
  bool write_back(Lock& lock, std::int64_t slot);
  [[nodiscard]] std::int64_t read_below(Lock& lock, std::int64_t row);
  [[nodiscard]] std::chrono::microseconds draw(std::chrono::microseconds longest);
  void run_writer();

  SlowStoreOptions options_;
  std::vector<Versioned> values_;  // by slot; read and written by stages without the lock
  std::mutex mutex_;               // of all that follows
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> places_;  // by row: its slot, or -1
  std::vector<std::int64_t> below_;   // by row
  std::vector<Batch*> batches_;       // in flight, in the order of fetch()
  std::map<std::int64_t, Pending> pending_;
  std::multimap<Clock::time_point, Write> writes_;
  std::uint64_t next_write_ = 0;
  std::mt19937_64 random_;
  SlowStoreCounts counts_;
  bool is_ending_ = false;
  std::thread writer_;
};

}  // namespace weft::pipeline
