// Jobs on a set of tables (weft/planner/sample_tables.h), for the commands that take --tables NAME
// in place of CONFIG.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include "cli/commands.h"
#include "weft/spec/config.h"

namespace weft::cli {

/// `name` must outlive the parsing.
void add_tables_argument(CLI::App& command, std::string& name);

/// The configuration, or the job on the set `tables`, with the overrides of --set. Throws
/// Error(kUsage) where both or neither are given, which starts with `command` and ends with `more`.
spec::Config load_job(const ConfigArguments& arguments,
                      const std::string& tables,
                      const std::string& command,
                      const std::string& more = {});

}  // namespace weft::cli
