/// The figures of a configuration's steps.
#pragma once

#include <array>
#include <vector>

#include "bench/report.h"
#include "bench/step_work.h"
#include "weft/spec/config.h"
#include "weft/train/step_times.h"

namespace weft::bench {

/// What one round measured of a variant.
struct Turn {
  double step_s = 0.0;
  std::array<double, kStepParts> parts{};  ///< seconds, mean of the turn's steps
  PartLimits limits{};
  double sparse_s = 0.0;            ///< see sparse_seconds(), mean
  double misses = 0.0;              ///< rows of a step without a slot (storage::TierCounts)
  double step_with_reader_s = 0.0;  ///< 0: not measured
  double dense_flops = 0.0;         ///< of one rank in a step
  double peak_flops_per_s = 0.0;    ///< of a large square product
};

/// What a step takes for its tables, from ids to updated rows: stages on the compute stream; and
/// where others of them run beside it, what the compute stream waits.
double sparse_seconds(const train::StepTimes& times);

/// "step" in samples/s and "step_ms" against the sum of the parts' limits; "part.NAME" and what no
/// part has, "part.rest"; "sparse_ms", and "misses" of tables in tiers; "dense" in GFLOP/s;
/// "step_with_reader". Parameters are left empty.
std::vector<Figure> step_figures(const spec::Config& config, const std::vector<Turn>& turns);

}  // namespace weft::bench
