#include "weft/tensor/worker_stream.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "weft/base/error.h"
#include "weft/trace/recorder.h"

namespace weft {
namespace {

/// How far a stream has come. Shared with the streams that wait on it, so that a stream may be
/// destroyed while others still have a wait on it in their queues.
class Progress {
 public:
  /// Entry number `completed` has been done or skipped; `error` is set if it failed.
  void advance(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error) {
      set_error(std::move(error));
    }
    ++completed_;
    changed_.notify_all();
  }

  /// The rest, up to entry number `end`, will never run.
  void drop_until(std::uint64_t end, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (completed_ < end) {
      set_error(std::move(error));
      completed_ = end;
      changed_.notify_all();
    }
  }

  /// Blocks until `sequence` entries are done, or `stop` is set. Returns the exception if one of
  /// these entries failed; a later failure does not count, so the answer does not depend on timing.
  std::exception_ptr wait(std::uint64_t sequence, const std::atomic<bool>* stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return completed_ >= sequence || (stop != nullptr && stop->load()); });
    return error_ && failed_at_ < sequence ? error_ : nullptr;
  }

  [[nodiscard]] bool has_reached(std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    return completed_ >= sequence;
  }

  /// Wakes those who wait, so that they look at their `stop` again.
  void wake() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  void set_error(std::exception_ptr error) {
    if (!error_) {
      error_ = std::move(error);
      failed_at_ = completed_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t completed_ = 0;
  std::uint64_t failed_at_ = 0;
  std::exception_ptr error_;
};

class CpuStream : public Stream {
 public:
  explicit CpuStream(const CpuStreamOptions& options)
      : options_(options), progress_(std::make_shared<Progress>()) {
    if (options.stream.recorder != nullptr) {
      options_.context.track =
          &options.stream.recorder->make_track(options.stream.name, trace::TrackKind::kStream);
    }
  }

  [[nodiscard]] Event record() final { return {this, enqueued_}; }

  void wait_on_host(const Event& event) final {
    WEFT_CHECK(event.stream == this, "stream '{}' was given the event of another stream", name());
    if (std::exception_ptr error = progress_->wait(event.sequence, nullptr)) {
      std::rethrow_exception(error);
    }
  }

  [[nodiscard]] bool has_reached(const Event& event) final {
    WEFT_CHECK(event.stream == this, "stream '{}' was given the event of another stream", name());
    return progress_->has_reached(event.sequence);
  }

  [[nodiscard]] const std::string& name() const final { return options_.stream.name; }

  [[nodiscard]] const std::shared_ptr<Progress>& progress() const { return progress_; }

 protected:
  [[nodiscard]] trace::Track* track() const { return options_.context.track; }

  /// Runs a stage as entry number `sequence` and returns what it threw.
  std::exception_ptr run_stage(const Stage& stage, std::uint64_t sequence) {
    StageObserver* const observer = options_.observer;
    try {
      if (observer == nullptr) {
        stage(options_.context);
        return nullptr;
      }
      observer->enter(options_.number, sequence);
    } catch (...) {
      return std::current_exception();
    }
    std::exception_ptr error;
    try {
      stage(options_.context);
    } catch (...) {
      error = std::current_exception();
    }
    observer->leave();
    return error;
  }

  CpuStreamOptions options_;
  std::shared_ptr<Progress> progress_;
  std::uint64_t enqueued_ = 0;  ///< stages and waits so far; used by the enqueuing thread only
};

/// Blocks for an event of a stream that is not a CPU stream; its host wait is all we know of it.
std::exception_ptr wait_foreign(const Event& event) {
  try {
    event.stream->wait_on_host(event);
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

class InlineStream final : public CpuStream {
 public:
  using CpuStream::CpuStream;

  void enqueue(const Stage& stage) override {
    if (!failed_) {
      finish(run_stage(stage, enqueued_));
    } else {
      finish(nullptr);
    }
  }

  void wait(const Event& event) override {
    if (event.stream == nullptr || event.stream == this || failed_) {
      return;
    }
    auto* other = dynamic_cast<CpuStream*>(event.stream);
    const trace::Scope scope(track(), "wait", trace::Kind::kWait);
    finish(other == nullptr ? wait_foreign(event)
                            : other->progress()->wait(event.sequence, nullptr));
  }

 private:
  void finish(std::exception_ptr error) {
    failed_ = failed_ || error;
    ++enqueued_;
    progress_->advance(std::move(error));
  }

  bool failed_ = false;
};

class WorkerStream final : public CpuStream {
 public:
  explicit WorkerStream(const CpuStreamOptions& options) : CpuStream(options), ring_(64) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::exception& error) {
      fail(ErrorCode::kResource, "cannot start the thread of stream '{}': {}", name(),
           error.what());
    }
    // The system shows at most 15 characters; a name that cannot be set is no loss.
    pthread_setname_np(thread_.native_handle(), name().substr(0, 15).c_str());
  }

  ~WorkerStream() override {
    std::shared_ptr<Progress> waiting_on;
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
      waiting_on = waiting_on_;
    }
    work_.notify_one();
    if (waiting_on) {
      waiting_on->wake();
    }
    thread_.join();
    progress_->drop_until(
        enqueued_,
        std::make_exception_ptr(Error(
            ErrorCode::kInternal, fmt::format("stream '{}' was destroyed with stages in its queue; "
                                              "synchronize a stream before it is destroyed",
                                              name()))));
  }

  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;

  void enqueue(const Stage& stage) override { push({.stage = &stage, .event = {}, .other = {}}); }

  void wait(const Event& event) override {
    if (event.stream == nullptr || event.stream == this) {
      return;
    }
    auto* other = dynamic_cast<CpuStream*>(event.stream);
    push({.stage = nullptr, .event = event, .other = other ? other->progress() : nullptr});
  }

 private:
  /// A stage to run, or else an event to wait for.
  struct Entry {
    const Stage* stage = nullptr;
    Event event;
    std::shared_ptr<Progress> other;  ///< the event's, null for a stream that is no CPU stream
  };

  void push(Entry entry) {
    {
      const std::lock_guard lock(mutex_);
      if (tail_ - head_ == ring_.size()) {
        grow();
      }
      ring_[tail_ % ring_.size()] = std::move(entry);
      ++tail_;
    }
    ++enqueued_;
    work_.notify_one();
  }

  void grow() {
    std::vector<Entry> larger(ring_.size() * 2);
    for (std::uint64_t i = head_; i != tail_; ++i) {
      larger[i % larger.size()] = std::move(ring_[i % ring_.size()]);
    }
    ring_ = std::move(larger);
  }

  void run() {
    bool failed = false;
    for (std::uint64_t sequence = 0;; ++sequence) {
      Entry entry;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return stop_.load() || head_ != tail_; });
        if (stop_.load()) {
          return;
        }
        entry = std::move(ring_[head_ % ring_.size()]);
        ++head_;
        waiting_on_ = entry.other;
      }
      std::exception_ptr error;
      if (!failed) {
        error = entry.stage != nullptr ? run_stage(*entry.stage, sequence) : run_wait(entry);
        if (entry.stage == nullptr && stop_.load()) {
          return;  // the wait may have been cut short; drop_until() accounts for it
        }
      }
      failed = failed || error;
      progress_->advance(std::move(error));
    }
  }

  std::exception_ptr run_wait(const Entry& entry) {
    const trace::Scope scope(track(), "wait", trace::Kind::kWait);
    return entry.other ? entry.other->wait(entry.event.sequence, &stop_)
                       : wait_foreign(entry.event);
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<Entry> ring_;
  std::uint64_t head_ = 0;  ///< entries taken out
  std::uint64_t tail_ = 0;  ///< entries put in
  std::shared_ptr<Progress> waiting_on_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Stream> make_cpu_stream(const CpuStreamOptions& options) {
  if (options.stream.is_inline) {
    return std::make_unique<InlineStream>(options);
  }
  return std::make_unique<WorkerStream>(options);
}

}  // namespace weft
