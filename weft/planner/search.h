/// Finds a plan: which tables are replicated, which are cut and how, and who holds what, so that
/// the predicted step is short and everything fits.
///
/// Tables whose scheme the configuration fixes keep it. Of the others (sharding: auto):
///   replicate   a table whose replica costs every rank less than f times its share of the table
///               as one shard (data_parallel), for several f: the cheap ones first
///   place       the rest as shards: items with a cost in seconds and bytes, onto ranks by
///               halve_hottest (partition.h), which cuts what stands in the way of balance, by
///               columns at multiples of 16 or by rows, whichever leaves the costlier half cheaper
///   compare     every proposal by what the whole step is predicted to take (estimate.h), the
///               slowest rank and links included; so also uniform ones (all table_wise, row_wise,
///               of one host, grids) and the plan that a job makes without a cluster
///   refine      in the best proposal, where bags are added and how rows are dealt is turned, hot
///               rows are tried where the workload has some, and tables of the hottest rank are
///               held in all other ways, one at a time, as long as the step gets shorter
///   form        the best proposals get flat or hierarchical collectives (collective_forms.h)
///   schedule    a plan gets the schedule whose step is predicted to be shortest, where the
///               configuration leaves it open (pipeline_choice.h). Until here steps are those of
///               sync; of the proposals near the shortest one that whose step is shortest under
///               the schedule that it gets becomes the best (best_scheduled.h)
///   caches      the best proposal's shards on disks divide a rank's memory for caches by access
///               curves (cache_division.h), where these are known; all others do so by bytes. Where
///               the configuration leaves the memory open, the best proposal's is chosen for its
///               schedule (cache_size.h); all others have the smallest caches that train
///
/// Of replica groups (mesh.groups) all this is inside one group; how many there are, which ranks
/// they have and how they synchronise is chosen by the step of sync where the configuration leaves
/// it open (mesh_search.h).
///
/// Deterministic: nothing here looks at a clock; how much is tried depends on the size alone.
/// Source: enumerate, propose, partition, estimate as in TorchRec's planner; cutting the hottest as
/// in NVIDIA's for MLPerf; differencing as in ZionEX (arXiv 2104.05158) section 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/planner/cache_size.h"
#include "weft/planner/estimate.h"
#include "weft/planner/mesh_cluster.h"
#include "weft/planner/mesh_options.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

/// Something that does not fit.
struct Shortage {
  std::string table;         ///< empty: replicas alone fill the ranks
  std::int64_t rank = -1;    ///< where least is missing
  std::int64_t missing = 0;  ///< bytes

  friend bool operator==(const Shortage&, const Shortage&) = default;
};

/// A plan that the search has made, with its predicted cost and, where it does not fit, what is
/// missing.
struct Proposal {
  /// "table_wise", ...; "balanced, rows, f 1.0, links 4": cut by rows only, replicas below f, links
  /// weighted
  std::string name;
  bool simple = false;  ///< no balanced one: for comparison
  spec::Plan plan;
  PlanCost cost;
  std::vector<Shortage> shortages;  ///< empty: it fits

  [[nodiscard]] bool fits() const { return shortages.empty(); }
};

/// The answer of search(). There is always one proposal at least, and best() is the first.
struct SearchResult {
  std::vector<Proposal> proposals;  ///< the best, then those that fit by predicted step of sync,
                                    ///< then the others
  std::int64_t capacity = 0;        ///< bytes that tables and buffers may take on a rank
  std::shared_ptr<const MeshCluster> mesh = nullptr;  ///< for which the proposals are
  std::vector<MeshOption> meshes = {};                ///< by groups; empty where one was asked for
  std::size_t chosen = 0;                             ///< of meshes
  bool schedule_decided = false;  ///< best() is not the one with the shortest step of sync, but
                                  ///< that under its schedule (best_scheduled.h)
  std::vector<PipelineOption> pipelines = {};  ///< of best(), by schedule
  std::size_t pipeline = 0;                    ///< of pipelines: what the job gets
  std::optional<CacheSize> cache_size = {};    ///< of best(), where it was left open

  [[nodiscard]] const Proposal& best() const { return proposals.front(); }

  /// Predicted, of the best proposal under the job's schedule. REQUIRES: search() made this.
  [[nodiscard]] double step_s() const { return pipelines[pipeline].step_s; }
};

/// Requires a validated configuration and a checked cluster. Throws Error(kConfig) where parts do
/// not suffice for the ranks, ranks cut through clustering runs, groups do not divide them, a table
/// is pinned to a rank or host that is not there (of groups left open: under no number of them), or
/// the size of caches is left open and the cluster gives no rate of its disks. Where nothing fits,
/// the best proposal has shortages: see refuse().
SearchResult search(const spec::Config& config,
                    const topology::Cluster& cluster,
                    const Workload& workload);

/// Throws Error(kConfig) that says what the tables need, what the ranks have, and the smallest
/// changes that would do, each tried: more ranks, more memory per rank, rows of half the bytes.
/// Requires that the best proposal does not fit.
[[noreturn]] void refuse(const SearchResult& result,
                         const spec::Config& config,
                         const topology::Cluster& cluster,
                         const Workload& workload);

/// The cluster with `ranks` ranks instead: hosts like its first ones, the last with what is left.
topology::Cluster resized(const topology::Cluster& cluster, std::int64_t ranks);

}  // namespace weft::planner
