#include "weft/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

/// The pool one of whose tasks this thread is running: a nested call of it runs inline. (A mark of
/// the thread, not a setting: it holds a value only inside parallel_for.)
thread_local const void* current_pool = nullptr;

class CurrentPool {
 public:
  explicit CurrentPool(const void* pool) : previous_(std::exchange(current_pool, pool)) {}

  ~CurrentPool() { current_pool = previous_; }

  CurrentPool(const CurrentPool&) = delete;
  CurrentPool& operator=(const CurrentPool&) = delete;

 private:
  const void* previous_;
};

/// The exception of the lowest failing index.
struct FirstError {
  std::exception_ptr error;
  std::int64_t index = 0;

  void add(std::exception_ptr other, std::int64_t other_index) {
    if (!error || other_index < index) {
      error = std::move(other);
      index = other_index;
    }
  }

  void rethrow() const {
    if (error) {
      std::rethrow_exception(error);
    }
  }
};

void run_inline(std::int64_t count, IndexFunction task) {
  FirstError first;
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      task(i);
    } catch (...) {
      first.add(std::current_exception(), i);
    }
  }
  first.rethrow();
}

}  // namespace

struct ThreadPool::Impl {
  /// One call of parallel_for; lives on the caller's stack.
  struct Job {
    IndexFunction task;
    std::int64_t count;
    std::atomic<std::int64_t> next = 0;  ///< the next index that nobody has taken
    int helpers = 0;                     ///< pool threads at work on it; under the mutex
    FirstError first;                    ///< under the mutex
    std::condition_variable helpers_left;
  };

  std::mutex mutex;
  std::condition_variable work;
  std::vector<Job*> jobs;  ///< oldest first; the caller takes its own out
  bool stop = false;
  std::vector<std::thread> threads;

  /// Runs indices of the job until none is left.
  void run_share(Job& job) {
    const CurrentPool mark(this);
    for (std::int64_t i = job.next.fetch_add(1); i < job.count; i = job.next.fetch_add(1)) {
      try {
        job.task(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        job.first.add(std::current_exception(), i);
      }
    }
  }

  Job* job_with_work() {
    const auto found = std::find_if(jobs.begin(), jobs.end(),
                                    [](const Job* job) { return job->next.load() < job->count; });
    return found == jobs.end() ? nullptr : *found;
  }

  void work_until_stopped() {
    std::unique_lock lock(mutex);
    while (true) {
      Job* job = nullptr;
      work.wait(lock, [&] { return (job = job_with_work()) != nullptr || stop; });
      if (job == nullptr) {
        return;
      }
      ++job->helpers;
      lock.unlock();
      run_share(*job);
      lock.lock();
      // Under the mutex, so that the caller cannot leave, and the job end, in between.
      if (--job->helpers == 0) {
        job->helpers_left.notify_one();
      }
    }
  }

  void run(std::int64_t count, IndexFunction task) {
    Job job{.task = task, .count = count, .next = 0, .helpers = 0, .first = {}, .helpers_left = {}};
    {
      const std::lock_guard lock(mutex);
      jobs.push_back(&job);
    }
    const std::int64_t wanted = std::min(count - 1, static_cast<std::int64_t>(threads.size()));
    for (std::int64_t i = 0; i < wanted; ++i) {
      work.notify_one();
    }
    run_share(job);
    {
      // Every index has been taken; those that pool threads took may still run.
      std::unique_lock lock(mutex);
      std::erase(jobs, &job);
      job.helpers_left.wait(lock, [&] { return job.helpers == 0; });
    }
    job.first.rethrow();
  }

  void end() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work.notify_all();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads), impl_(std::make_unique<Impl>()) {
  WEFT_CHECK(threads >= 1, "a thread pool of {}", threads);
  impl_->threads.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) {
      impl_->threads.emplace_back([impl = impl_.get()] { impl->work_until_stopped(); });
    }
  } catch (const std::exception& error) {
    impl_->end();
    fail(ErrorCode::kResource, "cannot start a pool of {} threads: {}; ask for fewer threads",
         threads, error.what());
  }
}

ThreadPool::~ThreadPool() {
  impl_->end();
}

void ThreadPool::parallel_for(std::int64_t count, IndexFunction task) {
  if (count <= 0) {
    return;
  }
  if (count == 1 || threads_ == 1 || current_pool == impl_.get()) {
    run_inline(count, task);
  } else {
    impl_->run(count, task);
  }
}

void parallel_for(ThreadPool* pool, std::int64_t count, IndexFunction task) {
  if (pool != nullptr) {
    pool->parallel_for(count, task);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    task(i);
  }
}

}  // namespace weft
