// weft trace: what the files of weft train --trace say.
#include <memory>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/option_file.h"
#include "cli/page_origin.h"
#include "weft/trace/report.h"
#include "weft/trace/report_html.h"
#include "weft/trace/trace_file.h"

namespace weft::cli {
namespace {

struct TraceArguments {
  std::string folder, other;
  std::string html;
  bool json = false;
};

int report(const TraceArguments& arguments) {
  const std::vector<trace::RankWork> trace = trace::read_trace(arguments.folder);
  const trace::Report found = trace::make_report(trace);
  if (!arguments.html.empty()) {
    write_option_file(
        "--html", arguments.html,
        trace::to_html(found, trace,
                       page_origin("the trace " + arguments.folder, trace.front().configuration)));
  }
  fmt::print("{}", arguments.json ? trace::to_json(found) : trace::to_text(found));
  return kDone;
}

int diff(const TraceArguments& arguments) {
  const std::vector<trace::RankWork> trace = trace::read_trace(arguments.other);
  const trace::Report before = trace::make_report(trace::read_trace(arguments.folder));
  const trace::Report after = trace::make_report(trace);
  if (!arguments.html.empty()) {
    write_option_file(
        "--html", arguments.html,
        trace::diff_to_html(
            before, after,
            page_origin(
                fmt::format("the traces {} (before) and {} (after; its configuration is below)",
                            arguments.folder, arguments.other),
                trace.front().configuration)));
  }
  fmt::print("{}", arguments.json ? trace::diff_to_json(before, after)
                                  : trace::diff_to_text(before, after));
  return kDone;
}

}  // namespace

void add_trace_command(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("trace", "Say where the time of traced steps went");
  command->require_subcommand(1);
  auto arguments = std::make_shared<TraceArguments>();
  CLI::App* one = command->add_subcommand("report", "Breakdown, stragglers, critical path, bounds");
  one->add_option("DIR", arguments->folder, "Folder of weft train --trace")->required();
  CLI::App* two = command->add_subcommand("diff", "What changed between two traces, part by part");
  two->add_option("BEFORE", arguments->folder, "Folder of weft train --trace")->required();
  two->add_option("AFTER", arguments->other, "Folder of another")->required();
  for (CLI::App* sub : {one, two}) {
    sub->add_option("--html", arguments->html, "Also write one HTML page with plots to FILE")
        ->check(not_empty());
    sub->add_flag("--json", arguments->json, "JSON instead of tables (docs/trace.md)");
  }
  one->callback([arguments, &chosen] { chosen = [arguments] { return report(*arguments); }; });
  two->callback([arguments, &chosen] { chosen = [arguments] { return diff(*arguments); }; });
}

}  // namespace weft::cli
