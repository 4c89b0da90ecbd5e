// weft help: what --help says, for those who ask in words.
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft::cli {
namespace {

int run_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  for (const std::string& word : words) {
    const CLI::App* found = nullptr;
    std::vector<std::string> known;
    for (const CLI::App* sub : command->get_subcommands(nullptr)) {
      known.push_back(sub->get_name());
      found = sub->get_name() == word ? sub : found;
    }
    if (found == nullptr) {
      fail(ErrorCode::kUsage, "weft help: '{}' has no command '{}'{}", name, word,
           known.empty() ? "" : "; " + suggestion(word, known));
    }
    command = found;
    name += " " + word;
  }
  fmt::print("{}", app.get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal));
  return kDone;
}

}  // namespace

void add_help_command(CLI::App& app, Action& chosen) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("help", "Say what a command does, and its options");
  command->add_option("COMMAND", *words, "A command, such as train or data convert");
  command->callback(
      [words, &app, &chosen] { chosen = [words, &app] { return run_help(app, *words); }; });
}

}  // namespace weft::cli
