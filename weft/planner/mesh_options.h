/// What a search for a mesh of replica groups looked at, and what decides between layouts.
#pragma once

#include <cstdint>

#include "weft/spec/mesh.h"

namespace weft::planner {

/// Which layout sends less between hosts: W < τ g A / 2 where local_all_to_all does.
///
/// With one host per group, local_all_to_all sends 2 (M - 1)/M · W/g of a rank over the network in
/// each sync, local_all_reduce (1 - 1/M) A in each step; both are divided by the same rate.
/// Source: the cost model of a "flip" from all-reduce- to all-to-all-optimised placement, which
/// follows from the volumes of a ring all-reduce and an even all-to-all (docs/planner.md).
struct LayoutRule {
  double replica_bytes = 0.0;    ///< W: that a sync averages, of a group; of other forms than dense
                                 ///< as many as would send as much
  double exchanged_bytes = 0.0;  ///< A: ids, vectors and gradients of a rank in a step
  std::int64_t ranks = 1;        ///< g: of a group
  std::int64_t sync_every = 1;   ///< τ

  [[nodiscard]] double limit() const {
    return 0.5 * static_cast<double>(sync_every) * static_cast<double>(ranks) * exchanged_bytes;
  }

  /// For local_all_to_all.
  [[nodiscard]] bool holds() const { return replica_bytes < limit(); }
};

/// One way to form groups and to synchronise them. Bytes are those of the rank with most.
struct MeshOption {
  std::int64_t groups = 1;  ///< M
  std::int64_t ranks = 1;   ///< N
  spec::MeshLayout layout = spec::MeshLayout::kLocalAllToAll;
  bool both_layouts = false;                     ///< alike under the other one
  spec::SyncForm sync = spec::SyncForm::kDense;  ///< of one group it means nothing
  std::int64_t sync_every = 1;
  bool asked = true;           ///< the configuration leaves it open, or says so
  bool fits = true;            ///< into the ranks' memory
  double step_s = 0.0;         ///< predicted; sync included, over τ
  double sync_s = 0.0;         ///< of one sync; of sync gradients their exchange in a step
  double sync_bytes = 0.0;     ///< sent in one sync, or with sync gradients in a step
  double network_bytes = 0.0;  ///< sent to other hosts in a step
  double table_bytes = 0.0;
  double memory_bytes = 0.0;  ///< tables, buffers, samples, dense model
  LayoutRule rule;
};

}  // namespace weft::planner
