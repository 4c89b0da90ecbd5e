/// Schedules: orders in which the stages of batches are issued, over an interface that the engine
/// implements, and that anything else can that wants to walk them (a predictor, a simulator, a
/// test).
///
/// A schedule decides what may run at the same time and nothing else: stages take effect as if they
/// ran one after the other in the order of issue, whatever their streams (lineup.h). So the bits of
/// a result do not depend on streams, and a schedule is right if its order is. The order of the
/// collectives of one communicator is their order of issue, which is equal on all ranks.
///
/// Batches     a step has the batch that it trains on, `now`, and may be given the one after it,
///             `next`, of which it begins what a schedule runs ahead. Both are places among the
///             batches in flight.
/// Cuts        a batch is cut into micro-batches (weft/base/micro_batches.h). The model's
/// parameters
///             and the rows are the same for all of them, so a batch is one step of the optimizers,
///             whatever the cuts.
/// Waiting     a stream on the calling thread waits for what a stage needs before issue() returns.
///             What is to run beside such a wait is issued before it.
/// Source      prefetch, dbp, fwp and nested: NestPipe (arXiv 2604.06956); docs/pipeline.md says
///             what is different here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/base/step_part.h"

namespace weft::pipeline {

/// The streams that a schedule may issue to. An engine may serve several of them by one stream.
enum class StreamRole : std::uint8_t { kCompute, kIds, kVectors, kDense, kSync };

/// The number of roles; enumerators are 0 to kStreamRoles - 1.
inline constexpr std::size_t kStreamRoles = 5;

/// A stage of a batch in flight.
struct StageOf {
  StepPart part = StepPart::kPrepare;
  std::int64_t batch = 0;  ///< the place among the batches in flight, from 0
  /// The micro-batch of it, from 0; 0 for a stage of a whole batch. kWeightGradients is of the
  /// micro-batches up to this one that it has not been issued for.
  std::int64_t cut = 0;
};

/// What walks a schedule. One thread calls it.
class Issuer {
 public:
  virtual ~Issuer() = default;

  /// Issues a stage to a stream, after all stages that share a resource with it and were issued
  /// before. Does not wait for it, except where the stream runs on the calling thread.
  virtual void issue(const StageOf& stage, StreamRole on) = 0;

  /// Whether the replicas of the groups are averaged after the update of this batch.
  [[nodiscard]] virtual bool averages_behind(std::int64_t batch) const = 0;

  /// Whether rows of a batch may have to be read from a disk before they are looked up. Equal on
  /// all ranks, whichever of them has the disk.
  [[nodiscard]] virtual bool reads_disk() const { return false; }

  /// The number of micro-batches of a batch, equal on all ranks and at least 1.
  [[nodiscard]] virtual std::int64_t cuts() const { return 1; }

  /// How many micro-batches' vectors are on their way before they are computed with, at least 1.
  [[nodiscard]] virtual std::int64_t lookahead() const { return 1; }

  /// Whether what is issued next to kCompute would wait there for this stage, which was issued
  /// before: then something else may be issued first. The answer is of this rank and this moment,
  /// so it may decide about no collective and no order of addition. False where nobody knows.
  [[nodiscard]] virtual bool would_wait_for(const StageOf& /*stage*/) const { return false; }
};

/// The place that stands for no batch: a step begins nothing of a batch after its own.
inline constexpr std::int64_t kNoBatch = -1;

/// One training step after the other.
struct Schedule {
  std::string_view name;
  /// Issues what a step expects to be under way. The step before has done so, but for the first.
  void (*begin)(Issuer& to, std::int64_t batch) = nullptr;
  /// Issues the rest of the step of batch `now`, and begin() of `next` unless that is kNoBatch.
  void (*step)(Issuer& to, std::int64_t now, std::int64_t next) = nullptr;
  /// The streams that it issues to besides kCompute, kDense and kSync.
  std::span<const StreamRole> streams = {};
  /// Whether a step begins the next batch, so that two are in flight.
  bool looks_ahead = false;
  /// Whether batches are cut; otherwise Issuer::cuts() is 1.
  bool cuts_batches = false;
};

/// All schedules, the simplest first:
///   sync      nothing of a batch is issued before the last stage of the one before. The dense
///             all-reduce runs beside the embeddings' backward, and the average of replicas beside
///             the dense update and the next step's counts and ids, none of which reads a row.
///   prefetch  the next batch's ids travel and are sorted beside this one's compute: they need no
///             row. They leave behind this one's vectors, which are waited for, but before them
///             where rows are read from a disk: that is idle while vectors are looked up,
///             otherwise.
///   dbp       dual-buffer pipelining: as prefetch, and the next batch's rows become resident
///   beside
///             this one's compute; its vectors leave once rows are updated, before the dense
///             gradients of this one have been summed.
///   fwp       frozen-window pipelining: vectors and gradients of one micro-batch travel while
///             another one is computed, and the last gradients while the parameters' are. Where
///             vectors are waited for, parameters' gradients of earlier micro-batches fill the
///             wait.
///   nested    fwp inside a batch and dbp across batches.
std::span<const Schedule> schedules();

/// The schedule of that name. REQUIRES: there is one.
const Schedule& schedule_called(std::string_view name);

/// The forward stages of a batch and its figures; nothing is updated.
void evaluation(Issuer& to, std::int64_t batch);

}  // namespace weft::pipeline
