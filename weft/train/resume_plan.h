/// What a resumed job keeps of the plan that its checkpoint was trained with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/checkpoint/manifest.h"
#include "weft/planner/place.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::train {

/// Of a checkpoint, as far as it can be read by this build.
struct SavedJob {
  spec::Plan plan;
  std::optional<spec::Config> config;  ///< none: it has keys that this build refuses
  /// Of the ranks that trained, as planner::host_numbers(); none: the checkpoint does not say.
  std::optional<std::vector<std::int64_t>> hosts;
};

/// Throws Error(kConfig) where the plan is none, and spec::GoneKeyError where the job had what no
/// job of this build can have. `name` stands in messages.
SavedJob saved_job(const checkpoint::Metadata& metadata, const std::string& name);

/// Hosts for a checkpoint's extra_json, read back by saved_job().
inline constexpr const char* kSavedHosts = "hosts";

/// Why a job with this configuration on these ranks needs a plan of its own, as a clause; empty
/// where the saved one fits: as many ranks on the same hosts, a plan for the configuration
/// (planner::check_plan, check_pins) whatever caches it has, and no key of it left open that the
/// saved configuration had pinned.
std::string why_another_plan(const SavedJob& saved,
                             const spec::Config& config,
                             const planner::RankLayout& world);

}  // namespace weft::train
