/// How a subcommand joins the program: a file NAME_command.cc in this folder that defines
///
///   void weft::cli::add_NAME_command(CLI::App& app, Action& chosen);
///
/// It adds a subcommand to `app` whose callback stores in `chosen` what to run. CMake lists the
/// files and writes the call, so nothing else changes. The action runs after all arguments are
/// parsed and returns the exit code; it reports failure by throwing weft::Error.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/App.hpp>

namespace weft::cli {

using Action = std::function<int()>;

/// CONFIG and --set, which most commands take.
struct ConfigArguments {
  std::string path;
  std::vector<std::string> overrides;
};

/// `arguments` must outlive the parsing. Returns the positional CONFIG.
CLI::Option* add_config_arguments(CLI::App& command, ConfigArguments& arguments);

/// Refuses "", which is what a shell makes of a variable that is not set.
CLI::Validator not_empty();

/// All commands of this folder, by name.
void add_commands(CLI::App& app, Action& chosen);

}  // namespace weft::cli
