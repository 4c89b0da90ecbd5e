/// Memory of tables and of their exchanges on every rank under a plan, buffer by buffer, as the
/// allocators count it (weft/cost/memory.h); with the dense side (weft/cost/dense_memory.h) all
/// that a training step has. It lies where the rank's tables do: in hbm, or in ddr.
///
/// Notation: of a shard n ids, U rows, v vectors; of a rank B samples, C columns of all pooled
/// vectors. What differs from batch to batch grows by an eighth when a longer one comes, and is
/// taken as an eighth more than expected; what has the same length in every batch as just that.
///   tables     rows and optimizer state; of hot rows also their numbers, 8 bytes each
///   matrices   vectors and gradients of the rank's samples: 8 B C, and 8 D per id of sequences
///   served     4 columns v of a shard's vectors for other ranks, where rows are cut for itself
///              too, of hot rows for itself alone;
///              over messages as much again for vectors that were asked for; of encoded ones only
///              those of cut rows, decoded, however they came
///   encoded    with codecs, of vectors and of gradients: what goes out, what is rounded in place
///              (all B of a whole bag's columns) and of hot rows what the rank has for itself, over
///              messages also what comes
///   relays     with hierarchical ids, and with hierarchical vectors: of what crosses through this
///              rank out and in, and of lanes that are packed, what the longest exchange needs
///              (relay_memory.h). Of vectors, gradients, row statistics and replicas' rows one
///              communicator has relays
///   entries    28 n of a shard, 32 with weights: rows, segments, parts, addresses. Of a replica
///              the longer of its own entries and of all ranks' partial sums
///   partials   of a replica, and of a table that is fetched: 20 S + 4 D s, S segments, s sums
///   rows       of shards of columns whose optimizer looks at whole rows: 4 U (columns + blocks +
///   1);
///              of fetched tables 4 D u
/// Of a plan for several groups: the ranks of the group with most samples; copies and hot rows have
/// the partial sums of all groups. What the sync of replicas takes is not in it (mesh_cost.cc).
/// Not in it: what lies in std::vector (ids on their way, lists of tasks), libraries, the reader.
/// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/cost/dense_memory.h"
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

  /// Of tables and exchanges: all but what a rank's samples have under any plan.
  [[nodiscard]] double buffers() const {
    return served + encoded + relays + entries + partials + rows;
  }
};

/// How what others have is read: where they have it, as ranks of one process do, or from messages.
enum class Transport : std::uint8_t { kLent, kReceived };

/// [ranks]. O((shards + tables) · kinds of ranks + ranks).
std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    Transport transport);

/// The same with the job's hot rows, looked at before.
std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    Transport transport,
                                    const HotUses& hot_uses);

/// The dense side of a step, with the workload's lengths for `shape.elements`: of any plan.
cost::DenseMemory dense_memory(const spec::Config& config,
                               const Workload& workload,
                               cost::DenseMemoryShape shape);

}  // namespace weft::planner
