/// Lineup: enqueues stages on streams so that stages which share a resource run in the order in
/// which they were added. A stage waits for the last writer of every resource that it uses, and for
/// all readers since of every resource that it writes; other stages may overlap. The engine adds
/// every stage of every step.
///
/// Streams     no event is waited for between stages of one stream. Where a stream runs on the
///             calling thread, a wait blocks the caller: a stage that should overlap with the wait
///             is added before it.
/// Threads     one thread adds. The streams outlive the Lineup.
/// Errors      after a stage throws, later stages on its stream are skipped; streams that wait for
///             it get the same exception, and wait_for_batch() and wait_for() rethrow it.
/// Cost        per stage and resource that it uses at most kStreamRoles comparisons of events; a
/// stage
///             of a whole batch uses those of all its N micro-batches. add() allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/pipeline/schedule.h"
#include "weft/pipeline/stage.h"
#include "weft/tensor/stream.h"

namespace weft::pipeline {

/// For tests: a stage and a resource that it uses without waiting for those who used it before.
struct LeftOut {
  StepPart part = StepPart::kPrepare;
  Resource resource = Resource::kRows;
};

class Lineup {
 public:
  /// Takes room for `batches` batches in flight, of `cuts` micro-batches each.
  explicit Lineup(std::int64_t batches, std::int64_t cuts = 1);

  /// Enqueues `body` on `on` as a stage of a batch in flight, with the resources that
  /// accesses_of(stage.part) declares. The caller keeps `body` alive until it has run.
  void add(Stream& on, const Stage& body, const StageOf& stage);

  /// Enqueues work that belongs to no batch, such as saving or hashing: after every stage added
  /// before that uses rows, parameters or the dense model's memory, and before every such stage
  /// added later.
  void add_exclusive(Stream& on, const Stage& body);

  /// The stream of the last writer of the job's `resource`, which may have ended; null where there
  /// was none.
  [[nodiscard]] const Stream* writer_of(Resource resource) const;

  /// Blocks until all stages of the batch at this place, from 0, have ended, and then rethrows what
  /// one of them, or an earlier stage of its stream, threw. Stages that use resources of the job
  /// alone are not waited for.
  void wait_for_batch(std::int64_t batch);

  /// Blocks until the last writer of the job's `resource` has ended, and rethrows what it threw.
  /// Readers are not waited for.
  void wait_for(Resource resource);

  /// Does the same for a resource that batches have, of the batch at this place.
  void wait_for(Resource resource, std::int64_t batch);

  /// Whether the last writer of a micro-batch's `resource` has not ended. Does not wait.
  [[nodiscard]] bool is_being_written(Resource resource, const StageOf& stage) const;

  /// Drops the waits of a stage for a resource.
  void leave_out(const LeftOut& access) { left_out_.push_back(access); }

 private:
  /// At most as many streams as there are roles.
  using Events = std::array<Event, kStreamRoles>;

  /// Who has used a resource since its last writer.
  struct Uses {
    Event written;
    Events read;  // by stream, in the order in which they came
  };

  /// What a batch has of its own.
  struct BatchUses {
    std::array<Uses, kResources - kJobResources - kCutResources> whole;
    std::vector<std::array<Uses, kCutResources>> cuts;
    Events ends;  // of the last stage on each stream
  };

  /// Calls visit(Uses&) for what a stage uses of a resource: those of all cuts, if it is of a whole
  /// batch.
  template <typename Visit>
  void for_uses(Resource resource, const StageOf& stage, const Visit& visit);
  [[nodiscard]] bool is_left_out(StepPart part, Resource resource) const;
  static void note(Events& events, const Event& event);
  static void wait_on_host(const Event& event);
  static void wait(Stream& on, const Event& event);
  static void wait(Stream& on, const Events& events);

  std::array<Uses, kJobResources> job_;
  std::vector<BatchUses> batches_;
  std::vector<LeftOut> left_out_;
};

}  // namespace weft::pipeline
