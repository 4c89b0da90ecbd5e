/// Before step 0: ranks agree on the instruction set, and prove that they run the same job.
#pragma once

#include <cstdint>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/kernels/target.h"
#include "weft/spec/config.h"

namespace weft::train {

/// The version of Weft as in `weft --version`.
std::string version();

/// What must be equal on all ranks before step 0.
struct JobIdentity {
  std::string config_yaml;  ///< resolved configuration
  std::string plan_yaml = {};
  std::uint64_t data = 0;         ///< fingerprint of the data files as this rank sees them
  std::string vocabularies = {};  ///< serialised
  bool resumes = false;           ///< whether a checkpoint is to be loaded
};

/// Throws Error(kComm) on all ranks, naming the first rank that differs from what most have, and in
/// what. Called twice: with version and configuration before anything else is done together, and
/// with everything before step 0. Messages: those of Communicator::merge(), up the tree of ranks;
/// only ranks that differ tell all what they have. Collective.
void agree_on_job(comm::Communicator& world, Context& ctx, const JobIdentity& job);

/// The target of `numerics.target`, or for auto the lowest of all ranks' best, and limits this
/// process's kernels to it. Collective. Throws Error(kConfig) where a rank's machine lacks it,
/// naming the rank.
kernels::Target agree_on_target(comm::Communicator& world,
                                Context& ctx,
                                const spec::Config& config);

}  // namespace weft::train
