// weft train: trains the model of a configuration.
#include <memory>

#include "cli/job.h"

namespace weft::cli {

void add_train_command(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<JobArguments>();
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration");
  add_job_arguments(*command, *arguments);
  command->add_option("--checkpoint", arguments->checkpoint, "Folder for checkpoints")
      ->check(not_empty());
  command
      ->add_option("--checkpoint-every", arguments->checkpoint_every,
                   "Steps between checkpoints; default: one at the end")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--checkpoint-keep", arguments->checkpoint_keep,
                   "How many of the newest of the job's line stay; default: all")
      ->check(CLI::NonNegativeNumber);
  command->add_flag(
      "--checkpoint-background", arguments->checkpoint_background,
      "Write checkpoints between the steps of --checkpoint-every while steps go on; not "
      "where replica groups are averaged");
  command
      ->add_option("--checkpoint-max-age", arguments->checkpoint_max_age,
                   "Steps that the newest checkpoint may be back when saving fails before the job "
                   "ends; default: 3 times --checkpoint-every")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--resume-data", arguments->resume_data,
                   "What to do where the data are not the checkpoint's: refuse them (same, the "
                   "default), read them from their start with the weights kept (from-start), or go "
                   "on in them where it stopped (insist)")
      ->check(CLI::IsMember({"same", "from-start", "insist"}));
  command
      ->add_option("--trace", arguments->trace,
                   "Folder for a trace of some steps: one file per rank, for Perfetto")
      ->check(not_empty());
  command
      ->add_option("--trace-steps", arguments->trace_steps,
                   "FIRST:LAST, which steps; default: the 11th to the 20th of this run")
      ->check(not_empty());
  command
      ->add_option("--tensorboard", arguments->tensorboard,
                   "Folder for event files: loss, NE, AUC, samples/s, where the time went")
      ->check(not_empty());
  CLI::Option* const port = command->add_option(
      "--metrics-port", arguments->metrics_port,
      "Serve figures to Prometheus at this port, path /metrics; 0: any free one");
  port->check(CLI::Range(0, 65535));
  command
      ->add_option("--metrics-address", arguments->metrics_address,
                   "Of this machine, where --metrics-port listens; default: 127.0.0.1, which only "
                   "this machine reaches; 0.0.0.0: everyone")
      ->check(not_empty())
      ->needs(port);
  command->callback([arguments, &chosen] {
    chosen = [arguments] { return run_job(*arguments, train::run_train); };
  });
}

}  // namespace weft::cli
