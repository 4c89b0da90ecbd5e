#include "weft/planner/search.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_division.h"
#include "weft/planner/cache_size.h"
#include "weft/planner/collective_forms.h"
#include "weft/planner/mesh_search.h"
#include "weft/planner/place.h"
#include "weft/planner/proposer.h"
#include "weft/planner/refine.h"

namespace weft::planner {
namespace {

constexpr std::array<double, 5> kReplicaFactors = {0.0, 0.5, 1.0, 2.0, 4.0};
constexpr std::array<double, 3> kLinkWeights = {1.0, 0.25, 4.0};

class Search {
 public:
  Search(const spec::Config& config, Proposer& proposer, std::int64_t hosts)
      : config_(config), proposer_(proposer), hosts_(hosts) {}

  SearchResult run() {
    const auto is_limited = [](const spec::Table& table) { return !table.allow.empty(); };
    if (std::none_of(config_.tables.begin(), config_.tables.end(), is_limited)) {
      // make_plan() does not ask what is allowed
      add(proposer_.propose("greedy by bytes and lookups", proposer_.start()));
    }
    propose_simple();
    for (Proposal& one : proposals_) {
      one.simple = true;
    }
    if (may_fit()) {
      if (proposer_.open() != proposer_.with(proposer_.open(), TableSketch::kWhole)) {
        propose_balanced();
      }
      refine_best();
    }
    std::stable_sort(proposals_.begin(), proposals_.end(), better);
    return {.proposals = std::move(proposals_), .capacity = proposer_.capacity(), .mesh = nullptr};
  }

 private:
  /// A proposal to refine: how it was made.
  struct Candidate {
    std::size_t proposal = 0;
    PlanSketch sketch;
  };

  /// Proposals are compared with the forms of collectives that suit each: of thousands of ranks a
  /// flat form makes any plan slow whose ranks send to many.
  void add(Proposal proposal) {
    proposal.cost = choose_forms(proposer_.estimator(), config_, proposal.plan, proposer_.loads());
    proposals_.push_back(std::move(proposal));
  }

  /// Every table alike, where that is allowed.
  void propose_simple() {
    const PlanSketch open = proposer_.open();
    const PlanSketch whole = proposer_.with(open, TableSketch::kWhole);
    add_candidate("table_wise", whole);
    if (open == whole) {
      return;
    }
    const PlanSketch spread = proposer_.with(open, TableSketch::kSpread);
    add_candidate("row_wise", spread);
    const PlanSketch at_samples = proposer_.pooled_at_samples(spread);
    if (at_samples != spread) {
      add_candidate("row_wise, pooled at samples", at_samples);
    }
    if (hosts_ > 1) {
      add_candidate("table_row_wise", proposer_.with(open, TableSketch::kHostRows));
      add_candidate("table_column_wise", proposer_.with(open, TableSketch::kHostColumns));
      add_candidate("grid_shard", proposer_.with(open, TableSketch::kGrid));
    }
    PlanSketch rows = open;
    rows.axes = Axes::kRows;
    add(proposer_.propose("cut only what is too large", rows, {.rounds = 0}));
  }

  void add_candidate(const std::string& name, const PlanSketch& sketch) {
    candidates_.push_back({proposals_.size(), sketch});
    add(proposer_.propose(name, sketch));
  }

  /// Whether all ranks together have room for every table once. If not, no cut helps.
  [[nodiscard]] bool may_fit() const {
    double bytes = 0.0;
    for (const spec::Table& table : config_.tables) {
      bytes += static_cast<double>(
          layout::resident_bytes(table, table.num_embeddings, table.embedding_dim));
    }
    return bytes <=
           static_cast<double>(proposer_.capacity()) * static_cast<double>(proposer_.ranks());
  }

  /// Says whether no proposal holds the tables as `plan` does.
  [[nodiscard]] bool is_new(const spec::Plan& plan) const {
    return std::none_of(proposals_.begin(), proposals_.end(),
                        [&](const Proposal& one) { return one.plan.tables == plan.tables; });
  }

  /// Fewer replicas than more of the factors ask for are the same proposal.
  void propose_balanced() {
    std::vector<TableSketch> before;
    for (const double factor : kReplicaFactors) {
      PlanSketch sketch = proposer_.replicated(proposer_.open(), factor);
      if (sketch.tables == before) {
        continue;
      }
      before = sketch.tables;
      for (const Axes axes : {Axes::kBoth, Axes::kRows}) {
        for (const double weight : kLinkWeights) {
          sketch.link_weight = weight;
          sketch.axes = axes;
          const std::string name =
              fmt::format("balanced{}{}{}", axes == Axes::kRows ? ", rows" : "",
                          factor == 0.0 ? "" : fmt::format(", f {:.1f}", factor),
                          weight == 1.0 ? "" : fmt::format(", links {}", weight));
          add_if_new(name, sketch);
        }
      }
    }
    const Candidate best = best_candidate();
    add_if_new(proposals_[best.proposal].name + ", pooled at samples",
               proposer_.pooled_at_samples(best.sketch));
  }

  void add_if_new(const std::string& name, const PlanSketch& sketch) {
    Proposal proposal = proposer_.propose(name, sketch);
    if (is_new(proposal.plan)) {
      candidates_.push_back({proposals_.size(), sketch});
      add(std::move(proposal));
    }
  }

  [[nodiscard]] const Candidate& best_candidate() const {
    return *std::min_element(candidates_.begin(), candidates_.end(),
                             [this](const Candidate& a, const Candidate& b) {
                               return better(proposals_[a.proposal], proposals_[b.proposal]);
                             });
  }

  void refine_best() {
    const Candidate& best = best_candidate();
    Proposal refined = proposals_[best.proposal];
    proposer_.set_forms(refined.plan.collectives);
    if (refine(proposer_, refined, best.sketch)) {
      refined.name = "refined";
      refined.simple = false;
      add(std::move(refined));
    }
  }

  const spec::Config& config_;
  Proposer& proposer_;
  std::int64_t hosts_;
  std::vector<Proposal> proposals_;
  std::vector<Candidate> candidates_;
};

/// The schedule of the best plan, with which its memory is predicted again, and the caches of its
/// shards, which hold more rows where batches are begun ahead.
void choose_schedule(const spec::Config& config, const Workload& workload, SearchResult& found) {
  Proposal& best = found.proposals.front();
  const Estimator estimator(config, *found.mesh, workload, best.plan.parts);
  const bool divides = divides_by_curves(config, workload, best.plan);
  if (divides) {
    divide_caches(config, workload, estimator.hot_uses(), best.plan);
    best.cost = estimator.cost(best.plan);
  }
  if (found.pipelines.empty()) {  // else proposals were compared by schedules
    found.pipelines = pipeline_options(estimator, best.plan, best.cost);
  }
  found.pipeline = choose_pipeline(config.pipeline, found.pipelines);
  if (config.pipeline.schedule == spec::PipelineSchedule::kAuto) {
    best.plan.pipeline = found.pipelines[found.pipeline].pipeline;
    best.plan.pipeline.cluster_parts = spec::Pipeline{}.cluster_parts;  // the configuration's
    if (divides) {
      divide_caches(config, workload, estimator.hot_uses(), best.plan);
    }
    best.cost = estimator.cost(best.plan);
  }
}

/// The place of the schedule that the best plan gets, once the size of its caches is chosen: the
/// best one that has as many batches in flight as the one for which it was chosen, `before`.
std::size_t choose_again(const spec::Pipeline& asked,
                         const std::vector<PipelineOption>& options,
                         std::size_t before) {
  const auto batches = [&](std::size_t i) { return batches_in_flight(options[i].pipeline); };
  const std::size_t now = choose_pipeline(asked, options);
  return batches(now) == batches(before) ? now : before;
}

/// The same where the size of caches is left open: the schedule is chosen with the smallest ones,
/// the size for it, and then which of the schedules with as many batches in flight is best.
void choose_schedule_and_cache_size(const spec::Config& config,
                                    const Workload& workload,
                                    SearchResult& found) {
  Proposal& best = found.proposals.front();
  const Estimator estimator(config, *found.mesh, workload, best.plan.parts);
  const auto set_schedule = [&] {
    if (config.pipeline.schedule == spec::PipelineSchedule::kAuto) {
      best.plan.pipeline = found.pipelines[found.pipeline].pipeline;
      best.plan.pipeline.cluster_parts = spec::Pipeline{}.cluster_parts;  // the configuration's
    }
  };
  found.pipelines = pipeline_options(estimator, best.plan, best.cost);
  found.pipeline = choose_pipeline(config.pipeline, found.pipelines);
  const spec::Pipeline& first = found.pipelines[found.pipeline].pipeline;
  const std::vector<double> bytes = rank_bytes(estimator, best.plan, best.cost, first);
  set_schedule();
  found.cache_size = choose_cache_size(estimator, bytes, first, best.plan);
  if (found.cache_size->missing > 0 && best.fits()) {
    best.shortages.push_back(
        {.table = {}, .rank = found.cache_size->rank, .missing = found.cache_size->missing});
  }
  best.plan.pipeline = {};
  best.cost = estimator.cost(best.plan);
  found.pipelines = pipeline_options(estimator, best.plan, best.cost);
  found.pipeline = choose_again(config.pipeline, found.pipelines, found.pipeline);
  set_schedule();
  best.cost = estimator.cost(best.plan);
}

}  // namespace

SearchResult search_group(const spec::Config& config,
                          std::shared_ptr<const MeshCluster> mesh,
                          const Workload& workload) {
  spec::Config resolved = config;
  resolved.mesh.groups = mesh->groups;
  if (mesh->groups > 1) {
    resolved.mesh.layout = mesh->layout;
  }
  const RankLayout target{.ranks = topology::ranks(mesh->world),
                          .hosts = topology::rank_hosts(mesh->world)};
  const spec::Plan start = make_plan(resolved, target, workload.hot_rows);
  spec::check_cluster_parts(config.pipeline, start.parts, target.ranks);
  Proposer proposer(config, *mesh, workload, start);
  SearchResult result = Search(config, proposer, topology::hosts(mesh->group)).run();
  result.mesh = std::move(mesh);
  return result;
}

SearchResult search(const spec::Config& config,
                    const topology::Cluster& cluster,
                    const Workload& workload) {
  topology::check(cluster);
  for (const spec::Table& table : config.tables) {
    if (table.groups > 0 && table.groups != config.mesh.groups) {
      fail(ErrorCode::kConfig,
           "tables.{}.groups is {}: a search with a cluster knows one number of groups for all "
           "tables; set 0, or plan without --cluster",
           table.name, table.groups);
    }
  }
  const bool is_open = leaves_cache_size_open(config);
  if (is_open && cluster.disk.read_blocks.value <= 0.0) {
    fail(ErrorCode::kConfig,
         "tiers.cache_bytes is 0, so the size of caches is chosen by the rate of the disks, and "
         "cluster '{}' has no disk.read_blocks; measure it with 'weft topology calibrate --disk "
         "FOLDER', or set tiers.cache_bytes",
         cluster.name);
  }
  SearchResult found = search_meshes(config, cluster, workload);
  if (is_open) {
    choose_schedule_and_cache_size(config, workload, found);
  } else {
    choose_schedule(config, workload, found);
  }
  return found;
}

}  // namespace weft::planner
