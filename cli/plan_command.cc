// weft plan: who holds what on a cluster, what that is predicted to take, and why.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/option_file.h"
#include "cli/output.h"
#include "cli/page_origin.h"
#include "cli/table_sets.h"
#include "weft/base/error.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/scaling.h"
#include "weft/planner/search.h"
#include "weft/spec/changed.h"
#include "weft/spec/yaml.h"
#include "weft/topology/yaml.h"

namespace weft::cli {
namespace {

struct PlanArguments {
  ConfigArguments config;
  std::string tables;
  std::string cluster;
  std::string stats;
  std::string output;
  std::string format = "text";
  int ranks = 0;
  std::vector<std::int64_t> scaling;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kIo, "cannot read {}", path);
  }
  return text;
}

PageOrigin origin_of(const PlanArguments& arguments, const planner::PlanReport& report) {
  std::string what =
      arguments.tables.empty() ? arguments.config.path : "the tables " + arguments.tables;
  for (const std::string& value : arguments.config.overrides) {
    what += " with " + value;
  }
  what += " for cluster " + arguments.cluster;
  what += arguments.stats.empty() ? "" : " by the statistics " + arguments.stats;
  return page_origin(what, spec::to_changed_yaml(report.config));
}

[[noreturn]] void ask_for_cluster() {
  fail(ErrorCode::kUsage,
       "weft plan: say with --cluster what the ranks are: a file that 'weft topology calibrate "
       "--output FILE' writes of this machine or of an MPI job, or one that comes with Weft: {}",
       WEFT_CLUSTERS);
}

std::string report_text(const PlanArguments& arguments, const planner::PlanReport& report) {
  if (arguments.format == "yaml") {
    return spec::plan_to_yaml(report.result.best().plan);
  }
  if (arguments.format == "json") {
    return to_json(report);
  }
  return arguments.format == "html" ? to_html(report, origin_of(arguments, report))
                                    : to_text(report);
}

int write_report(const PlanArguments& arguments, const std::string& text) {
  if (arguments.output.empty()) {
    fmt::print("{}", text);
  } else {
    write_option_file("--output", arguments.output, text);
  }
  return kDone;
}

std::string scaling_text(const PlanArguments& arguments,
                         const spec::Config& config,
                         const topology::Cluster& cluster,
                         const planner::Workload& workload) {
  const planner::Scaling scaling =
      planner::predict_scaling(config, cluster, workload, arguments.scaling);
  return arguments.format == "json" ? to_json(scaling) : to_text(scaling);
}

int run_plan(const PlanArguments& arguments) {
  const spec::Config config = load_job(arguments.config, arguments.tables, "weft plan");
  if (arguments.cluster.empty()) {
    ask_for_cluster();
  }
  if (!arguments.scaling.empty() && arguments.format != "text" && arguments.format != "json") {
    fail(ErrorCode::kUsage,
         "weft plan: --scaling makes a plan for each number of ranks; --format {} is of one plan. "
         "Ask for text or json, or for one number with --ranks",
         arguments.format);
  }
  topology::Cluster cluster = topology::load_cluster(arguments.cluster);
  if (arguments.ranks > 0) {
    cluster = planner::resized(cluster, arguments.ranks);
  }
  const planner::Workload workload =
      arguments.stats.empty()
          ? planner::make_workload(config)
          : planner::make_workload(config, read_file(arguments.stats), arguments.stats);
  if (!arguments.scaling.empty()) {
    return write_report(arguments, scaling_text(arguments, config, cluster, workload));
  }
  const planner::SearchResult result = planner::search(config, cluster, workload);
  if (!result.best().fits()) {
    planner::refuse(result, config, cluster, workload);
  }
  const planner::PlanReport report{config, cluster, workload, result};
  return write_report(arguments, report_text(arguments, report));
}

}  // namespace

void add_plan_command(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "Find out who should hold which table on a cluster, what a step then takes, and why");
  add_config_arguments(*command, arguments->config);
  add_tables_argument(*command, arguments->tables);
  command
      ->add_option("--cluster", arguments->cluster,
                   "What the ranks are (docs/topology.md); weft topology calibrate writes one")
      ->check(not_empty());
  CLI::Option* ranks =
      command->add_option("--ranks", arguments->ranks, "Instead of the cluster's number of ranks")
          ->check(CLI::Range(1, 65536));
  command
      ->add_option("--scaling", arguments->scaling,
                   "Instead of a plan what steps are predicted to take on each of these numbers of "
                   "ranks: with the job's batch, and with as many samples a rank as on the first")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 65536))
      ->excludes(ranks);
  command
      ->add_option("--stats", arguments->stats,
                   "What weft data stats --format json says of the data")
      ->check(not_empty());
  command
      ->add_option("--format", arguments->format,
                   "text, yaml (a plan for weft train --plan), json or html")
      ->check(CLI::IsMember({"text", "yaml", "json", "html"}));
  command->add_option("--output", arguments->output, "Write it to FILE")->check(not_empty());
  command->callback(
      [arguments, &chosen] { chosen = [arguments] { return run_plan(*arguments); }; });
}

}  // namespace weft::cli
