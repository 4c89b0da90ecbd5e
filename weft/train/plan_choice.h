/// Which plan a job trains by.
#pragma once

#include <string>

#include "weft/comm/communicator.h"
#include "weft/planner/place.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/train/resume_plan.h"

namespace weft::train {

/// The files and the checkpoint that a job's plan may come from.
struct PlanRequest {
  std::string plan_file;            ///< of --plan; empty = none
  std::string cluster_file;         ///< of --cluster; empty = none
  std::string stats_file;           ///< of --stats; empty = none
  const SavedJob* saved = nullptr;  ///< of the checkpoint that is resumed; null: there is none
};

/// The ranks of a communicator, for planners.
planner::RankLayout rank_layout(const comm::Communicator& world);

/// The plan that is asked for; else the checkpoint's, where it fits; else a new one. Sets
/// numerics.parts of `config` to that of a plan that is given. Rank 0 makes it, and logs what
/// others should know; the others read no file of `request`. It goes as text down the tree of
/// ranks, and all compare what they have of it later. Collective. Throws Error(kConfig) of rank 0
/// on all ranks, with the file's name, for a plan that does not fit the job.
spec::Plan choose_plan(const PlanRequest& request,
                       comm::Communicator& world,
                       Context& ctx,
                       spec::Config& config);

}  // namespace weft::train
