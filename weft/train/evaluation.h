/// Evaluation: a forward pass over a source, with exact metrics over all samples and ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/data/loader.h"
#include "weft/metrics/auc.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/train/engine.h"
#include "weft/train/progress.h"
#include "weft/train/summary.h"

namespace weft::train {

/// Of the samples of all ranks.
struct GlobalAuc {
  double auc = 0.0;              ///< NaN where a score is
  std::int64_t not_numbers = 0;  ///< samples whose score is NaN
};

/// Exact AUC of the samples of all ranks, by key ranges: no rank sees them all. Collective; equal
/// on all ranks.
GlobalAuc auc_over_ranks(comm::Communicator& comm,
                         Context& ctx,
                         const metrics::AucSamples& samples);

/// What an evaluation hears and says.
struct EvaluationWatch {
  const std::atomic<bool>* stop = nullptr;                ///< may be null
  std::function<void(const Activity&)> on_activity = {};  ///< after every batch; may be empty
};

/// Runs the loader to its end, or to a stop that reaches any rank: then there are no figures. Sums
/// go up the tree of parts per batch, then batch after batch, so the figures do not depend on the
/// number of ranks. A logit that is NaN makes its task's figures NaN, with a warning; with
/// train.on_non_finite stop it is Error(kNonFinite) on all ranks, at the end. Collective.
std::optional<EvalFigures> evaluate(Engine& engine,
                                    data::Loader& loader,
                                    const spec::Config& config,
                                    const EvaluationWatch& watch);

}  // namespace weft::train
