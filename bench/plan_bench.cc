// What the planner predicts of a step against what a step takes: models and plans of
// bench/plan_cases.h, each predicted from a calibration of this machine and then run.
//
// No case is used to fit anything. Terms of formulas were chosen while looking at some of the
// cases; the others are held out, and figures are given for both. Others can only slow a machine
// down, so both sides take the quiet moments: of every calibrated figure the best round, of a step
// and of each of its parts the round where it is least. How far apart rounds are is a figure of its
// own
// (`noise`). With --save what was measured is kept, and --from predicts it again without running.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/plan_report.h"
#include "bench/plan_run.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out, save, from;
  PlanRunOptions run;
};

void run(const Options& options) {
  std::vector<ShapeFigures> shapes =
      options.from.empty() ? measure_plans(options.run) : load_measured(options.from);
  std::vector<PlanFigures> cases;
  for (ShapeFigures& shape : shapes) {
    predict(shape);
    cases.insert(cases.end(), shape.cases.begin(), shape.cases.end());
  }
  if (cases.empty()) {
    return;
  }
  if (!options.save.empty()) {
    save_measured(options.save, shapes);
  }
  const std::vector<Figure> figures = figures_of(cases);
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "plan", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Compares steps as the planner predicts them with steps as they are");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.run.rounds, "Repetitions of everything").within(1, 1000);
  arguments.add("--turn-seconds", options.run.turn_s, "About how long a case runs in a round");
  arguments.add_flag("--quick", options.run.quick, "Tiny sizes, whose figures say nothing");
  const auto save = arguments.add("--save", options.save, "Keep what was measured in FOLDER");
  arguments.add("--from", options.from, "Run nothing, but predict again what FOLDER keeps")
      .excludes(save);
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  if (options.run.quick) {
    options.run.rounds = 1;
    options.run.turn_s = 0.01;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
