/// What a step costs under a plan: seconds of its parts on every rank, bytes on every link, memory.
///
/// Parts are those of a trace (docs/trace.md), so that what is predicted can be laid beside what
/// was measured. Between two exchanges every rank works by itself and all wait for the slowest:
///
///   step = Σ over stretches of max over ranks of the stretch's seconds
///        + Σ over exchanges of their seconds
///        with the dense all-reduce beside [flags .. row updates] where train.overlap says so:
///        the longer of the two, and never less than both exchanges take on one link
///
/// Notation: B global batch, W ranks, L ids per sample, q share of the ids that fall on a shard's
/// rows, D its columns. A shard gets n = B L q ids, U = unique_rows of them different, and bags in
/// which at least one id falls on it: B present (1 - (1 - q)^(L / present)). It sends 4 D per bag
/// (or per id of a sequence) and gets as much back. Memory is exact for tables and their state
/// (cost::shard_bytes); buffers are those of vectors, gradients and ids. Pure functions, O(shards +
/// W).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/cost/exchange.h"
#include "weft/cost/tables.h"
#include "weft/planner/workload.h"
#include "weft/spec/plan.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

enum class Part : std::uint8_t {
  kExchangeCounts,
  kExchangeIds,
  kLookup,
  kOutputDist,
  kForwardBackward,
  kReduce,
  kExchangeFlags,
  kCoalesce,
  kGradDist,
  kUpdateRows,
  kUpdateDense,
};

inline constexpr std::size_t kParts = 11;

std::string_view to_string(Part part);  ///< as in traces

/// What a block of a table costs the rank that holds it, per step.
struct ShardLoad {
  double lookup_s = 0.0;
  double coalesce_s = 0.0;
  double update_s = 0.0;
  double ids = 0.0;              ///< looked up
  double unique = 0.0;           ///< updated
  double ids_bytes = 0.0;        ///< that each rank sends here
  double vector_bytes = 0.0;     ///< that go to each rank, and come back
  double statistic_bytes = 0.0;  ///< to each other shard of the same rows, where columns are cut
  std::int64_t bytes = 0;        ///< of the table and its state

  ShardLoad& operator+=(const ShardLoad& other);
};

/// One rank's share of a step.
struct RankCost {
  std::array<double, kParts> seconds{};  ///< exchanges included, waiting not
  ShardLoad load;                        ///< of all its shards
  std::int64_t table_bytes = 0;
  double buffer_bytes = 0.0;
  double dense_bytes = 0.0;  ///< weights, gradients of its parts, state
  cost::ByLink sent{};       ///< bytes per step, by class of link

  /// Between exchanges, in which ranks differ.
  [[nodiscard]] double own_s() const;
};

struct PlanCost {
  double step_s = 0.0;
  std::array<double, kParts> parts{};      ///< of the slowest rank
  std::array<double, kParts> exchanges{};  ///< seconds of these that are an exchange
  std::vector<RankCost> ranks;

  /// Max over mean of the ranks' own seconds (of tables: lookup, coalesce, update).
  [[nodiscard]] double imbalance() const;
  [[nodiscard]] double bytes_imbalance() const;
};

class Estimator {
 public:
  /// All must outlive it. The cluster is checked, the configuration validated.
  Estimator(const spec::Config& config,
            const topology::Cluster& cluster,
            const Workload& workload,
            std::int64_t parts);

  /// Of rows and columns of a table that its rank holds alone, among those of other ranks.
  /// `column_shards`: how many cut the same rows.
  [[nodiscard]] ShardLoad shard(std::int64_t table,
                                const RowSet& rows,
                                Range cols,
                                std::int64_t column_shards) const;

  /// Of a replica: what every rank does for a data_parallel table. ids_bytes and vector_bytes are
  /// 0; statistic_bytes: of row gradients, to each other rank.
  [[nodiscard]] ShardLoad replica(std::int64_t table) const;

  /// Seconds of a shard for balancing: its work, and its bytes on the slowest of the links that
  /// they take.
  [[nodiscard]] double work_s(const ShardLoad& load) const;
  [[nodiscard]] double link_s(const ShardLoad& load) const;

  /// Their sum.
  [[nodiscard]] double scalar_s(const ShardLoad& load) const { return work_s(load) + link_s(load); }

  /// Bytes that tables and their exchange's buffers may take on a rank.
  [[nodiscard]] std::int64_t capacity() const;

  /// Buffers that a shard takes on its rank.
  [[nodiscard]] std::int64_t buffer_bytes(const ShardLoad& load) const;

  [[nodiscard]] PlanCost cost(const spec::Plan& plan) const;

  [[nodiscard]] std::int64_t ranks() const { return ranks_; }

  [[nodiscard]] std::int64_t parts() const { return parts_; }

 private:
  [[nodiscard]] double hot(const FeatureUse& use, double ids, double row_bytes) const;
  void add_dense(PlanCost& cost) const;
  void add_cut_feature(PlanCost& cost, const FeatureUse& use, const spec::TablePlan& plan) const;
  void add_whole_feature(PlanCost& cost, const FeatureUse& use, const spec::TablePlan& plan) const;
  void add_exchanges(PlanCost& cost, double replica_bytes) const;
  void add_batch_work(PlanCost& cost, const spec::Plan& plan) const;
  void finish(PlanCost& cost) const;

  const spec::Config& config_;
  const topology::Cluster& cluster_;
  const Workload& workload_;
  std::int64_t ranks_;
  std::int64_t parts_;
  double samples_;  ///< of the rank with most
  double batch_;
  double cold_ = 1.0;  ///< share of the vectors of this rank's samples that no cache holds
  std::vector<std::vector<const FeatureUse*>> by_table_;
};

}  // namespace weft::planner
