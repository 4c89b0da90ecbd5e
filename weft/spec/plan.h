/// The plan: who holds what. It is configuration: saved, hashed, compared on all ranks before
/// step 0, reused on resume.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/spec/config.h"
#include "weft/spec/shards.h"

namespace weft::spec {

/// The plan of one table: its scheme, and its shards in one replica group. The other groups hold
/// the same.
struct TablePlan {
  std::string table;
  Sharding sharding = Sharding::kTableWise;  ///< never kAuto
  PooledAt pooled_at = PooledAt::kOwner;     ///< kSample: of cut rows, or with hot rows
  std::int64_t groups = 0;                   ///< replica groups; 0: Plan::groups, as data_parallel
  /// The hot rows: every rank has a copy of them, looked up and updated there. Ranges, ascending,
  /// not empty, not touching each other. The shards cover these rows too, but nothing reads or
  /// writes them. In plan files the key is `head`.
  std::vector<Range> hot = {};
  /// [shards] bytes of the cache of each, where the table shares Tiers::cache_bytes; empty: they
  /// are divided by the bytes of the shards.
  std::vector<std::int64_t> caches = {};
  Shards shards;  ///< ascending by (row, column), no empty shard

  friend bool operator==(const TablePlan&, const TablePlan&) = default;
};

/// How exchanges reach other hosts: every rank sends to every rank, or through relays of hosts.
/// Results have the same bits.
/// Of the sum of dense gradients: also whether its slices go straight to their owners on other
/// hosts, or through relays too.
enum class CollectiveForm { kFlat, kHierarchical, kRelayed };

/// Returns the spelling in YAML: "flat", "hierarchical", "relayed".
std::string_view to_string(CollectiveForm form);

/// One for each purpose that has a communicator of its own.
struct CollectiveForms {
  CollectiveForm ids = CollectiveForm::kFlat;      ///< never kRelayed
  CollectiveForm vectors = CollectiveForm::kFlat;  ///< and their gradients; likewise
  CollectiveForm dense = CollectiveForm::kFlat;    ///< the sum of dense gradients

  /// Where dense sums are not flat.
  [[nodiscard]] Crossing dense_crossing() const {
    return dense == CollectiveForm::kRelayed ? Crossing::kRelayed : Crossing::kDirect;
  }

  friend bool operator==(const CollectiveForms&, const CollectiveForms&) = default;
};

/// A whole plan: the ranks and parts that it is for, the replica groups, and the plan of every
/// table.
struct Plan {
  std::int64_t version = 1;
  std::int64_t ranks = 1;                          ///< N of a replica group
  std::int64_t groups = 1;                         ///< M
  MeshLayout layout = MeshLayout::kLocalAllToAll;  ///< never kAuto
  SyncForm sync = SyncForm::kAuto;  ///< that the planner chose; kAuto: the configuration's
  std::int64_t sync_every = 0;      ///< likewise τ; 0: the configuration's
  std::int64_t parts = 8;           ///< resolved numerics.parts
  /// [most_ranks()] of the first ones, by the order of first ranks; empty: all on one
  std::vector<std::int64_t> hosts = {};
  CollectiveForms collectives = {};
  Pipeline pipeline = {};         ///< that the planner chose; kAuto: the configuration's
  std::int64_t cache_bytes = 0;   ///< likewise Tiers::cache_bytes; 0: the configuration's
  std::vector<TablePlan> tables;  ///< in the order of Config::tables

  [[nodiscard]] std::int64_t world() const { return groups * ranks; }

  /// Replica groups of a table.
  [[nodiscard]] std::int64_t groups_of(const TablePlan& table) const {
    return table.groups > 0 ? table.groups : groups;
  }

  /// The ranks of one of them: those that its shards name, by their places.
  [[nodiscard]] std::int64_t ranks_of(const TablePlan& table) const {
    return world() / groups_of(table);
  }

  /// Of the largest group that any table is sharded over.
  [[nodiscard]] std::int64_t most_ranks() const {
    std::int64_t most = ranks;
    for (const TablePlan& table : tables) {
      most = std::max(most, ranks_of(table));
    }
    return most;
  }

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Row statistics are sums over blocks of so many columns.
inline constexpr std::int64_t kColumnBlock = 16;

/// Bytes of an id that travels, counted within the rows of a cut: the least of 1, 2, 4 and 8 that
/// hold the last of `rows` rows, those of a table's largest cut.
constexpr std::int64_t id_bytes(std::int64_t rows) {
  const auto last = static_cast<std::uint64_t>(rows > 0 ? rows - 1 : 0);
  return last <= 0xff ? 1 : last <= 0xffff ? 2 : last <= 0xffffffff ? 4 : 8;
}

/// Columns are cut at multiples of this: of kColumnBlock and, where a codec has groups, of them, so
/// that no block and no group lies in two shards.
std::int64_t column_cut(const Codecs& codecs);

/// How many shards of columns a table may have.
std::int64_t most_column_shards(const Codecs& codecs, const Table& table);

/// YAML text of a plan and back. plan_from_yaml throws Error(kConfig) with file, line and column.
std::string plan_to_yaml(const Plan& plan);
Plan plan_from_yaml(const std::string& text, const std::string& file);

/// Whether a plan says of any shard what it has of the memory for caches.
bool has_caches(const Plan& plan);

/// Makes a plan that says it of none.
void drop_caches(Plan& plan);

/// The mesh of a job under a plan: what `asked` leaves open is the plan's, and where that says
/// nothing either, a dense sync after every step. A moment_scale for replicas that are not averaged
/// after all is dropped.
Mesh mesh_of(const Mesh& asked, const Plan& plan);

/// What of the batches of a job overlaps under a plan: what `asked` leaves open is the plan's, and
/// where that says nothing either, sync.
Pipeline pipeline_of(const Pipeline& asked, const Plan& plan);

/// Bytes of memory that the caches of a rank's shards share under a plan: what `asked` says, and
/// where that leaves the size open, the plan's. 0: nobody has said it.
std::int64_t shared_cache_bytes(const Tiers& asked, const Plan& plan);

/// XXH3 of the canonical text, without `pipeline`, `cache_bytes` and `caches`, which decide no bit.
std::uint64_t plan_hash(const Plan& plan);

}  // namespace weft::spec
