/// What plan_bench knows of its cases: which they are, what was measured, what is predicted. What
/// was measured can be kept in a folder and predicted again, by other formulas.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "bench/plan_cases.h"
#include "weft/planner/estimate.h"
#include "weft/topology/cluster.h"

namespace weft::bench {

/// What a case takes, or should take.
struct Seconds {
  double step = 0.0;
  std::array<double, kStepParts> parts{};
  double other = 0.0;  ///< measured only: what no part of the planner has
};

/// Bytes of every rank. Ranks that share a process are told apart by their devices.
struct RankMemory {
  std::vector<double> tables;   ///< [ranks] with their optimizer state
  std::vector<double> buffers;  ///< [ranks] all else
};

struct PlanFigures {
  std::map<std::string, std::string> parameters;
  std::string group;  ///< what it is compared with
  PlanCase chosen;
  std::vector<Seconds> measured;  ///< by round
  RankMemory counted;
  Seconds predicted;
  RankMemory expected;
};

/// What is known of one number of ranks and threads.
struct ShapeFigures {
  std::vector<PlanFigures> cases;
  std::vector<topology::Cluster> clusters;  ///< by round
};

/// A case that has not been measured yet.
PlanFigures plan_figures(const PlanGroup& group,
                         PlanCase chosen,
                         std::int64_t ranks,
                         std::int64_t threads,
                         const std::string& backend);

/// The best of every figure of some rounds of calibration.
topology::Cluster best_of(const std::vector<topology::Cluster>& rounds);

/// Writes measured.json and, per shape, its best cluster as cluster_RANKSxTHREADS.yaml into
/// `folder`, which is made. Throws Error(kIo).
void save_measured(const std::string& folder, const std::vector<ShapeFigures>& shapes);

/// Reads them again; cases that plan_cases.h no longer has are left out, which stderr says. Throws
/// Error(kIo), and Error(kConfig) where it is no such folder.
std::vector<ShapeFigures> load_measured(const std::string& folder);

}  // namespace weft::bench
