// weft topology: shows a cluster's file, or measures the machine and writes one.
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <CLI/App.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/option_file.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/topology/show.h"
#include "weft/topology/yaml.h"
#include "weft/train/calibrate.h"

namespace weft::cli {
namespace {

struct TopologyArguments {
  std::string file;
  bool yaml = false;
  int ranks = 0;
  int threads = 0;
  std::string output;
  std::string disk;
  std::string name = "measured";
  bool quick = false;
};

int show(const TopologyArguments& arguments) {
  const topology::Cluster cluster = topology::load_cluster(arguments.file);
  fmt::print("{}", arguments.yaml ? topology::to_yaml(cluster) : topology::to_text(cluster));
  return kDone;
}

/// Finds out before the measurement whether the file can be written; changes nothing.
void check_output(const std::string& path) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::app)) {
    fail(ErrorCode::kIo, "cannot write --output {}; check the folder and its permissions", path);
  }
  if (!existed) {
    std::filesystem::remove(path, ignored);
  }
}

int calibrate(const TopologyArguments& arguments) {
  const LaunchOptions launching{.ranks = arguments.ranks};
  const train::CalibrateOptions options{
      .name = arguments.name,
      .threads = arguments.threads > 0 ? arguments.threads : threads_per_rank(launching),
      .effort = arguments.quick ? train::Effort::kQuick : train::Effort::kFull,
      .folder = arguments.disk};
  std::optional<topology::Cluster> measured;  // on rank 0
  bool stopped = false;                       // there too
  launch(launching, [&](comm::Communicator& world, const std::atomic<bool>& stop) {
    if (world.rank() == 0 && !arguments.output.empty()) {
      check_output(arguments.output);
    }
    std::optional<topology::Cluster> cluster = train::calibrate_unless(stop, world, options);
    if (world.rank() == 0) {
      stopped = !cluster;
      measured = std::move(cluster);
    }
  });
  if (stopped) {
    log_warning("stopped before the end: nothing was written");
    return kStopped;
  }
  if (!measured) {
    return kDone;  // another process is rank 0
  }
  if (arguments.output.empty()) {
    fmt::print("{}", topology::to_yaml(*measured));
  } else {
    write_option_file("--output", arguments.output, topology::to_yaml(*measured));
    fmt::print("{}", topology::to_text(*measured));
  }
  return kDone;
}

}  // namespace

void add_topology_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("topology", "Show a cluster's file, or measure one");
  command->require_subcommand(1);
  auto arguments = std::make_shared<TopologyArguments>();
  CLI::App* one = command->add_subcommand("show", "What a file says, and what is expected of it");
  one->add_option("FILE", arguments->file, "A cluster (docs/topology.md)")->required();
  one->add_flag("--yaml", arguments->yaml, "Every value as YAML instead of tables");
  CLI::App* two =
      command->add_subcommand("calibrate", "Measure this machine, or the MPI job it runs in");
  two->add_option("--ranks", arguments->ranks,
                  "Ranks, as threads of this process (under mpirun: leave out)")
      ->check(CLI::Range(1, 4096));
  two->add_option("--threads", arguments->threads, "Threads per rank; default: cores / ranks")
      ->check(CLI::Range(1, 1024));
  two->add_option("--output", arguments->output, "Write the cluster's YAML to FILE, and show it")
      ->check(not_empty());
  two->add_option("--disk", arguments->disk,
                  "A folder on the disk to measure, as tiers.directories; default: that for "
                  "temporary files")
      ->check(not_empty());
  two->add_option("--name", arguments->name, "Of the cluster")->check(not_empty());
  two->add_flag("--quick", arguments->quick,
                "In a second: for tests of the command, not for plans");
  one->callback([arguments, &chosen] { chosen = [arguments] { return show(*arguments); }; });
  two->callback([arguments, &chosen] { chosen = [arguments] { return calibrate(*arguments); }; });
}

}  // namespace weft::cli
