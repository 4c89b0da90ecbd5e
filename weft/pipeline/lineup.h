/// Lineup: enqueues stages on streams so that they take effect in the order in which they were
/// added, whatever streams they are on. A stage runs behind the last writer of everything that it
/// reads or writes, and behind the readers since of everything that it writes.
///
/// Streams     a stage on the stream of what it waits for costs a comparison; otherwise its stream
///             waits for an event. Where a stream runs on the calling thread, that wait blocks the
///             caller, so what is to run beside is added before it.
/// Threads     one thread adds. The streams outlive the Lineup.
/// Errors      a stage that throws fails its stream; streams that wait for it take the exception
///             over, and the waits for the host rethrow it.
/// Cost        per stage at most kResources comparisons of events. Nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/pipeline/schedule.h"
#include "weft/pipeline/stage.h"
#include "weft/tensor/stream.h"

namespace weft::pipeline {

/// For tests: accesses of a stage to a resource for which nothing is waited.
struct LeftOut {
  StepPart part = StepPart::kPrepare;
  Resource resource = Resource::kRows;
};

class Lineup {
 public:
  /// For `batches` batches in flight.
  explicit Lineup(std::int64_t batches);

  /// Enqueues `body` on `on` as a stage of a batch in flight, with the accesses of its part. `body`
  /// stays alive until it has run.
  void add(Stream& on, const Stage& body, const StageOf& stage);

  /// Enqueues work of the job that belongs to no batch, behind all that uses rows, parameters or
  /// the dense model's memory, and in front of all that will.
  void add_exclusive(Stream& on, const Stage& body);

  /// Whether a stage on `on` would wait for a stage on another stream that reads or writes
  /// `resource`. It may have ended since.
  [[nodiscard]] bool waits_for(const Stream& on, Resource resource) const;

  /// Blocks until all stages of the batch have ended, and rethrows what one of them, or of the
  /// stages before it on its stream, threw. Stages that touch nothing of a batch are not waited
  /// for.
  void wait_for_batch(std::int64_t batch);

  /// Blocks until the last writer of the job's `resource` has ended, and rethrows what it threw.
  void wait_for(Resource resource);

  /// Adds accesses that nothing waits for.
  void leave_out(const LeftOut& access) { left_out_.push_back(access); }

 private:
  /// At most as many streams as there are roles.
  using Events = std::array<Event, kStreamRoles>;

  /// Who has used a resource since its last writer.
  struct Uses {
    Event written;
    Events read;  // by stream, in the order in which they came
  };

  [[nodiscard]] Uses& uses(Resource resource, std::int64_t batch);
  [[nodiscard]] bool is_left_out(StepPart part, Resource resource) const;
  static void note(Events& events, const Event& event);
  static void wait(Stream& on, const Event& event);
  static void wait(Stream& on, const Events& events);

  std::array<Uses, kJobResources> job_;
  std::vector<std::array<Uses, kResources - kJobResources>> batches_;
  std::vector<Events> ends_;  // [batches] of the last stage on each stream
  std::vector<LeftOut> left_out_;
};

}  // namespace weft::pipeline
