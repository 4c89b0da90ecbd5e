// weft eval: evaluates a checkpoint, or the initial model, on the evaluation data.
#include <memory>

#include "cli/job.h"

namespace weft::cli {

void add_eval_command(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<JobArguments>();
  CLI::App* command = app.add_subcommand("eval", "Evaluate a checkpoint on the evaluation data");
  add_job_arguments(*command, *arguments);
  command->callback([arguments, &chosen] {
    chosen = [arguments] { return run_job(*arguments, train::run_eval); };
  });
}

}  // namespace weft::cli
