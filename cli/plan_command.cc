// weft plan: who holds what on a cluster, what that is predicted to take, and why.
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/option_file.h"
#include "cli/output.h"
#include "cli/page_origin.h"
#include "weft/base/error.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/sample_tables.h"
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

int run_plan(const PlanArguments& arguments) {
  if (arguments.config.path.empty() == arguments.tables.empty()) {
    fail(ErrorCode::kUsage, "weft plan: name a configuration, or a set with --tables");
  }
  if (arguments.cluster.empty()) {
    ask_for_cluster();
  }
  const spec::Config config =
      arguments.tables.empty()
          ? spec::load_config(arguments.config.path, arguments.config.overrides)
          : planner::to_config(planner::table_set(arguments.tables));
  topology::Cluster cluster = topology::load_cluster(arguments.cluster);
  if (arguments.ranks > 0) {
    cluster = planner::resized(cluster, arguments.ranks);
  }
  const planner::Workload workload =
      arguments.stats.empty()
          ? planner::make_workload(config)
          : planner::make_workload(config, read_file(arguments.stats), arguments.stats);
  const planner::SearchResult result = planner::search(config, cluster, workload);
  if (!result.best().fits()) {
    planner::refuse(result, config, cluster, workload);
  }
  const planner::PlanReport report{config, cluster, workload, result};
  const std::string text = report_text(arguments, report);
  if (arguments.output.empty()) {
    fmt::print("{}", text);
    return kDone;
  }
  write_option_file("--output", arguments.output, text);
  return kDone;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan", "Find out who should hold which table on a cluster, what a step then takes, and why");
  add_config_arguments(*command, arguments->config);
  command->add_option("--tables", arguments->tables,
                      "Instead of a configuration: production[:SEED], adversarial[:SEED], "
                      "criteo_kaggle or mlperf_dcnv2 (docs/planner.md)");
  command
      ->add_option("--cluster", arguments->cluster,
                   "What the ranks are (docs/topology.md); weft topology calibrate writes one")
      ->check(not_empty());
  command->add_option("--ranks", arguments->ranks, "Instead of the cluster's number of ranks")
      ->check(CLI::Range(1, 65536));
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
