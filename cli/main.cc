// The program weft. Errors are caught here and nowhere above: one line on standard error, and the
// exit code that says what kind it was.
#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"

namespace {

using namespace weft;

/// One write per message, so that lines of several threads stay whole.
void write_log(LogLevel level, std::string_view message) {
  std::string_view label;
  switch (level) {
    case LogLevel::kDebug:
      label = "debug: ";
      break;
    case LogLevel::kInfo:
      break;
    case LogLevel::kWarning:
      label = "warning: ";
      break;
    case LogLevel::kError:
      label = "error: ";
      break;
  }
  cli::write_error(fmt::format("weft: {}{}\n", label, message));
}

int report(const Error& error) {
  const std::string rank =
      error.origin_rank() < 0 ? "" : fmt::format("rank {}: ", error.origin_rank());
  cli::write_error(fmt::format("weft: error: {}{}\n", rank, error.what()));
  return cli::exit_code(error.code());
}

/// The words that could stand where `unknown` does: options of the command, or its subcommands.
std::vector<std::string> known_words(const CLI::App& command, const std::string& unknown) {
  std::vector<std::string> words;
  if (unknown.starts_with("-")) {
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        words.push_back("--" + name);
      }
    }
  } else {
    for (const CLI::App* sub : command.get_subcommands(nullptr)) {
      words.push_back(sub->get_name());
    }
  }
  return words;
}

/// Says what is wrong with the arguments. CLI11 says of an unknown word, at best, that it is one.
std::string complaint(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
  }
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) {
    return error.what();
  }
  std::string unknown = left.front();
  if (command->get_require_subcommand_min() == 0) {  // an option rather than what may be its value
    const auto option = std::find_if(left.begin(), left.end(),
                                     [](const std::string& word) { return word.starts_with("-"); });
    if (option != left.end()) {
      unknown = option->substr(0, option->find('='));
    } else if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      return error.what();
    }
  }
  const std::vector<std::string> known = known_words(*command, unknown);
  return fmt::format("unknown command or option '{}'{}", unknown,
                     known.empty() ? "" : "; " + suggestion(unknown, known));
}

int run(int argc, char** argv) {
  CLI::App app("Trains recommendation models with very large embedding tables across ranks.",
               "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.require_subcommand(1);
  cli::Action chosen;
  cli::add_commands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help and --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    cli::write_error(
        fmt::format("weft: error: {}\nRun 'weft --help' or 'weft COMMAND --help' for usage.\n",
                    complaint(app, error)));
    return cli::kBadUsage;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  cli::hold_early_stop_requests();
  cli::open_standard_streams();
  set_log_sink(write_log);
  try {
    const int code = run(argc, argv);
    cli::flush_output();
    return code;
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    cli::write_error("weft: error: out of memory\n");
  } catch (const std::exception& error) {
    cli::write_error(fmt::format("weft: error: {}\n", error.what()));
  }
  return cli::kFailed;
}
