#include "weft/planner/mesh_search.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/planner/best_scheduled.h"
#include "weft/planner/shard_loads.h"

namespace weft::planner {
namespace {

using spec::MeshLayout;
using spec::SyncForm;

constexpr std::array kForms = {SyncForm::kDense, SyncForm::kTouched, SyncForm::kGradients};
constexpr std::int64_t kMostSteps = 1024;                       // of τ
constexpr std::int64_t kMostTouchable = std::int64_t{1} << 31;  // rows of a shard

double max_over(const PlanCost& cost, double (*of)(const RankCost&)) {
  double most = 0.0;
  for (const RankCost& rank : cost.ranks) {
    most = std::max(most, of(rank));
  }
  return most;
}

LayoutRule rule_of(const PlanCost& cost, const MeshCluster& mesh) {
  LayoutRule rule{.ranks = mesh.ranks(), .sync_every = mesh.averages() ? mesh.sync_every : 1};
  const auto groups = static_cast<double>(mesh.groups);
  for (const RankCost& rank : cost.ranks) {
    rule.replica_bytes += rank.sync_bytes * groups / (2.0 * (groups - 1.0));
    rule.exchanged_bytes += rank.load.ids_bytes + rank.load.vector_bytes + rank.load.gradient_bytes;
  }
  return rule;
}

bool better_mesh(const MeshOption& a, const MeshOption& b) {
  if (a.asked != b.asked) {
    return a.asked;
  }
  return a.fits != b.fits ? a.fits : a.step_s < b.step_s;
}

class MeshSearch {
 public:
  MeshSearch(const spec::Config& config, const topology::Cluster& world, const Workload& workload)
      : config_(config), world_(world), workload_(workload) {}

  SearchResult run() {
    const std::int64_t asked = config_.mesh.groups;
    if (asked > 0) {
      spec::check_groups(asked, topology::ranks(world_));
    }
    if (asked == 1) {
      SearchResult found = search_group(config_, on(1, config_.mesh.layout, {}), workload_);
      put_best_scheduled_first(config_, workload_, found);
      return found;
    }
    for (std::int64_t groups = 1; groups <= topology::ranks(world_); ++groups) {
      if (asked == 0 ? topology::ranks(world_) % groups == 0 : groups == asked) {
        try_groups(groups);
      }
    }
    return finish();
  }

 private:
  struct Sync {
    SyncForm form = SyncForm::kDense;
    std::int64_t every = 1;
  };

  /// Groups and a layout, with a plan for one form of sync; and the options of which it is the
  /// plan.
  struct Tried {
    SearchResult result;
    Range options;
  };

  [[nodiscard]] std::shared_ptr<const MeshCluster> on(std::int64_t groups,
                                                      MeshLayout layout,
                                                      const Sync& sync) const {
    return std::make_shared<const MeshCluster>(mesh_cluster(
        world_, {.groups = groups, .layout = layout, .sync = sync.form, .sync_every = sync.every}));
  }

  /// That of the placement.
  [[nodiscard]] Sync first_sync() const {
    const spec::Mesh& mesh = config_.mesh;
    return {.form = mesh.sync == SyncForm::kAuto ? SyncForm::kTouched : mesh.sync,
            .every = std::max<std::int64_t>(mesh.sync_every, 1)};
  }

  void try_groups(std::int64_t groups) {
    const MeshLayout asked = config_.mesh.layout;
    if (asked != MeshLayout::kAuto) {
      try_layout(groups, asked);
      return;
    }
    try_layout(groups, MeshLayout::kLocalAllToAll);
    if (!layouts_are_alike(world_, groups)) {
      try_layout(groups, MeshLayout::kLocalAllReduce);
    }
  }

  /// Of groups that are left open those are out in which a table's rank or host is not there.
  void try_layout(std::int64_t groups, MeshLayout layout) {
    Tried one;
    try {
      one.result = search_group(config_, on(groups, layout, first_sync()), workload_);
    } catch (const Error& error) {
      if (config_.mesh.groups != 0 || groups == 1 || error.code() != ErrorCode::kConfig) {
        throw;
      }
      return;
    }
    one.options.begin = static_cast<std::int64_t>(options_.size());
    if (groups == 1) {
      add_option(one.result, one.result.mesh);
    }
    for (const SyncForm form : kForms) {
      if (groups > 1) {
        add_form(one.result, form);
      }
    }
    one.options.end = static_cast<std::int64_t>(options_.size());
    tried_.push_back(std::move(one));
  }

  [[nodiscard]] bool is_asked(SyncForm form, const spec::Plan& plan) const {
    const spec::Mesh& mesh = config_.mesh;
    if (mesh.sync != SyncForm::kAuto) {
      return form == mesh.sync;
    }
    if (form == SyncForm::kGradients) {
      return mesh.moment_scale <= 1.0 && mesh.sync_every <= 1 &&
             config_.codecs.sync == CodecFormat::kFp32;
    }
    return form != SyncForm::kTouched || is_touchable(plan);
  }

  void add_form(const SearchResult& result, SyncForm form) {
    const MeshCluster& placed = *result.mesh;
    const std::int64_t every = config_.mesh.sync_every;
    if (form == SyncForm::kGradients || every > 0) {
      const Sync sync{form, form == SyncForm::kGradients ? 1 : every};
      add_option(result, on(placed.groups, placed.layout, sync));
    } else {
      add_rarest(result, form);
    }
    options_.back().asked = is_asked(form, result.best().plan);
  }

  /// With the least τ that keeps syncs short beside the rest of a step.
  void add_rarest(const SearchResult& result, SyncForm form) {
    const MeshCluster& placed = *result.mesh;
    for (std::int64_t every = 1; every <= kMostSteps; every *= 2) {
      if (every > 1 && config_.train.eval_every % every != 0) {
        return;
      }
      if (every > 1) {
        options_.pop_back();
        meshes_.pop_back();
      }
      add_option(result, on(placed.groups, placed.layout, {form, every}));
      const MeshOption& option = options_.back();
      const double syncs = option.sync_s / static_cast<double>(every);
      if (syncs <= kSyncShare * std::max(0.0, option.step_s - syncs)) {
        return;
      }
    }
  }

  /// The best plan of `result` on `mesh`.
  void add_option(const SearchResult& result, std::shared_ptr<const MeshCluster> mesh) {
    const Proposal& best = result.best();
    const Estimator estimator(config_, *mesh, workload_, best.plan.parts);
    options_.push_back(option_of(estimator.cost(best.plan), result, *mesh));
    meshes_.push_back(std::move(mesh));
  }

  [[nodiscard]] MeshOption option_of(const PlanCost& cost,
                                     const SearchResult& result,
                                     const MeshCluster& mesh) const {
    MeshOption option{.groups = mesh.groups,
                      .ranks = mesh.ranks(),
                      .layout = mesh.layout,
                      .both_layouts = layouts_are_alike(world_, mesh.groups),
                      .sync = mesh.sync,
                      .sync_every = mesh.sync_every,
                      .step_s = cost.step_s,
                      .sync_s = cost.sync_s,
                      .rule = {}};
    option.sync_bytes = max_over(cost, [](const RankCost& rank) { return rank.sync_bytes; });
    option.network_bytes = max_over(cost, [](const RankCost& rank) { return rank.sent[2]; });
    option.table_bytes =
        max_over(cost, [](const RankCost& rank) { return static_cast<double>(rank.table_bytes); });
    option.memory_bytes = max_over(cost, [](const RankCost& rank) {
      return static_cast<double>(rank.table_bytes) + rank.buffer_bytes + rank.sample_bytes;
    });
    const double held = max_over(cost, [](const RankCost& rank) {
      return static_cast<double>(rank.table_bytes) + rank.buffer_bytes;
    });
    const auto& shortages = result.best().shortages;
    option.fits = held <= static_cast<double>(result.capacity) &&
                  std::all_of(shortages.begin(), shortages.end(),
                              [](const Shortage& one) { return one.table.empty(); });
    if (mesh.groups > 1) {
      option.rule = rule_of(cost, mesh);
    }
    return option;
  }

  /// Gives the option the figures of the plan that is found for it now.
  void set_option(std::size_t chosen, const SearchResult& found) {
    const bool asked = options_[chosen].asked;
    options_[chosen] = option_of(found.best().cost, found, *meshes_[chosen]);
    options_[chosen].asked = asked;
  }

  SearchResult finish() {
    const auto chosen = static_cast<std::size_t>(
        std::min_element(options_.begin(), options_.end(), better_mesh) - options_.begin());
    const auto is_its = [chosen](const Tried& one) {
      return one.options.begin <= static_cast<std::int64_t>(chosen) &&
             static_cast<std::int64_t>(chosen) < one.options.end;
    };
    SearchResult found = std::move(std::find_if(tried_.begin(), tried_.end(), is_its)->result);
    const MeshCluster& mesh = *meshes_[chosen];
    if (mesh.groups > 1) {
      if (mesh.sync != found.mesh->sync || mesh.sync_every != found.mesh->sync_every) {
        found = search_group(config_, meshes_[chosen], workload_);
        set_option(chosen, found);
      }
      for (Proposal& one : found.proposals) {
        say_choice(one.plan, mesh);
      }
    }
    put_best_scheduled_first(config_, workload_, found);
    if (found.schedule_decided) {
      set_option(chosen, found);
    }
    found.meshes = std::move(options_);
    found.chosen = chosen;
    return found;
  }

  /// What was left open is the plan's.
  void say_choice(spec::Plan& plan, const MeshCluster& mesh) const {
    if (config_.mesh.sync == SyncForm::kAuto) {
      plan.sync = mesh.sync;
    }
    if (config_.mesh.sync_every == 0) {
      plan.sync_every = mesh.sync_every;
    }
  }

  const spec::Config& config_;
  const topology::Cluster& world_;
  const Workload& workload_;
  std::vector<Tried> tried_;
  std::vector<MeshOption> options_;
  std::vector<std::shared_ptr<const MeshCluster>> meshes_;  // of the options
};

}  // namespace

bool is_touchable(const spec::Plan& plan) {
  for (const spec::TablePlan& table : plan.tables) {
    for (const spec::Shard& shard : table.shards) {
      if (table.sharding != spec::Sharding::kDataParallel && shard.rows.size() >= kMostTouchable) {
        return false;
      }
    }
  }
  return true;
}

SearchResult search_meshes(const spec::Config& config,
                           const topology::Cluster& cluster,
                           const Workload& workload) {
  return MeshSearch(config, cluster, workload).run();
}

}  // namespace weft::planner
