// BlockReads through io_uring.
//
// One ring for all callers. Submitting is under the mutex; waiting is not: of the callers that wait
// one at a time, the reaper, is in the kernel, takes completions of all batches, and wakes the
// others, of which one goes on as the reaper. A caller whose reads are all in flight need not be
// there for them.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <liburing.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/io/block_reads.h"
#include "weft/io/numbered_files.h"

namespace weft::io {
namespace {

/// A reaper sleeps until so many reads have ended, or all of its own: fewer turns for as many
/// reads.
constexpr std::int64_t kReapedAtOnce = 16;

class RingReads final : public BlockReads {
 public:
  RingReads(FileSystem& files, const BlockReadsOptions& options)
      : files_(files), slots_(at(options.depth)) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      free_.push_back(i);
    }
  }

  ~RingReads() override {
    if (has_ring_) {
      io_uring_queue_exit(&ring_);
    }
  }

  /// Returns why there is none; empty if there is one.
  std::string start() {
    const int result = io_uring_queue_init(static_cast<unsigned>(slots_.size()), &ring_, 0);
    if (result < 0) {
      return error_of(-result).message();
    }
    has_ring_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool can_read = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return can_read ? "" : "the kernel is too old";
  }

  std::int32_t add(const std::string& path, OpenMode mode) override {
    return files_.add(path, mode);
  }

  void remove(std::int32_t file) override { files_.remove(file); }

  std::unique_ptr<ReadBatch> make_batch() override { return std::make_unique<Batch>(*this); }

  [[nodiscard]] ReadMethod method() const override { return ReadMethod::kRing; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  class Batch final : public ReadBatch {
   public:
    explicit Batch(RingReads& reads) : reads_(reads) {}

    ~Batch() override {
      Lock lock(reads_.mutex_);
      reads_.wait_for(lock, *this);
    }

    void begin(std::span<const BlockRead> reads) override {
      Lock lock(reads_.mutex_);
      for (const BlockRead& read : reads) {
        check_aligned(read);
        reads_.queue(lock, *this, read);
      }
      reads_.submit(lock);
    }

    void wait() override {
      Lock lock(reads_.mutex_);
      reads_.wait_for(lock, *this);
      next_order_ = 0;
      fault_.throw_and_forget();
    }

   private:
    friend class RingReads;
    RingReads& reads_;
    std::int64_t next_order_ = 0;
    std::int64_t in_flight_ = 0;
    FirstFault fault_;
  };

  /// A read in flight; its index is the request's user_data.
  struct Slot {
    Batch* batch;
    const NumberedFile* file;
    BlockRead read;
    std::int64_t order;
  };

  void queue(Lock& lock, Batch& batch, const BlockRead& read) {
    const NumberedFile& file = files_.get(read.file);
    if (has_ring_ && free_.empty()) {
      submit(lock);
      while (free_.empty()) {
        reap(lock, std::min(kReapedAtOnce, (depth() + 3) / 4));
      }
    }
    const int descriptor = file.file->descriptor();
    if (!has_ring_ || descriptor < 0) {
      lock.unlock();
      const ReadEnd end = read_rest(file, read, 0);
      lock.lock();
      finish({&batch, &file, read, batch.next_order_++}, end);
      return;
    }
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    WEFT_CHECK(entry != nullptr, "the ring has fewer entries than slots");
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {&batch, &file, read, batch.next_order_++};
    io_uring_prep_read(entry, descriptor, read.data, static_cast<unsigned>(read.bytes),
                       static_cast<std::uint64_t>(read.offset));
    io_uring_sqe_set_data64(entry, slot);
    ++batch.in_flight_;
    unsubmitted_.push_back(slot);
  }

  void submit(Lock& lock) {
    while (!unsubmitted_.empty()) {
      const int count = io_uring_submit(&ring_);
      if (count > 0) {
        unsubmitted_.erase(unsubmitted_.begin(), unsubmitted_.begin() + count);
      } else if (in_flight() > static_cast<std::int64_t>(unsubmitted_.size())) {
        reap(lock, 1);  // the kernel is short of something, which these give back
      } else if (count != -EINTR) {
        do_without(lock);
      }
    }
  }

  /// The kernel takes no request any more, and has none: from now on begin() reads.
  void do_without(Lock& lock) {
    io_uring_queue_exit(&ring_);
    has_ring_ = false;
    for (const std::uint32_t slot : std::exchange(unsubmitted_, {})) {
      lock.unlock();
      const ReadEnd end = read_rest(*slots_[slot].file, slots_[slot].read, 0);
      lock.lock();
      free_slot(slot, end);
    }
    reaped_.notify_all();
  }

  void wait_for(Lock& lock, const Batch& batch) {
    while (batch.in_flight_ > 0) {
      reap(lock, std::min(batch.in_flight_, kReapedAtOnce));
    }
  }

  /// Takes completions, once there are `least` in the ring; or waits until another caller has taken
  /// some. At least as many must be in flight.
  void reap(Lock& lock, std::int64_t least) {
    if (is_reaping_) {
      reaped_.wait(lock);
      return;
    }
    is_reaping_ = true;
    lock.unlock();
    io_uring_cqe* entry = nullptr;
    int result = 0;
    do {
      result = io_uring_wait_cqe_nr(&ring_, &entry, static_cast<unsigned>(least));
    } while (result == -EINTR || result == -EAGAIN);
    lock.lock();
    is_reaping_ = false;
    reaped_.notify_all();
    WEFT_CHECK(result == 0, "io_uring_wait_cqe: {}", error_of(-result).message());
    unsigned head = 0;
    unsigned count = 0;
    io_uring_for_each_cqe(&ring_, head, entry) {
      const auto slot = static_cast<std::uint32_t>(io_uring_cqe_get_data64(entry));
      free_slot(slot, end_of(slots_[slot], entry->res));
      ++count;
    }
    io_uring_cq_advance(&ring_, count);
  }

  /// What was cut short or interrupted is read again from there on.
  static ReadEnd end_of(const Slot& slot, int result) {
    if (result == slot.read.bytes) {
      return {};
    }
    if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -ECANCELED) {
      return read_rest(*slot.file, slot.read, std::max(result, 0));
    }
    return {.error = error_of(-result)};
  }

  static void finish(const Slot& slot, const ReadEnd& end) {
    if (end.failed()) {
      slot.batch->fault_.note(slot.order, *slot.file, slot.read, end);
    }
  }

  void free_slot(std::uint32_t slot, const ReadEnd& end) {
    --slots_[slot].batch->in_flight_;
    finish(slots_[slot], end);
    free_.push_back(slot);
  }

  [[nodiscard]] std::int64_t depth() const { return static_cast<std::int64_t>(slots_.size()); }

  [[nodiscard]] std::int64_t in_flight() const {
    return depth() - static_cast<std::int64_t>(free_.size());
  }

  NumberedFiles files_;
  std::mutex mutex_;  ///< of all below, of the batches, and of the ring's submissions
  std::condition_variable reaped_;
  bool is_reaping_ = false;
  bool has_ring_ = false;
  io_uring ring_{};
  std::vector<Slot> slots_;  ///< as many as may be in flight
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> unsubmitted_;  ///< of those in flight
};

}  // namespace

std::unique_ptr<BlockReads> make_ring_reads(FileSystem& files,
                                            const BlockReadsOptions& options,
                                            std::string& why) {
  auto reads = std::make_unique<RingReads>(files, options);
  why = reads->start();
  return why.empty() ? std::move(reads) : nullptr;
}

}  // namespace weft::io
