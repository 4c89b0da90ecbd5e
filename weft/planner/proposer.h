/// Private to planner/: makes proposals. A sketch says of every table how it is held; what that
/// leaves open is placed: tables of a host's schemes on the hosts with least work, the rest as
/// items, cut and spread by halve_hottest().
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/planner/partition.h"
#include "weft/planner/search.h"
#include "weft/planner/shard_loads.h"

namespace weft::planner {

/// How a table is held.
enum class TableSketch : std::uint8_t {
  kFixed,        ///< as make_plan() has it
  kWhole,        ///< one shard, placed by the search
  kColumns,      ///< as many column shards as the configuration says, placed by the search
  kCut,          ///< shards that the search cuts and places
  kReplicate,    ///< data_parallel
  kSpread,       ///< row_wise over all ranks
  kHostRows,     ///< table_row_wise
  kHostColumns,  ///< table_column_wise
  kGrid,         ///< grid_shard
};

/// Along what a table may be cut. Cut by columns it needs one more exchange, of row statistics.
enum class Axes : std::uint8_t { kBoth, kRows };

struct PlanSketch {
  std::vector<TableSketch> tables;        ///< [tables]
  std::vector<spec::PooledAt> pooled_at;  ///< [tables] where bags are added if rows are cut
  std::vector<std::int64_t> hot_rows;     ///< [tables] how many, unless replicated; 0: none
  Axes axes = Axes::kBoth;
  /// How much a second on links counts beside a second of work. A step is a sum of maxima, so which
  /// sum is best to balance depends on which of them stand out.
  double link_weight = 1.0;

  friend bool operator==(const PlanSketch&, const PlanSketch&) = default;
};

class Proposer {
 public:
  /// Of one group of the mesh. `start`: make_plan()'s. All but it must outlive this.
  Proposer(const spec::Config& config,
           const MeshCluster& mesh,
           const Workload& workload,
           spec::Plan start);

  [[nodiscard]] const Estimator& estimator() const { return estimator_; }

  /// What its proposals' shards cost.
  [[nodiscard]] ShardLoads& loads() { return loads_; }

  [[nodiscard]] const spec::Plan& start() const { return start_; }

  [[nodiscard]] std::int64_t capacity() const { return capacity_; }

  [[nodiscard]] std::int64_t ranks() const { return estimator_.ranks(); }

  [[nodiscard]] std::int64_t tables() const {
    return static_cast<std::int64_t>(config_.tables.size());
  }

  /// What the configuration leaves open: kCut where anything goes, bags at owners unless pinned.
  [[nodiscard]] PlanSketch open() const;

  [[nodiscard]] bool allows(std::int64_t table, TableSketch choice) const;

  /// Whether the search decides where the table's bags are added.
  [[nodiscard]] bool may_pool_anywhere(std::int64_t table) const {
    return config_.tables[static_cast<std::size_t>(table)].pooled_at == spec::PooledAt::kAuto;
  }

  /// Whether rows of the table are numbered by frequency, so that ranges of them are uneven.
  [[nodiscard]] bool is_by_frequency(std::int64_t table) const;

  /// How many hot rows a table may have that the search is free to give some, ascending. None where
  /// nobody counted, and of tables whose scheme the configuration says, or limits.
  [[nodiscard]] std::vector<std::int64_t> hot_counts(std::int64_t table) const;

  /// The hottest `rows` rows.
  [[nodiscard]] const std::vector<Range>& hot_rows(std::int64_t table, std::int64_t rows);

  /// `instead` of cuts, where that is allowed, and whole where not.
  [[nodiscard]] PlanSketch with(PlanSketch sketch, TableSketch instead) const;

  /// Tables whose replica costs every rank less than `factor` times its share of the table as one
  /// shard are replicated, the first ones until a quarter of a rank's memory is full.
  [[nodiscard]] PlanSketch replicated(PlanSketch sketch, double factor);

  /// Bags are added at the samples where spread rows then need fewer bytes.
  [[nodiscard]] PlanSketch pooled_at_samples(PlanSketch sketch);

  /// Bytes of ids, vectors and gradients of a table's shards between two ranks. `hot_use` as in
  /// Estimator::shard().
  [[nodiscard]] double wire_bytes(std::int64_t table,
                                  const spec::Shards& shards,
                                  spec::PooledAt pooled_at,
                                  const HotUse* hot_use = nullptr);

  /// Seconds of a block on the rank that holds it.
  [[nodiscard]] double block_s(std::int64_t table, const spec::Shard& shard);

  /// Seconds of a table on all ranks together, its hot rows' included.
  [[nodiscard]] double held_s(std::int64_t table, const spec::TablePlan& plan);

  /// Sets which forms of collectives the plans of sketches have from now on. At first they have
  /// those of the start, or flat ones where the configuration leaves them open.
  void set_forms(const spec::CollectiveForms& forms) { start_.collectives = forms; }

  [[nodiscard]] Proposal propose(std::string name,
                                 const PlanSketch& sketch,
                                 const HalvingLimits& limits = {});
  [[nodiscard]] Proposal propose(std::string name, spec::Plan plan);

 private:
  /// A block that an item stands for.
  struct Block {
    std::int64_t table = 0;
    Range rows;
    Range cols;
    bool may_be_cut = false;
  };

  struct Placed {
    spec::Plan plan;
    std::vector<Shortage> shortages;
  };

  [[nodiscard]] Range all_rows(std::int64_t table) const;
  [[nodiscard]] Range all_cols(std::int64_t table) const;
  [[nodiscard]] double seconds(const ShardLoad& load) const;
  [[nodiscard]] double replica_s(std::int64_t table);
  [[nodiscard]] ShardLoad gathered(ShardLoad replica) const;
  [[nodiscard]] const HotUse* hot_use_of(std::int64_t table);
  void add_hot_rows(Problem& problem, std::int64_t table, spec::TablePlan& plan);
  [[nodiscard]] spec::PooledAt pooled_at(std::int64_t table, const RowSet& rows) const;
  Item item(const Block& block, std::int64_t column_shards, std::int64_t group);
  std::array<Item, 2> halves(const Item& whole, Range Block::* axis, std::int64_t cut);
  std::optional<std::array<Item, 2>> halve(const Item& whole);
  void add_shards(Problem& problem, std::int64_t table, const spec::Shards& shards);
  void add_replica(Problem& problem, std::int64_t table);
  void add_columns(Problem& problem, std::int64_t table);
  void add_on_hosts(Problem& problem, spec::Plan& plan);
  void hold(Problem& problem, std::int64_t table, spec::TablePlan& plan);
  [[nodiscard]] std::vector<spec::Shard> every_rank(std::int64_t table) const;
  [[nodiscard]] std::vector<spec::Shard> spread(std::int64_t table) const;
  Placed partitioned(const HalvingLimits& limits);
  void add_items(const Halved& halved, Placed& placed) const;
  void finish_table(std::int64_t table, spec::TablePlan& plan) const;

  const spec::Config& config_;
  const topology::Cluster& cluster_;
  const Workload& workload_;
  Estimator estimator_;
  ShardLoads loads_;
  spec::Plan start_;
  std::int64_t capacity_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Range>> hot_rows_;  // by table, rows
  PlanSketch sketch_;          // of the proposal in hand
  std::vector<Block> blocks_;  // of its items, by tag
};

}  // namespace weft::planner
