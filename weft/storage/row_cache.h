/// RowCache: some rows of a shard in slots, over a slower memory that holds the others. It is the
/// tier between any two memories: DRAM over files, or a device's memory over the host's
/// (weft/storage/memory_backing.h).
///
/// Slots     those of a RowStore, cut into sets and slots behind them (layout::CacheShape). A row
///           that finds its set full takes one of these, or a way of another set, where nothing was
///           yet or where batches in flight need all of its own: so nothing leaves a cache that has
///           room for all, and a batch of as many rows as there are slots has room.
/// A batch   begin_fetch() finds its distinct rows, pins those that have a slot, takes slots for
///           others, gives changed rows that leave theirs to the slower memory, and begins to read.
///           finish_fetch() puts into slots what has been read; rows that the slower memory has not
///           are made (RowMaker). What is read at a time is bounded (layout::rows_read_at_once()).
/// Locks     one of the cache's state, held for operations on marks and never while anything is
///           read or written; and a gate: slots change hands within it, one batch at a time, the
///           writes of what leaves them included, so that nobody reads a row below before it has
///           been written; walks over rows keep it closed.
/// Failures  after one of the slower memory or of a RowMaker every later call throws the same.
/// Memory    bytes() is layout::cache_bytes(), to the byte; what a batch holds is in
///           weft/layout/tiers.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "weft/kernels/cache_slots.h"
#include "weft/kernels/row_moves.h"
#include "weft/layout/tiers.h"
#include "weft/spec/config.h"
#include "weft/storage/row_backing.h"
#include "weft/storage/row_store.h"
#include "weft/storage/row_tier.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_block.h"
#include "weft/tensor/stream.h"

namespace weft::storage {

/// What a cache leaves out, for negative controls of tests.
enum class CacheLeftOut : std::uint8_t {
  kNothing,
  kPins,  ///< rows of batches in flight lose their slots
};

/// A shard's rows, and how many of them have a slot at a time.
struct RowCacheOptions {
  spec::Table table;      ///< whose rows these are
  std::int64_t rows = 0;  ///< of the shard: numbers are in [0, rows)
  std::int64_t cols = 0;  ///< of the shard
  layout::CacheShape shape;
  kernels::CachePolicy policy = kernels::CachePolicy::kLru;
  std::int64_t half_life = 64;  ///< batches, under kLfu
  CacheLeftOut left_out = CacheLeftOut::kNothing;
};

class RowCache final : public RowTier {
 public:
  /// `device` and `backing` outlive it. Throws Error(kResource) naming the table where the memory
  /// is not to be had.
  RowCache(Device& device, const RowCacheOptions& options, RowBacking& backing, RowMaker maker);
  ~RowCache() override;

  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  /// At most 255 at a time.
  std::unique_ptr<ResidentRows> make_batch() override;
  std::unique_ptr<ResidentRows> make_inserted_batch() override;

  /// Not within for_each_row().
  void drain() override;

  [[nodiscard]] kernels::RowTable view() const override { return store_.view(); }

  [[nodiscard]] std::int64_t most_rows() const override { return options_.shape.slots(); }

  [[nodiscard]] std::int64_t bytes() const override;

  [[nodiscard]] TierCounts counts() const override;

  /// Batches that come meanwhile wait with what needs a slot. `visit` may call read_rows(), also
  /// from other threads.
  void for_each_row(const RowsVisitor& visit) const override;

  /// Those that are changed in their slots. A row that leaves its slot behind the call has been
  /// given to the slower memory.
  void for_each_unwritten_row(const RowsVisitor& visit) const override;

  /// Clean rows that have a slot are read from there too.
  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;

  /// They go to the slower memory, and to their slots where they have some. Not between
  /// begin_fetch() and finish_fetch() on the same thread.
  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override;

  [[nodiscard]] const layout::CacheShape& shape() const { return options_.shape; }

 private:
  class Batch;
  class Exclusive;
  class Shared;
  class Reader;
  using Lock = std::unique_lock<std::mutex>;

  /// Calls visit(rows, slots), lists on the device and their length, for changed rows.
  using ChangedVisitor =
      std::function<void(const std::int64_t* rows, const std::int64_t* slots, std::int64_t count)>;

  [[nodiscard]] kernels::CacheSlots slots() const;

  [[nodiscard]] std::int64_t row_bytes() const { return store_.row_bytes(); }

  [[nodiscard]] kernels::RowMove move(std::int64_t count,
                                      const std::int64_t* slots,
                                      const std::byte* packed) const;
  /// Where a batch stands among those in flight: behind all, or before all.
  enum class Order : std::uint8_t { kBehind, kBefore };

  std::unique_ptr<ResidentRows> make_batch(Order order);
  [[nodiscard]] std::int64_t room_for(const Batch& batch) const;
  [[nodiscard]] bool has_room_for(const Batch& batch) const;
  void take_back_pins(Context& ctx, const Batch& batch);
  void check_failure() const;
  void note_failure(std::exception_ptr failure);
  void write_back(Context& ctx,
                  std::int64_t count,
                  const std::int64_t* rows,
                  const std::int64_t* slots);
  void wait_for_loads(Lock& lock, std::uint64_t before) const;
  void end_load(std::uint64_t ticket);
  void visit_changed(Context& ctx, const ChangedVisitor& visit) const;

  Device& device_;
  RowCacheOptions options_;
  RowBacking& backing_;
  RowMaker maker_;
  RowStore store_;
  Buffer index_;                             // arrays of kernels::CacheSlots, in huge pages
  HostBlock leaving_rows_, leaving_packed_;  // of whoever is within the gate

  mutable std::mutex mutex_;  // of all that follows, and of what the buffers hold
  mutable std::condition_variable changed_;
  bool is_placing_ = false;         // the gate: one who changes slots ...
  mutable std::int64_t walks_ = 0;  // ... or some who need them as they are
  std::int64_t free_;               // slots that nobody has pinned
  std::uint32_t now_ = 0;
  kernels::CacheHands hands_;
  std::vector<Batch*> batches_;  // in flight, as they stand (residency.h, Room and Groups)
  std::int64_t made_batches_ = 0;
  std::uint64_t next_ticket_ = 0;
  std::vector<std::uint64_t> loads_;  // in flight, in the order in which they began
  TierCounts counts_;
  std::exception_ptr failure_;
};

}  // namespace weft::storage
