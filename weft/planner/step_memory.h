/// Memory of tables and of their exchanges on every rank under a plan, buffer by buffer, as the
/// allocators count it; with the dense side (dense_memory.h) all that a training step has. It lies
/// where the rank's tables do: in hbm, or in ddr.
///
/// Counted here is what a batch is expected to bring: ids, different rows, vectors, partial sums.
/// How long buffers for them are is said by weft/layout alone, which the allocators ask too. What
/// differs from batch to batch is taken as grown once, what has the same length in every batch as
/// just that (layout::Expected).
///   tables     rows and optimizer state; of hot rows also their numbers  (layout/tables.h); of
///              rows that are not all in memory the cache, or those that come to exist, with lists
///              of rows that are made                                     (tier_use.h)
///   matrices   vectors and gradients of the rank's samples        (layout/feature_vectors.h)
///   served     a shard's vectors for other ranks, where rows are cut for itself too, of hot rows
///              for itself alone; over messages also vectors that were asked for, of encoded ones
///              those that are added here                                         (likewise)
///   encoded    with codecs, of vectors and of gradients: what goes out, and what is rounded in
///              place; over messages also what comes                              (likewise)
///   relays     with hierarchical ids, and with hierarchical vectors, what the longest exchange
///              needs. Of vectors, gradients, row statistics and replicas' rows one communicator
///              has relays                                                 (layout/relays.h)
///   entries    coalesced ids of a shard. Of a replica the longer of its own entries and of all
///              ranks' partial sums                                 (layout/row_gradients.h)
///   partials   partial sums of a replica, and of a table that is fetched            (likewise)
///   rows       of shards of columns whose optimizer looks at whole rows: sums and statistics; of
///              fetched tables the rows                                           (likewise)
///   slots      of rows that are not all in memory: a batch's different rows, and their slots
///                                                                          (layout/tiers.h)
///   places     of these: what says where they lie, in host memory               (likewise)
/// Of a schedule that begins the next batch two batches have all of it but tables, places and
/// relays, which are the communicator's, and received rows of replicas. Of a batch in micro-batches
/// the largest one is encoded, or relayed, at once. Of a plan for several groups: the ranks of the
/// group with most samples; copies and hot rows have the partial sums of all groups. What the sync
/// of replicas takes is not in it (mesh_cost.cc). Not in it: what lies in std::vector (ids on their
/// way, lists of tasks), scratch memory of single tasks, libraries, the reader. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/layout/blocks.h"
#include "weft/planner/hot_rows.h"
#include "weft/planner/workload.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Bytes of one rank.
struct StepMemory {
  double tables = 0.0;
  double matrices = 0.0;
  double served = 0.0;
  double encoded = 0.0;
  double relays = 0.0;
  double entries = 0.0;
  double partials = 0.0;
  double rows = 0.0;
  double slots = 0.0;
  double places = 0.0;

  /// Of tables and exchanges, on the device: all but what a rank's samples have under any plan.
  [[nodiscard]] double buffers() const {
    return served + encoded + relays + entries + partials + rows + slots;
  }
};

/// How what others have is read: where they have it, as ranks of one process do, or from messages.
enum class Transport : std::uint8_t { kLent, kReceived };

/// What the buffers depend on beside job and plan.
struct StepMemoryOptions {
  Transport transport = Transport::kLent;
  std::optional<spec::Pipeline> pipeline = {};  ///< none: spec::pipeline_of() of job and plan
  double growth = layout::kBufferGrowth;        ///< Device::buffer_growth()
};

/// [ranks]. O((shards + tables) · kinds of ranks + ranks).
std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    const StepMemoryOptions& options);

/// The same with the job's hot rows, looked at before.
std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    const StepMemoryOptions& options,
                                    const HotUses& hot_uses);

}  // namespace weft::planner
