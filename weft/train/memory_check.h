/// Before anything large is allocated: does what the plan needs fit in memory?
///
/// Bytes of tables with their optimizer state are known exactly (layout::shard_bytes); of buffers
/// of exchanges and of the dense model there is a prediction (planner::step_memory, dense_memory).
/// Of each limit (memory_limits.h) the needs of all ranks that share it are added up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/tensor/device.h"

namespace weft::train {

/// Bytes of rows and optimizer state of each table [tables] on the rank at a position of the mesh.
std::vector<std::int64_t> table_bytes(const spec::Config& config,
                                      const spec::Plan& plan,
                                      std::int64_t position);

/// What a job does where tables and state alone exceed a limit.
enum class Shortage : std::uint8_t { kRefuse, kWarn };

/// The settings of check_memory(). Ranks differ in `threads` at most; an empty `root` is the
/// system.
struct MemoryCheckOptions {
  int threads = 1;  ///< of this rank
  Shortage on_shortage = Shortage::kRefuse;
  std::string root;  ///< of memory_limits()
};

/// Compares, on rank 0 for all. Collective over the job's ranks, by their positions in the mesh;
/// the same outcome on all of them. Throws Error(kResource), with the first rank concerned as
/// origin, where tables and state alone exceed a limit that ranks of one host share: it names the
/// limit, the ranks, the largest tables, and what to do. With kWarn that is a warning. Where tables
/// fit and the predicted rest does not it warns too.
void check_memory(comm::Communicator& world,
                  Context& ctx,
                  const spec::Config& config,
                  const spec::Plan& plan,
                  const MemoryCheckOptions& options);

}  // namespace weft::train
