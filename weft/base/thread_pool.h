/// One pool of threads per rank, shared by its streams. Work is cut by shape, never by the number
/// of threads, so results do not depend on it.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace weft {

/// A non-owning reference to a callable `void(std::int64_t index)`; no allocation.
class IndexFunction {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, IndexFunction>)
  IndexFunction(F&& f)  // NOLINT(google-explicit-constructor): a parameter type, like string_view
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, std::int64_t index) {
          (*static_cast<std::remove_reference_t<F>*>(object))(index);
        }) {}

  void operator()(std::int64_t index) const { call_(object_, index); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t);
};

/// Runs independent tasks on a fixed number of threads. Thread-safe; threads wait asleep between
/// calls. The destructor joins them: no call may be under way then.
class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller, who takes part: a pool of one has no thread of its own.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  /// Calls task(i) for every i in [0, count), each once, on the caller and the pool's threads;
  /// returns when all are done. Several callers may call at once; a task must not call this
  /// method of the same pool (it would run inline). The exception of the lowest failing index is
  /// rethrown after all tasks have ended. Cost: about 5 µs to wake a sleeping thread.
  void parallel_for(std::int64_t count, IndexFunction task);

 private:
  struct Impl;
  int threads_;
  std::unique_ptr<Impl> impl_;
};

/// Calls task(i) for each i in [0, count): by ThreadPool::parallel_for() of `pool` or, where that
/// is null, on the caller alone, ascending; there the first exception ends the call.
void parallel_for(ThreadPool* pool, std::int64_t count, IndexFunction task);

}  // namespace weft
