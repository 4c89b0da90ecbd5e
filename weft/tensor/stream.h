/// Streams and events: what may run at the same time. They never change what is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/tensor/device.h"

namespace weft {

/// A stage: some tens per step. Preallocated; the caller keeps it alive until it has run.
using Stage = std::function<void(Context&)>;

class Stream;

/// A point in a stream's queue. Cheap to copy; valid while the stream lives.
struct Event {
  Stream* stream = nullptr;
  std::uint64_t sequence = 0;  ///< the number of stages and waits queued before the point
};

/// An ordered queue of stages. When a stage throws, the later ones are skipped and the exception
/// goes to whoever waits for a point after it: synchronize() rethrows it, a stream that waits on an
/// event takes it over. A stream that has failed stays failed. enqueue() itself never throws what a
/// stage threw. One thread enqueues at a time. Threads block, never spin.
///
/// Destroying a stream lets the running stage end and drops the later ones: synchronize first.
/// Nobody who already waits for a dropped point hangs, he gets Error(kInternal). A device outlives
/// its streams.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Runs `stage` after everything enqueued before. Does not allocate once the queue is long
  /// enough.
  virtual void enqueue(const Stage& stage) = 0;

  /// The point after everything enqueued so far.
  [[nodiscard]] virtual Event record() = 0;

  /// Later stages of this stream run after `event` has been reached.
  virtual void wait(const Event& event) = 0;

  /// Blocks the caller until the event of *this* stream is reached; rethrows the stream's
  /// exception.
  virtual void wait_on_host(const Event& event) = 0;

  /// Whether the event of *this* stream has been reached, without waiting; then what was computed
  /// before it can be seen.
  [[nodiscard]] virtual bool has_reached(const Event& event) = 0;

  /// Blocks the caller until the queue is empty; rethrows the stream's exception.
  void synchronize() { wait_on_host(record()); }

  /// Returns the name that StreamOptions gave.
  [[nodiscard]] virtual const std::string& name() const = 0;
};

}  // namespace weft
