/// Private to storage/: the rows that a batch holds of a RowCache, and the gate that slots change
/// hands in.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "weft/kernels/distinct_rows.h"
#include "weft/storage/row_cache.h"

namespace weft::storage {

/// Runs body(context) as a stage of an inline stream, on the calling thread: a device's memory is
/// reached from nowhere else. Throws what the body throws, and the stream goes on.
template <typename Body>
void run_as_stage(Stream& stream, const Body& body) {
  std::exception_ptr error;
  const auto run = [&](Context& ctx) {
    try {
      body(ctx);
    } catch (...) {
      error = std::current_exception();
    }
  };
  const Stage stage = [&run](Context& ctx) { run(ctx); };  // one pointer: nothing is allocated
  stream.enqueue(stage);
  stream.synchronize();
  if (error) {
    std::rethrow_exception(error);
  }
}

/// A stream for run_as_stage().
inline std::unique_ptr<Stream> make_inline_stream(Device& device) {
  return device.make_stream({.name = "rows", .is_inline = true});
}

/// Within it one caller changes which row has which slot.
class RowCache::Exclusive {
 public:
  explicit Exclusive(RowCache& cache) : cache_(cache) {
    Lock lock(cache_.mutex_);
    cache_.changed_.wait(lock, [this] { return !cache_.is_placing_ && cache_.walks_ == 0; });
    cache_.check_failure();
    cache_.is_placing_ = true;
  }

  ~Exclusive() {
    const Lock lock(cache_.mutex_);
    cache_.is_placing_ = false;
    cache_.changed_.notify_all();
  }

  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

 private:
  RowCache& cache_;
};

/// As long as one lives, rows stay in their slots. Several may live at once, also one in another.
class RowCache::Shared {
 public:
  explicit Shared(const RowCache& cache) : cache_(cache) {
    Lock lock(cache_.mutex_);
    cache_.changed_.wait(lock, [this] { return !cache_.is_placing_; });
    cache_.check_failure();
    ++cache_.walks_;
  }

  ~Shared() {
    const Lock lock(cache_.mutex_);
    --cache_.walks_;
    cache_.changed_.notify_all();
  }

  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

 private:
  const RowCache& cache_;
};

class RowCache::Batch final : public ResidentRows {
 public:
  Batch(RowCache& cache, Order order);
  ~Batch() override;

  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void begin_fetch(Context& ctx, std::span<const kernels::Bags> rows) override;
  void finish_fetch(Context& ctx) override;

  [[nodiscard]] std::int64_t rows_being_read() const override { return load_.rows - load_.done; }

  void begin_fetch_late(Context& ctx) override;
  void fetch_late(Context& ctx) override;
  [[nodiscard]] kernels::Bags resolve(std::size_t list, const kernels::Bags& bags) const override;
  [[nodiscard]] std::span<const std::int64_t> resolve(Context& ctx,
                                                      std::span<const std::int64_t> rows) override;
  void release(Release how) override;

  /// Rows that have no slot yet. The cache's lock guards it.
  [[nodiscard]] std::int64_t lacking() const { return lacking_; }

  /// Likewise.
  [[nodiscard]] bool is_being_fetched() const { return phase_ == Phase::kFetching; }

  [[nodiscard]] bool may_lose_pins() const { return phase_ == Phase::kFetched; }

  /// With the cache's lock: all its rows lack a slot until fetch_late(). REQUIRES: may_lose_pins().
  void lose_pins(Context& ctx);

 private:
  /// Rows that have got a slot and are on their way to it.
  struct Load {
    std::int64_t rows = 0;
    std::int64_t begun = 0;  ///< reads of so many rows
    std::int64_t done = 0;   ///< and so many are in their slots
    bool is_open = false;    ///< the slots' flags say so
    std::uint64_t ticket = 0;
    std::uint64_t waits_before = 0;  ///< rows of the batch are in loads with lower tickets
  };

  /// What take() finds at first, and again.
  enum class Pass : std::uint8_t { kFirst, kLate };

  /// From begin_fetch() to finish_fetch(), to fetch_late(), to release().
  enum class Phase : std::uint8_t { kNone, kFetching, kFetched, kLost, kInUse };

  void take(Context& ctx, Pass pass);
  std::int64_t place(Context& ctx, Pass pass, std::int64_t room);
  void begin_reads(Context& ctx);
  void begin_chunk();
  void finish_load(Context& ctx);
  void put_chunk(Context& ctx);
  void make_absent(Context& ctx, std::span<const std::uint8_t> found);
  void translate(Context& ctx);
  void enter_use();
  void unpin(Context& ctx, Release how);
  void give_up_pins(Context& ctx, Release how);

  RowCache& cache_;
  Order order_;
  std::unique_ptr<Stream> stream_;  // for release(), which has no context
  std::unique_ptr<RowReads> reads_;
  std::mutex late_;  // held by the micro-batch that is in begin_fetch_late() or fetch_late()
  kernels::DistinctBuffers buffers_;
  kernels::DistinctRows distinct_;
  std::vector<const std::int64_t*> list_ids_;  // of the lists of begin_fetch()
  Buffer slots_, ids_, selected_;
  Buffer placed_rows_, placed_slots_, leaving_rows_, leaving_slots_;
  Buffer absent_;                        // rows, then slots
  HostBlock host_placed_, host_absent_;  // the same on the host
  HostBlock packed_, found_;             // rows that are being read
  kernels::CacheTime time_;
  std::int64_t lacking_ = 0;
  std::int64_t lost_ = 0;       // rows that had a slot, in phase kLost
  Phase phase_ = Phase::kNone;  // the cache's lock guards it
  Load load_;
  bool is_held_ = false;
  bool has_pins_ = false;
  bool is_translated_ = false;
  bool is_late_ = false;  // taken late, and not waited for; late_ guards it
};

}  // namespace weft::storage
