// BlockReads by threads that call File::read().
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/io/block_reads.h"
#include "weft/io/numbered_files.h"

namespace weft::io {
namespace {

class ThreadedReads final : public BlockReads {
 public:
  ThreadedReads(FileSystem& files, const BlockReadsOptions& options)
      : files_(files), depth_(options.depth), queue_(at(options.depth)) {
    try {
      for (int i = 0; i < options.threads; ++i) {
        threads_.emplace_back([this] { run(); });
      }
    } catch (const std::system_error& error) {
      end();
      fail(ErrorCode::kResource, "cannot start thread {} of {} that read files: {}",
           threads_.size() + 1, options.threads, error.what());
    }
  }

  ~ThreadedReads() override { end(); }

  std::int32_t add(const std::string& path, OpenMode mode) override {
    return files_.add(path, mode);
  }

  void remove(std::int32_t file) override { files_.remove(file); }

  std::unique_ptr<ReadBatch> make_batch() override { return std::make_unique<Batch>(*this); }

  [[nodiscard]] ReadMethod method() const override { return ReadMethod::kThreads; }

 private:
  class Batch final : public ReadBatch {
   public:
    explicit Batch(ThreadedReads& reads) : reads_(reads) {}

    ~Batch() override {
      std::unique_lock lock(reads_.mutex_);
      reads_.ended_.wait(lock, [this] { return in_flight_ == 0; });
    }

    void begin(std::span<const BlockRead> reads) override {
      std::unique_lock lock(reads_.mutex_);
      for (const BlockRead& read : reads) {
        check_aligned(read);
        reads_.ended_.wait(lock, [this] { return reads_.in_flight_ < reads_.depth_; });
        reads_.push({this, &reads_.files_.get(read.file), read, next_order_++});
        ++reads_.in_flight_;
        ++in_flight_;
        reads_.queued_.notify_one();
      }
    }

    void wait() override {
      std::unique_lock lock(reads_.mutex_);
      reads_.ended_.wait(lock, [this] { return in_flight_ == 0; });
      next_order_ = 0;
      fault_.throw_and_forget();
    }

   private:
    friend class ThreadedReads;
    ThreadedReads& reads_;
    std::int64_t next_order_ = 0;
    std::int64_t in_flight_ = 0;
    FirstFault fault_;
  };

  struct Queued {
    Batch* batch;
    const NumberedFile* file;
    BlockRead read;
    std::int64_t order;
  };

  /// At most depth_ are in flight, so there is room.
  void push(const Queued& queued) { queue_[at((first_ + count_++) % depth_)] = queued; }

  Queued pop() {
    --count_;
    return queue_[at(std::exchange(first_, (first_ + 1) % depth_))];
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      queued_.wait(lock, [this] { return is_ending_ || count_ > 0; });
      if (count_ == 0) {
        return;
      }
      const Queued next = pop();
      lock.unlock();
      const ReadEnd end = read_rest(*next.file, next.read, 0);
      lock.lock();
      if (end.failed()) {
        next.batch->fault_.note(next.order, *next.file, next.read, end);
      }
      --in_flight_;
      --next.batch->in_flight_;
      if (next.batch->in_flight_ == 0 || in_flight_ == depth_ - 1) {
        ended_.notify_all();
      }
    }
  }

  void end() {
    {
      const std::scoped_lock lock(mutex_);
      is_ending_ = true;
    }
    queued_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  NumberedFiles files_;
  const std::int64_t depth_;
  std::mutex mutex_;  ///< of all below, and of the batches
  std::condition_variable queued_;
  std::condition_variable ended_;
  std::vector<Queued> queue_;  ///< a ring
  std::int64_t first_ = 0;     ///< in it
  std::int64_t count_ = 0;     ///< in it
  std::int64_t in_flight_ = 0;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockReads> make_threaded_reads(FileSystem& files,
                                                const BlockReadsOptions& options) {
  return std::make_unique<ThreadedReads>(files, options);
}

}  // namespace weft::io
