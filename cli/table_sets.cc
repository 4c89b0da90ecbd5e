#include "cli/table_sets.h"

#include "weft/base/error.h"
#include "weft/planner/sample_tables.h"
#include "weft/spec/yaml.h"

namespace weft::cli {

void add_tables_argument(CLI::App& command, std::string& name) {
  command
      .add_option("--tables", name,
                  "Instead of a configuration, a job on a set of tables: production[:SEED], "
                  "adversarial[:SEED], criteo_kaggle or mlperf_dcnv2 (docs/planner.md)")
      ->check(not_empty());
}

spec::Config load_job(const ConfigArguments& arguments,
                      const std::string& tables,
                      const std::string& command,
                      const std::string& more) {
  if (arguments.path.empty() == tables.empty()) {
    fail(ErrorCode::kUsage, "{}: name a configuration, or a set with --tables{}", command, more);
  }
  if (tables.empty()) {
    return spec::load_config(arguments.path, arguments.overrides);
  }
  const spec::Config config = planner::to_config(planner::table_set(tables));
  return arguments.overrides.empty()
             ? config
             : spec::parse_config(spec::to_yaml(config), "--tables " + tables, arguments.overrides);
}

}  // namespace weft::cli
