/// How a job is predicted to scale with the number of its ranks: the best plan for each of several
/// numbers, once with the job's batch shared by all of them (strong scaling), once with as many
/// samples per rank everywhere (weak scaling).
///
/// Strong scaling divides ever fewer samples: 65,536 are 16 a rank on 4,096 ranks, where latencies
/// and dense products of a few rows are what is left of a step. The jobs that need thousands of
/// ranks keep the samples of a rank instead, so both belong in a report.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

/// The best plan for one number of ranks and one batch, as predicted.
struct ScalingPoint {
  std::int64_t ranks = 0;
  std::int64_t batch_size = 0;  ///< samples of a step over all ranks
  bool fits = false;            ///< into the memory of the ranks; where not, step_s is as if it did
  double step_s = 0.0;          ///< under the plan's schedule

  [[nodiscard]] double samples_per_s() const { return static_cast<double>(batch_size) / step_s; }
};

/// Both by the numbers of ranks, in the order asked for.
struct Scaling {
  std::string cluster;  ///< its name
  std::vector<ScalingPoint> strong;
  std::vector<ScalingPoint> weak;
};

/// Searches a plan (search.h) for each of `ranks`, on hosts like the cluster's. Strong: every
/// number has the batch of `config`. Weak: the first has it, and the others as many samples per
/// rank, rounded down where that is no whole number. Throws what search() throws, and
/// Error(kConfig) where a weak batch is larger than a configuration may ask for. Requires a
/// validated configuration, a checked cluster, and at least one number, each positive. Costs two
/// searches a number.
Scaling predict_scaling(const spec::Config& config,
                        const topology::Cluster& cluster,
                        const Workload& workload,
                        std::span<const std::int64_t> ranks);

/// Samples per second and rank of a point over those of the first: 1 is linear scaling. Requires
/// index < points.size().
double scaling_efficiency(std::span<const ScalingPoint> points, std::size_t index);

/// A table of at most 120 columns.
std::string to_text(const Scaling& scaling);

/// {"cluster", "strong": [point], "weak": [point]}; a point has ranks, batch_size, fits, step_s,
/// samples_per_s and efficiency.
std::string to_json(const Scaling& scaling);

}  // namespace weft::planner
