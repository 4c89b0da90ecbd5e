/// StepState: everything that one step has in flight, from its batch to its figures. The engine
/// owns as many as there may be batches in flight; stages are functions of one of them.
///
/// Threads     the thread that issues writes it in begin() and reads it after finish(); in between
///             stages do, each member on the stream of the stages that declare it
///             (weft/pipeline/stage.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "weft/base/step_part.h"
#include "weft/data/batch.h"
#include "weft/data/loader.h"
#include "weft/tensor/stream.h"
#include "weft/train/sparse_engine.h"
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
  data::ReaderPosition after = {};  ///< where the reader goes on after the batch
  bool stop = false;                ///< this rank was asked to stop
  std::exception_ptr error = {};    ///< why there is no batch on this rank; the step throws it
};

struct StepState {
  const data::Batch* batch = nullptr;
  std::int64_t step = 0;
  data::ReaderPosition after;
  Pass pass = Pass::kTraining;
  std::unique_ptr<SparseState> sparse;  ///< tables, control, report, whether the step is applied
  std::exception_ptr input_error;       ///< why there is no batch
  std::vector<double> weight_sums;      ///< [own parts][T] of labels
  std::vector<float> logits;            ///< [B, T] of this rank's samples
  StepTimes times;                      ///< each part is written by the stream it runs on
  bool behind_average = false;          ///< whether the lookup waits for an average of replicas
  StepTimes::Clock::time_point lookup_issued;  ///< by the thread that issues
  bool is_in_flight = false;                   ///< from begin() to finish()
  std::atomic<bool> has_failed = false;        ///< a stage threw: later ones do nothing
  std::atomic_flag is_failing;                 ///< set by the first that threw
  std::exception_ptr failure;                  ///< what it threw, written before has_failed
  std::vector<Stage> stages;                   ///< [parts][micro-batches]; made once
};

}  // namespace weft::train
