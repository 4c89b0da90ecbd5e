#include "weft/planner/pipeline_report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/text.h"

namespace weft::planner {
namespace {

using nlohmann::json;

/// "chosen", "asked for", "does not fit", or nothing.
std::string schedule_remark(const PlanReport& report, std::size_t index) {
  const PipelineOption& option = report.result.pipelines[index];
  const bool is_open = report.config.pipeline.schedule == spec::PipelineSchedule::kAuto;
  if (index == report.result.pipeline) {
    return is_open ? "chosen" : "asked for";
  }
  return option.fits ? "" : "does not fit";
}

}  // namespace

void write_step(TextLines& text, const PlanReport& report) {
  const SearchResult& result = report.result;
  text.line(
      "a step of {} samples takes {:.3f} ms, {:.0f} samples/s, as predicted, with schedule {}",
      report.config.batch_size, to_ms(result.step_s()),
      static_cast<double>(report.config.batch_size) / result.step_s(),
      describe(result.pipelines[result.pipeline].pipeline));
}

void write_pipelines(TextLines& text, const PlanReport& report) {
  const std::vector<PipelineOption>& all = report.result.pipelines;
  text.line("");
  text.line("Schedules of the best plan: step in ms; memory of the rank with most");
  text.line("{:<40} {:>10} {:>9} {:>11}", "", "step", "", "memory");
  for (std::size_t i = 0; i < all.size(); ++i) {
    text.line("{:<40} {:>10.3f} {:>+7.1f} % {:>11}  {}", describe(all[i].pipeline),
              to_ms(all[i].step_s), 100.0 * (all[i].step_s / all.front().step_s - 1.0),
              format_estimated_bytes(all[i].memory_bytes), schedule_remark(report, i));
  }
}

void add_pipelines(json& out, const PlanReport& report) {
  const SearchResult& result = report.result;
  out["step_s"] = result.step_s();
  out["schedule"] = std::string(to_string(result.pipelines[result.pipeline].pipeline.schedule));
  out["pipelines"] = json::array();
  for (const PipelineOption& one : result.pipelines) {
    json option = {{"schedule", std::string(to_string(one.pipeline.schedule))},
                   {"step_s", one.step_s},
                   {"memory_bytes", one.memory_bytes},
                   {"fits", one.fits}};
    if (cuts_batches(one.pipeline.schedule)) {
      option["micro_batches"] = one.pipeline.micro_batches.sizes;
      option["lookahead"] = one.pipeline.lookahead;
    }
    out["pipelines"].push_back(std::move(option));
  }
}

void draw_pipelines(HtmlPage& page, const PlanReport& report) {
  const std::vector<PipelineOption>& all = report.result.pipelines;
  const SearchResult& result = report.result;
  page.section("Schedules",
               fmt::format("Predicted milliseconds of a step of the best plan; the job has {}.",
                           describe(all[result.pipeline].pipeline)));
  page.key(std::array{KeyEntry{"compute", "fits"}, KeyEntry{"idle", "does not fit into memory"}});
  const double most = std::ranges::max(all, {}, &PipelineOption::step_s).step_s;
  page.open_plot(all.size(), to_ms(most), "ms");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const PipelineOption& one = all[i];
    page.label(i, to_string(one.pipeline.schedule));
    page.box({.row = i,
              .end = to_ms(one.step_s),
              .colour = one.fits ? "compute" : "idle",
              .title = fmt::format("{}: {:.3f} ms, memory {}", describe(one.pipeline),
                                   to_ms(one.step_s), format_estimated_bytes(one.memory_bytes))});
    page.figure(i, to_ms(one.step_s), fmt::format("{:.3f} ms", to_ms(one.step_s)));
  }
  page.close_plot();
}

}  // namespace weft::planner
