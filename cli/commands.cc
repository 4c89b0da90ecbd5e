#include "cli/commands.h"

namespace weft::cli {

CLI::Option* add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  command
      .add_option("--set", arguments.overrides,
                  "Override one value, such as train.steps=10 or tables.C1.num_embeddings=1000; "
                  "may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  return command.add_option("config", arguments.path, "The configuration, a YAML file")
      ->type_name("CONFIG");
}

CLI::Validator not_empty() {
  return {[](std::string& value) { return std::string(value.empty() ? "is empty" : ""); }, ""};
}

}  // namespace weft::cli
