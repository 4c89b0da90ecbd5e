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
  double step_with_reader_s = 0.0;  ///< 0: not measured
  double dense_flops = 0.0;         ///< of one rank in a step
  double peak_flops_per_s = 0.0;    ///< of a large square product
};

/// "step" in samples/s and "step_ms" against the sum of the parts' limits; "part.NAME" and what no
/// part has, "part.rest"; "dense" in GFLOP/s; "step_with_reader". Parameters are left empty.
std::vector<Figure> step_figures(const spec::Config& config, const std::vector<Turn>& turns);

}  // namespace weft::bench
