// weft config: what a configuration comes to, and what could be said in it.
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/table_sets.h"
#include "weft/spec/changed.h"
#include "weft/spec/describe.h"
#include "weft/spec/yaml.h"

namespace weft::cli {
namespace {

struct ConfigOptions {
  ConfigArguments config;
  std::string tables;
  bool markdown = false;
  bool changed = false;
};

int run_config(const ConfigOptions& options) {
  if (options.markdown) {
    fmt::print("{}", spec::parameters_markdown());
    return kDone;
  }
  const spec::Config config =
      load_job(options.config, options.tables, "weft config", "; or --markdown for all parameters");
  fmt::print("{}",
             options.changed ? spec::to_changed_yaml(config) : spec::to_commented_yaml(config));
  return kDone;
}

}  // namespace

void add_config_command(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* command = app.add_subcommand(
      "config", "Print every value of a configuration with its default, range, unit and meaning");
  add_config_arguments(*command, options->config);
  add_tables_argument(*command, options->tables);
  command->add_flag("--markdown", options->markdown,
                    "Print the reference of all parameters (docs/parameters.md) instead");
  command->add_flag(
      "--changed", options->changed,
      "Print only what differs from the defaults; it reads as the same configuration");
  command->callback([options, &chosen] { chosen = [options] { return run_config(*options); }; });
}

}  // namespace weft::cli
