/// Schedules: orders in which the stages of batches are issued, over an interface that the engine
/// implements, and that anything else can that wants to walk them (a predictor, a simulator, a
/// test).
///
/// A schedule decides what may run at the same time and nothing else: stages take effect as if they
/// ran one after the other in the order of issue, whatever their streams (lineup.h). So the bits of
/// a result do not depend on streams, and a schedule is right if its order is. The order of the
/// collectives of one communicator is their order of issue, which is equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/base/step_part.h"

namespace weft::pipeline {

/// The streams that a schedule may issue to. An engine may serve several of them by one stream.
enum class StreamRole : std::uint8_t { kCompute, kIds, kDense, kSync };

/// The number of roles; enumerators are 0 to kStreamRoles - 1.
inline constexpr std::size_t kStreamRoles = 4;

/// A stage of a batch in flight.
struct StageOf {
  StepPart part = StepPart::kPrepare;
  std::int64_t batch = 0;  ///< the place among the batches in flight, from 0
  std::int64_t cut = 0;    ///< the micro-batch of it, from 0
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
};

/// One training step after the other: nothing of a batch is issued before the last stage of the one
/// before. The dense all-reduce runs beside the embeddings' backward, and the average of replicas
/// beside the dense update and the next step's counts and ids, none of which reads a row.
void sync(Issuer& to, std::int64_t batch);

/// The forward stages of a batch and its figures; nothing is updated.
void evaluation(Issuer& to, std::int64_t batch);

}  // namespace weft::pipeline
