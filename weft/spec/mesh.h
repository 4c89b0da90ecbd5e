/// The process mesh of 2D sparse parallelism: M replica groups x N ranks each. Tables are sharded
/// over the N ranks of a group, and every group has a replica of all of them.
///
/// Notation   M groups, N ranks of a group, r a rank of the world, position p = group · N + place.
///            Samples and parts are dealt by position, so a group owns a run of parts and both
///            layouts train on the same split of the data.
///            A table may have fewer groups, K, a divisor of M: then neighbouring groups are one,
///            positions [g · N·M/K, (g + 1) · N·M/K), and samples and parts are dealt as before.
/// Layouts    local_all_to_all: p = r. A group is ranks that follow each other, so the all-to-all
///            stays near and replicas are synchronised across hosts.
///            local_all_reduce: p = (r mod M) · N + ⌊r/M⌋. Replicas of a shard follow each other,
///            so their sync stays near and the all-to-all crosses hosts.
/// Source     "Two-dimensional Sparse Parallelism for Large Scale Deep Learning Recommendation
///            Model Training" (arXiv 2508.03854).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::spec {

/// kAuto is the plan's, which a search for a cluster chooses, else local_all_to_all.
enum class MeshLayout { kAuto, kLocalAllToAll, kLocalAllReduce };

/// What replicas of a shard exchange so that they are equal again.
enum class SyncForm {
  kAuto,       ///< the plan's, which a search for a cluster chooses, else kDense
  kDense,      ///< the average of every row and its optimizer state
  kTouched,    ///< the same of the rows that were touched since the last time: the same bits
  kGradients,  ///< row gradients, summed over the groups before the optimizer: never apart
};

/// Jobs know it resolved (mesh_of() in plan.h): nothing is left to the planner then.
struct Mesh {
  std::int64_t groups = 1;  ///< M; 1: tables are sharded over all ranks; 0: the planner's
  MeshLayout layout = MeshLayout::kAuto;
  SyncForm sync = SyncForm::kDense;
  std::int64_t sync_every = 1;  ///< τ: steps from sync to sync; 1 for kGradients; 0: the planner's
  double moment_scale = 0.0;    ///< c of averaged Adagrad tables (weft/optim/sparse.h); 0 = groups

  /// That of tables that are sharded over so many groups, each of neighbouring ones merged
  /// (Table::groups).
  [[nodiscard]] Mesh merged(std::int64_t table_groups) const {
    Mesh mesh = *this;
    mesh.groups = table_groups;
    return mesh;
  }

  /// Whether replicas are averaged, so that they may differ between two syncs.
  [[nodiscard]] bool averages() const { return groups > 1 && sync != SyncForm::kGradients; }

  /// The same before the planner has chosen: whether they could be.
  [[nodiscard]] bool may_average() const { return groups != 1 && sync != SyncForm::kGradients; }

  /// M of a plan that nobody searches for.
  [[nodiscard]] std::int64_t groups_or_one() const { return groups == 0 ? 1 : groups; }

  /// c, resolved: what sums of averaged Adagrad tables are multiples of.
  [[nodiscard]] double resolved_moment_scale() const {
    if (!averages()) {
      return 1.0;
    }
    return moment_scale > 0.0 ? moment_scale : static_cast<double>(groups);
  }

  /// Whether replicas are equal after `step` where nothing else synchronises them. What the planner
  /// is still to choose, it chooses so.
  [[nodiscard]] bool syncs_after(std::int64_t step) const {
    return groups == 1 || sync_every == 0 || step % sync_every == 0;
  }
};

/// As in YAML: "local_all_to_all", "touched".
std::string_view to_string(MeshLayout layout);
std::string_view to_string(SyncForm form);

/// Returns the position of rank r of the world, of M groups of N ranks. REQUIRES: 0 <= r < M · N.
constexpr std::int64_t mesh_position(MeshLayout layout,
                                     std::int64_t groups,
                                     std::int64_t group_ranks,
                                     std::int64_t rank) {
  return layout == MeshLayout::kLocalAllReduce ? (rank % groups) * group_ranks + rank / groups
                                               : rank;
}

/// Returns the rank of the world at a position: mesh_position() the other way.
constexpr std::int64_t mesh_rank(MeshLayout layout,
                                 std::int64_t groups,
                                 std::int64_t group_ranks,
                                 std::int64_t position) {
  return layout == MeshLayout::kLocalAllReduce
             ? (position % group_ranks) * groups + position / group_ranks
             : position;
}

/// The divisors of `whole` next to `number`, which is at least 1, as "2 or 4"; one where there is
/// no other.
std::string nearest_divisors(std::int64_t number, std::int64_t whole);

/// Throws Error(kConfig) naming the nearest numbers that divide unless M divides `ranks`.
void check_groups(std::int64_t groups, std::int64_t ranks);

}  // namespace weft::spec
