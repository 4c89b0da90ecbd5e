/// Private to planner/: chooses replica groups, their layout, the form of their sync and τ.
///
///   groups   every number that divides the ranks, where the configuration says 0
///   layout   both, where it says auto and they differ on this cluster
///   placing  for each of these once, inside a group (search_group()), with touched where the form
///            is open and τ = 1 where that is
///   form     the best plan under each form, where it says auto. gradients is out where a
///            moment_scale or τ is for averages, touched where a shard has 2^31 rows
///   τ        where it says 0: the least power of two, of those that divide train.eval_every, with
///            which syncs take at most kSyncShare of the rest of a step; the greatest tried where
///            none does. 1 for gradients
///
/// The shortest predicted step of schedule sync that fits wins, of equal ones fewer groups; with
/// its form and τ the placement is searched once more. Of the proposals for it the job's schedule
/// decides (best_scheduled.h), so the chosen mesh has the figures of that plan. Deterministic.
#pragma once

#include <memory>

#include "weft/planner/mesh_cluster.h"
#include "weft/planner/search.h"

namespace weft::planner {

/// Of the rest of a step, that syncs may take where τ is the planner's.
inline constexpr double kSyncShare = 0.1;

/// A plan for the ranks of a group, and all groups alike; of one group the search without a mesh.
/// Throws what search() does.
SearchResult search_group(const spec::Config& config,
                          std::shared_ptr<const MeshCluster> mesh,
                          const Workload& workload);

/// Returns whether a touched sync can number the rows of every shard.
bool is_touchable(const spec::Plan& plan);

/// Requires a checked cluster. Throws Error(kConfig) where groups that are asked for do not divide
/// its ranks.
SearchResult search_meshes(const spec::Config& config,
                           const topology::Cluster& cluster,
                           const Workload& workload);

}  // namespace weft::planner
