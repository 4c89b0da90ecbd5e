#include "weft/train/plan_choice.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/base/work_progress.h"
#include "weft/checkpoint/agree.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_division.h"
#include "weft/planner/search.h"
#include "weft/spec/yaml.h"
#include "weft/topology/yaml.h"

namespace weft::train {
namespace {

std::string read_plan_file(const std::string& path) {
  constexpr std::streamsize kLimit = std::streamsize{16} << 20;
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(kLimit), '\0');
  in.read(text.data(), kLimit);
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kConfig, "cannot read plan {}; it must be a plan's file, as --out writes it",
         path);
  }
  if (in.gcount() == kLimit) {
    fail(ErrorCode::kConfig, "plan {} is longer than 16 MiB; it must be a plan's file", path);
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

std::string read_stats_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kConfig,
         "cannot read statistics {}; they must be what weft data stats --format json prints", path);
  }
  return text;
}

/// A plan for this configuration; messages name the file.
spec::Plan load_plan(const std::string& path, const spec::Config& config) {
  spec::Plan plan = spec::plan_from_yaml(read_plan_file(path), path);
  try {
    planner::check_plan(plan, config);
    planner::check_pins(plan, config);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path, error.what());
  }
  return plan;
}

/// Whether two plans are alike in what decides bits: schedules are no part of it.
bool are_alike(const spec::Plan& a, const spec::Plan& b) {
  return spec::plan_hash(a) == spec::plan_hash(b);
}

/// Says once a second that planning moves, while this lives: planning for thousands of ranks takes
/// minutes, reads nothing, and so waits for nothing.
class Beat {
 public:
  explicit Beat(WorkProgress& progress)
      : thread_([&progress, this](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!stop.stop_requested()) {
            progress.move();
            ended_.wait_for(lock, stop, std::chrono::seconds(1), [] { return false; });
          }
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;  // ends first
};

/// The choice of rank 0, for all.
class Choice {
 public:
  Choice(const PlanRequest& request,
         const comm::Communicator& world,
         const spec::Config& config,
         WorkProgress& progress)
      : request_(request), world_(world), config_(config), progress_(progress) {}

  spec::Plan make();

 private:
  spec::Plan given_plan();
  [[nodiscard]] spec::Plan plan_for_cluster() const;
  [[nodiscard]] spec::Plan saved_plan() const;
  [[nodiscard]] planner::Workload workload() const;
  void divide_caches(spec::Plan& plan) const;
  void require_cache_size(const spec::Plan& plan) const;
  void say_if_for_other_hosts(const spec::Plan& plan, const std::string& what) const;
  void say_if_not_the_saved(const spec::Plan& plan, const std::string& what) const;
  void say_what_is_not_asked() const;

  const PlanRequest& request_;
  const comm::Communicator& world_;
  spec::Config config_;
  WorkProgress& progress_;
};

void Choice::say_if_for_other_hosts(const spec::Plan& plan, const std::string& what) const {
  const planner::RankLayout group = planner::first_positions(
      {.groups = plan.groups, .layout = plan.layout}, rank_layout(world_), plan.most_ranks());
  const auto planned = planner::host_numbers({.ranks = plan.most_ranks(), .hosts = plan.hosts});
  if (planned != planner::host_numbers(group)) {
    log_info("{} is for other hosts than this job's: what it keeps on one host may travel", what);
  }
}

void Choice::say_if_not_the_saved(const spec::Plan& plan, const std::string& what) const {
  if (request_.saved != nullptr && !are_alike(plan, request_.saved->plan)) {
    log_info(
        "resume: {} is another plan than the checkpoint's; where bags are split between cuts of "
        "rows, bits are those of another order of sums",
        what);
  }
}

/// Without a cluster nothing is chosen.
void Choice::say_what_is_not_asked() const {
  std::vector<std::string> tables;
  for (const spec::Table& table : config_.tables) {
    const auto& allow = table.allow;
    if (!allow.empty() && planner::may_be_whole(table) &&
        std::find(allow.begin(), allow.end(), "table_wise") == allow.end()) {
      tables.push_back(table.name);
    }
  }
  if (!tables.empty()) {
    log_info(
        "allow is for a plan for a cluster: without --cluster these tables are whole on one rank: "
        "{}; set their sharding, or give --cluster or --plan",
        fmt::join(tables, ", "));
  }
}

planner::Workload Choice::workload() const {
  const std::string& file = request_.stats_file;
  return file.empty() ? planner::make_workload(config_)
                      : planner::make_workload(config_, read_stats_file(file), file);
}

/// Divides the caches of a plan that says nothing of them, where they are to be divided by curves.
void Choice::divide_caches(spec::Plan& plan) const {
  const auto shares = [](const spec::Table& table) { return layout::shares_cache(table); };
  if (std::none_of(config_.tables.begin(), config_.tables.end(), shares)) {
    return;
  }
  require_cache_size(plan);
  const planner::Workload uses = workload();
  if (planner::divides_by_curves(config_, uses, plan)) {
    planner::divide_caches(config_, uses, planner::HotUses(config_, uses), plan);
  }
  log_info("caches: tiers.cache_bytes divided {}",
           spec::has_caches(plan) ? "by how often rows are asked for" : "by the bytes of shards");
}

/// A plan for a cluster chooses the size of caches; another may have none.
void Choice::require_cache_size(const spec::Plan& plan) const {
  const auto shares = std::find_if(config_.tables.begin(), config_.tables.end(),
                                   [](const auto& table) { return layout::shares_cache(table); });
  if (shares != config_.tables.end() && spec::shared_cache_bytes(config_.tiers, plan) == 0) {
    fail(ErrorCode::kConfig,
         "the cache of table '{}' has no size: tiers.cache_bytes is 0, which leaves it to a plan "
         "for a cluster, and this plan says none; set it, give --cluster, or give a plan of weft "
         "plan with --plan",
         shares->name);
  }
}

spec::Plan Choice::plan_for_cluster() const {
  const topology::Cluster cluster =
      planner::resized(topology::load_cluster(request_.cluster_file), world_.size());
  const planner::Workload uses = workload();
  const Beat beat(progress_);
  const planner::SearchResult found = planner::search(config_, cluster, uses);
  if (!found.best().fits()) {
    planner::refuse(found, config_, cluster, uses);
  }
  log_info("planned for {}: {}, {:.3f} ms a step as predicted", request_.cluster_file,
           found.best().name, to_ms(found.step_s()));
  log_info("schedule: {}", describe(found.pipelines[found.pipeline].pipeline));
  if (found.cache_size) {
    log_info("caches: {} on each rank at most, chosen; {}",
             format_bytes(static_cast<std::uint64_t>(found.cache_size->bytes)),
             describe(found.cache_size->bound));
  }
  if (found.best().plan.groups > 1) {
    const spec::Plan& plan = found.best().plan;
    const spec::Mesh mesh = spec::mesh_of(config_.mesh, plan);
    log_info("replica groups: {} of {}, {}, sync {} every {}", plan.groups,
             counted(plan.ranks, "rank"), to_string(plan.layout), to_string(mesh.sync),
             counted(mesh.sync_every, "step"));
  }
  say_if_for_other_hosts(found.best().plan, "cluster " + request_.cluster_file);
  say_if_not_the_saved(found.best().plan, "that for cluster " + request_.cluster_file);
  return found.best().plan;
}

/// That of --plan.
spec::Plan Choice::given_plan() {
  spec::Plan plan = load_plan(request_.plan_file, config_);
  if (plan.world() != world_.size()) {
    fail(ErrorCode::kConfig, "plan {} is for {} and this job has {}; make a new plan",
         request_.plan_file, counted(plan.world(), "rank"), world_.size());
  }
  if (config_.numerics.parts != 0 && config_.numerics.parts != plan.parts) {
    fail(ErrorCode::kConfig,
         "plan {} has {} parts and {} {}; parts decide the order of sums: make a new plan, or "
         "leave --plan out",
         request_.plan_file, plan.parts,
         request_.saved != nullptr ? "the checkpoint" : "numerics.parts of the configuration is",
         config_.numerics.parts);
  }
  config_.numerics.parts = plan.parts;
  require_cache_size(plan);
  if (config_.tiers.division == spec::CacheDivision::kCurves && !spec::has_caches(plan)) {
    divide_caches(plan);
  }
  say_if_for_other_hosts(plan, "plan " + request_.plan_file);
  say_if_not_the_saved(plan, "plan " + request_.plan_file);
  return plan;
}

/// The checkpoint's. Its caches are those of a job that may have had other memory for them, and
/// decide no bit.
spec::Plan Choice::saved_plan() const {
  spec::Plan plan = request_.saved->plan;
  require_cache_size(plan);
  try {
    planner::check_caches(plan, config_);
  } catch (const Error& error) {
    log_info("resume: the checkpoint's caches do not fit ({}); they are divided anew",
             error.what());
    spec::drop_caches(plan);
    divide_caches(plan);
    return plan;
  }
  if (!spec::has_caches(plan)) {  // of a job whose rows were all in memory, or by bytes
    divide_caches(plan);
  }
  return plan;
}

/// What is asked for; else the checkpoint's, where it fits; else a new one.
spec::Plan Choice::make() {
  if (!request_.plan_file.empty()) {
    return given_plan();
  }
  if (!request_.cluster_file.empty()) {
    return plan_for_cluster();
  }
  const planner::RankLayout layout = rank_layout(world_);
  const std::string why = request_.saved != nullptr
                              ? why_another_plan(*request_.saved, config_, layout)
                              : std::string();
  if (request_.saved != nullptr && why.empty()) {
    return saved_plan();
  }
  const std::string& file = request_.stats_file;
  spec::Plan made = planner::make_plan(
      config_, layout,
      file.empty() ? std::vector<planner::HotRows>{}
                   : planner::measured_hot_rows(config_, read_stats_file(file), file));
  divide_caches(made);
  say_what_is_not_asked();
  if (request_.saved != nullptr && !are_alike(made, request_.saved->plan)) {
    log_info("resume: {}; made a new plan for {}, with the same {}", why,
             counted(made.world(), "rank"), counted(made.parts, "part"));
  }
  return made;
}

}  // namespace

planner::RankLayout rank_layout(const comm::Communicator& world) {
  planner::RankLayout layout{.ranks = world.size()};
  for (int r = 0; r < world.size(); ++r) {
    layout.hosts.push_back(world.host(r));
  }
  return layout;
}

spec::Plan choose_plan(const PlanRequest& request,
                       comm::Communicator& world,
                       Context& ctx,
                       spec::Config& config) {
  // As text, which a plan has anyway: regular cuts are rules in it, so it is short.
  std::string text;
  checkpoint::agree(world, ctx, [&](WorkProgress& progress) {
    if (world.rank() == 0) {
      const std::string& file =
          request.plan_file.empty() ? request.cluster_file : request.plan_file;
      progress.begin({.activity = "planning", .place = file.empty() ? file : "for '" + file + "'"});
      text = spec::plan_to_yaml(Choice(request, world, config, progress).make());
    }
  });
  world.share(ctx, text, 0);
  spec::Plan plan = spec::plan_from_yaml(text, "the plan of rank 0");
  if (!request.plan_file.empty()) {
    config.numerics.parts = plan.parts;
  }
  return plan;
}

}  // namespace weft::train
