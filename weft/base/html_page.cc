// Plots are SVG: boxes with a title each, which browsers show where the pointer rests. Colours are
// variables of the style sheet, so that light and dark need no second drawing.
#include "weft/base/html_page.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft {

namespace {

constexpr double kLabel = 200;  // width of what stands left of a plot
constexpr double kPlot = 750;
constexpr double kRight = 90;    // for a figure after the longest box
constexpr double kLetter = 6.6;  // width of a letter, at most nearly always
constexpr double kBar = 18;
constexpr double kGap = 6;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --faint: #d8dde3; --soft: #667080;
  --compute: #4477aa; --lookup: #228833; --moving: #ee6677; --waiting: #ccbb44; --other: #aa3377;
  --idle: #c4cad1; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6e9ed; --faint: #333b45;
  --soft: #98a3b0; --compute: #6fa3d8; --lookup: #4fb562; --moving: #f58a98; --waiting: #e0d268;
  --other: #d46aa6; --idle: #4a5460; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2em auto; max-width: 1040px; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
p.finding { border-left: 4px solid var(--moving); padding-left: 0.8em; margin: 0.4em 0; }
p.note { color: var(--soft); margin-top: 0; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; }
svg text.in { fill: var(--paper); } svg text.light { fill: #14181d; }
svg .axis { stroke: var(--faint); } svg .tick { fill: var(--soft); }
.compute { fill: var(--compute); } .lookup { fill: var(--lookup); } .moving { fill: var(--moving); }
.waiting { fill: var(--waiting); } .other { fill: var(--other); } .idle { fill: var(--idle); }
.key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.4em; border-radius: 2px; }
table { border-collapse: collapse; } td, th { padding: 2px 14px 2px 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { border-bottom: 1px solid var(--faint); }
div.wide { overflow-x: auto; }
footer { color: var(--soft); border-top: 1px solid var(--faint); margin-top: 2.5em; font-size: 13px; }
footer pre { overflow-x: auto; }
)";

/// A round number of which at most eight fit into `range`.
double tick_of(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(range, 1e-9))));
  for (const double factor : {0.1, 0.2, 0.5, 1.0, 2.0}) {
    if (range / (factor * power) <= 8) {
      return factor * power;
    }
  }
  return 5 * power;
}

}  // namespace

std::string HtmlPage::escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void HtmlPage::open(std::string_view title) {
  add("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n",
      escaped(title), kStyle);
}

void HtmlPage::close() {
  text_ += "</body>\n</html>\n";
}

void HtmlPage::section(std::string_view title, std::string_view note) {
  add("<h2>{}</h2>\n<p class=\"note\">{}</p>\n", escaped(title), escaped(note));
}

void HtmlPage::origin(const PageOrigin& origin) {
  std::string line;
  for (const auto& [label, text] : {std::pair{"Made ", &origin.made},
                                    {"by ", &origin.program},
                                    {"on ", &origin.host},
                                    {"from ", &origin.what}}) {
    if (!text->empty()) {
      line += fmt::format("{}{}{}", line.empty() ? "" : " ", label, escaped(*text));
    }
  }
  if (line.empty() && origin.configuration.empty()) {
    return;
  }
  add("<footer>\n<p>{}.</p>\n", line);
  if (!origin.configuration.empty()) {
    add("<p>Configuration, where it differs from the defaults:</p>\n<pre>{}</pre>\n",
        escaped(origin.configuration));
  }
  text_ += "</footer>\n";
}

void HtmlPage::key(std::span<const KeyEntry> entries) {
  text_ += "<p class=\"key\">";
  for (const KeyEntry& entry : entries) {
    add("<span><i style=\"background:var(--{})\"></i>{}</span>", entry.colour,
        escaped(entry.meaning));
  }
  text_ += "</p>\n";
}

void HtmlPage::open_plot(std::size_t rows, double range, std::string_view unit) {
  range_ = range > 0 ? range : 1;
  const double height = static_cast<double>(rows) * (kBar + kGap);
  add("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n", kLabel + kPlot + kRight, height + 24);
  const double tick = tick_of(range_);
  for (int i = 0; i * tick <= range_ * 1.0001; ++i) {
    const double x = kLabel + kPlot * i * tick / range_;
    add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.0f}\"/>"
        "<text class=\"tick\" x=\"{0:.1f}\" y=\"{2:.0f}\" "
        "text-anchor=\"middle\">{3:g}{4}</text>\n",
        x, height, height + 16, i * tick, i == 0 ? fmt::format(" {}", unit) : "");
  }
}

void HtmlPage::label(std::size_t row, std::string_view text) {
  add("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kLabel - 8,
      top(row) + kBar - 5, escaped(text));
}

void HtmlPage::box(const PlotBox& box) {
  const double x = kLabel + kPlot * box.begin / range_;
  const double width = kPlot * std::max(box.end - box.begin, 0.0) / range_;
  add("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\">"
      "<title>{}</title></rect>\n",
      box.colour, x, top(box.row), width, kBar, escaped(box.title));
  if (!box.inside.empty() && kLetter * static_cast<double>(box.inside.size()) + 8 <= width) {
    const std::string_view on = box.colour == "idle"                                ? ""
                                : box.colour == "waiting" || box.colour == "moving" ? "in light"
                                                                                    : "in";
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", on,
        x + width / 2, top(box.row) + kBar - 5, escaped(box.inside));
  }
}

void HtmlPage::figure(std::size_t row, double end, std::string_view text) {
  add("<text x=\"{:.1f}\" y=\"{:.0f}\">{}</text>\n", kLabel + kPlot * end / range_ + 6,
      top(row) + kBar - 5, escaped(text));
}

void HtmlPage::close_plot() {
  text_ += "</svg>\n";
}

double HtmlPage::top(std::size_t row) {
  return static_cast<double>(row) * (kBar + kGap);
}

}  // namespace weft
