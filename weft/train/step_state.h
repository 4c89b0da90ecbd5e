/// StepState: everything that one step has in flight, from its batch to its figures. The engine
/// owns as many as there may be batches in flight; stages are functions of one of them.
///
/// Threads     the thread that issues writes it in begin() and reads it behind finish(); in between
///             stages do, each member on the stream of the stages that declare it
///             (weft/pipeline/stage.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/step_part.h"
#include "weft/data/batch.h"
#include "weft/data/loader.h"
#include "weft/sharding/sparse_step.h"
#include "weft/tensor/stream.h"
#include "weft/train/control.h"
#include "weft/train/dense_pass.h"
#include "weft/train/step_times.h"

namespace weft::train {

/// What a step does with its batch.
enum class Pass : std::uint8_t {
  kTraining,
  kEvaluation,  ///< forward alone
};

/// What the caller gives a step.
struct StepInput {
  const data::Batch& batch;         ///< stays as it is until the step is finished
  std::int64_t step = 0;            ///< of the whole job, counted from 1
  data::ReaderPosition after = {};  ///< where the reader goes on behind the batch
  bool stop = false;                ///< this rank was asked to stop
};

struct StepState {
  const data::Batch* batch = nullptr;
  std::int64_t step = 0;
  data::ReaderPosition after;
  Pass pass = Pass::kTraining;

  std::unique_ptr<sharding::SparseStep> sparse;  ///< what the tables have in flight

  // What ranks tell each other with the counts.
  LocalControl local;
  GlobalControl global;
  std::vector<std::byte> control_bytes;   ///< of this rank
  std::vector<std::byte> group_bytes;     ///< of the ranks of its group
  std::vector<std::byte> gathered_bytes;  ///< of all ranks

  // What they tell each other behind the backward pass.
  std::vector<NonFinite> flags;         ///< of all ranks
  NonFinite first_flag;                 ///< the first in the order of samples
  bool apply = true;                    ///< whether rows and parameters are updated
  std::int64_t encoded_non_finite = 0;  ///< values of vectors, before this step

  std::vector<float> logits;    ///< [B, T] of this rank's samples
  StepTimes times;              ///< each part is written by the stream it runs on
  bool behind_average = false;  ///< whether the lookup waits for an average of replicas

  std::array<Stage, kStepParts> stages;  ///< by part; made once
};

}  // namespace weft::train
