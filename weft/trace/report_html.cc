// Plots are SVG: boxes with a title each, which browsers show where the pointer rests. Colours are
// variables of the style sheet, so that light and dark need no second drawing.
#include "weft/trace/report_html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft::trace {

namespace {

constexpr std::size_t kMostRanks = 32;  // of the timeline
constexpr double kLabel = 200;          // width of what stands left of a plot
constexpr double kPlot = 800;
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
svg .axis { stroke: var(--faint); } svg .tick { fill: var(--soft); }
.compute { fill: var(--compute); } .lookup { fill: var(--lookup); } .moving { fill: var(--moving); }
.waiting { fill: var(--waiting); } .other { fill: var(--other); } .idle { fill: var(--idle); }
.key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: 0.9em; height: 0.9em; margin-right: 0.4em; border-radius: 2px; }
table { border-collapse: collapse; } td, th { padding: 2px 14px 2px 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } th { border-bottom: 1px solid var(--faint); }
div.wide { overflow-x: auto; }
)";

/// The classes of the style sheet and what a rank's time in them is.
constexpr std::array<std::pair<const char*, double Breakdown::*>, 6> kShares = {
    {{"compute", &Breakdown::compute},
     {"lookup", &Breakdown::lookup},
     {"moving", &Breakdown::moving},
     {"waiting", &Breakdown::waiting},
     {"other", &Breakdown::other},
     {"idle", &Breakdown::idle}}};

std::string escaped(std::string_view text) {
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

double ms(double seconds) {
  return seconds * 1e3;
}

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

class Page {
 public:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void open() {
    add("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Weft trace</title>\n"
        "<style>{}</style>\n</head>\n<body>\n",
        kStyle);
  }

  void close() { text_ += "</body>\n</html>\n"; }

  void section(std::string_view title, std::string_view note) {
    add("<h2>{}</h2>\n<p class=\"note\">{}</p>\n", escaped(title), escaped(note));
  }

  void key() {
    text_ += "<p class=\"key\">";
    for (const auto& [name, share] : kShares) {
      add("<span><i style=\"background:var(--{})\"></i>{}</span>", name, name);
    }
    text_ += "</p>\n";
  }

  /// Opens a plot of `rows` rows, with an axis from 0 to `range` of `unit`.
  void open_plot(std::size_t rows, double range, std::string_view unit) {
    range_ = range > 0 ? range : 1;
    const double height = static_cast<double>(rows) * (kBar + kGap);
    add("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n", kLabel + kPlot + 40, height + 24);
    const double tick = tick_of(range_);
    for (int i = 0; i * tick <= range_ * 1.0001; ++i) {
      const double x = kLabel + kPlot * i * tick / range_;
      add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.0f}\"/>"
          "<text class=\"tick\" x=\"{0:.1f}\" y=\"{2:.0f}\" "
          "text-anchor=\"middle\">{3:g}{4}</text>\n",
          x, height, height + 16, i * tick, i == 0 ? fmt::format(" {}", unit) : "");
    }
  }

  void label(std::size_t row, std::string_view text) {
    add("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kLabel - 8,
        top(row) + kBar - 5, escaped(text));
  }

  /// A box from `begin` to `end` of the axis.
  void box(std::size_t row, double begin, double end, const char* kind, std::string_view title) {
    add("<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\">"
        "<title>{}</title></rect>\n",
        kind, kLabel + kPlot * begin / range_, top(row),
        kPlot * std::max(end - begin, 0.0) / range_, kBar, escaped(title));
  }

  void close_plot() { text_ += "</svg>\n"; }

  std::string take() { return std::move(text_); }

 private:
  static double top(std::size_t row) { return static_cast<double>(row) * (kBar + kGap); }

  std::string text_;
  double range_ = 1;
};

/// The place of the step of median length, by rank 0.
std::size_t median_step(const RankWork& rank) {
  std::vector<std::size_t> order(rank.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank.steps[a].time.length() < rank.steps[b].time.length();
  });
  return order[order.size() / 2];
}

/// All ranks, or those that are waited for most, in order.
std::vector<std::size_t> shown_ranks(const Report& report) {
  std::vector<std::size_t> ranks;
  if (report.ranks.size() <= kMostRanks) {
    ranks.resize(report.ranks.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    return ranks;
  }
  for (std::size_t i = 0; i < kMostRanks; ++i) {
    ranks.push_back(static_cast<std::size_t>(report.stragglers[i].rank));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

struct Row {
  std::size_t rank;
  int stream;
};

void draw_work(Page& page, std::size_t row, const Work& work, std::int64_t zero) {
  const auto at = [zero](std::int64_t ns) { return static_cast<double>(ns - zero) / 1e6; };
  const std::string title =
      fmt::format("{}{}{}: {:.3f} ms", work.part, work.part.empty() ? "" : ", ", work.name,
                  static_cast<double>(work.time.length()) / 1e6);
  switch (work.kind) {
    case Kind::kCollective:
      page.box(row, at(work.time.begin), at(work.arrived), "waiting", title + ", waiting");
      page.box(row, at(work.arrived), at(work.time.end), "moving",
               fmt::format("{}, {}", title,
                           format_bytes(
                               static_cast<std::uint64_t>(std::max<std::int64_t>(work.bytes, 0)))));
      break;
    case Kind::kLookup:
      page.box(row, at(work.time.begin), at(work.time.end), "lookup", title);
      break;
    case Kind::kCompute:
      page.box(row, at(work.time.begin), at(work.time.end), "compute", title);
      break;
    case Kind::kStep:
    case Kind::kWait:
    case Kind::kIo:
      page.box(row, at(work.time.begin), at(work.time.end), "other", title);
      break;
  }
}

void draw_timeline(Page& page, const Report& report, const std::vector<RankWork>& trace) {
  const std::size_t index = median_step(trace.front());
  const std::vector<std::size_t> ranks = shown_ranks(report);
  std::int64_t zero = trace[ranks.front()].steps[index].time.begin;
  std::int64_t end = zero;
  std::vector<Row> rows;
  for (const std::size_t r : ranks) {
    const Interval& time = trace[r].steps[index].time;
    zero = std::min(zero, time.begin);
    end = std::max(end, time.end);
    std::vector<int> streams;
    for (const Work& work : trace[r].work) {
      if (std::find(streams.begin(), streams.end(), work.stream) == streams.end()) {
        streams.push_back(work.stream);
      }
    }
    std::sort(streams.begin(), streams.end());
    for (const int stream : streams) {
      rows.push_back({r, stream});
    }
  }
  page.section(
      fmt::format("Step {}", trace.front().steps[index].number),
      fmt::format("The step of median length, on {} of {} ranks; a row per stream, time in "
                  "milliseconds. Rest on a box to see what it is.",
                  ranks.size(), report.ranks.size()));
  page.key();
  page.open_plot(rows.size(), static_cast<double>(end - zero) / 1e6, "ms");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [r, stream] = rows[i];
    const bool first = i == 0 || rows[i - 1].rank != r;
    page.label(i, first ? fmt::format("rank {}", r) : "");
    const Interval& time = trace[r].steps[index].time;
    for (const Work& work : trace[r].work) {
      if (work.stream == stream && work.time.begin >= time.begin && work.time.begin < time.end) {
        draw_work(page, i, work, zero);
      }
    }
  }
  page.close_plot();
}

void draw_breakdown(Page& page, const Report& report) {
  page.section("Breakdown per rank",
               "Milliseconds per step. Each moment counts once: lookups that no computing hides, "
               "communication that neither hides, waiting for peers.");
  page.key();
  double longest = 0;
  for (const Breakdown& rank : report.ranks) {
    longest = std::max(longest, ms(rank.step));
  }
  page.open_plot(report.ranks.size(), longest, "ms");
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    page.label(r, fmt::format("rank {}", r));
    double begin = 0;
    for (const auto& [name, share] : kShares) {
      const double width = ms(report.ranks[r].*share);
      page.box(r, begin, begin + width, name, fmt::format("{}: {:.3f} ms", name, width));
      begin += width;
    }
  }
  page.close_plot();
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void draw_bytes(Page& page, const Report& report) {
  std::vector<const PartTime*> parts;
  double most = 0;
  for (const PartTime& part : report.parts) {
    if (sum_of(part.bytes) > 0) {
      parts.push_back(&part);
      most = std::max(most, sum_of(part.bytes) / 1e6);
    }
  }
  page.section("Bytes by link",
               "Megabytes per step that all ranks send, inside hosts and to other hosts.");
  page.add(
      "<p class=\"key\"><span><i style=\"background:var(--compute)\"></i>inside a host</span>"
      "<span><i style=\"background:var(--moving)\"></i>to other hosts</span></p>\n");
  page.open_plot(parts.size(), most, "MB");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double all = sum_of(parts[i]->bytes) / 1e6;
    const double cross = sum_of(parts[i]->cross_host_bytes) / 1e6;
    page.label(i, parts[i]->name);
    page.box(i, 0, all - cross, "compute", fmt::format("inside a host: {:.3f} MB", all - cross));
    page.box(i, all - cross, all, "moving", fmt::format("to other hosts: {:.3f} MB", cross));
  }
  page.close_plot();
}

void draw_links(Page& page, const Report& report) {
  if (report.links.empty()) {
    return;
  }
  page.section("Rate of links",
               "Megabytes per second while data was coming from one host to another.");
  page.open_plot(report.links.size(), report.links.back().rate() / 1e6, "MB/s");
  for (std::size_t i = 0; i < report.links.size(); ++i) {
    const LinkUse& link = report.links[i];
    page.label(i, fmt::format("{} to {}", link.from, link.to));
    page.box(i, 0, link.rate() / 1e6, link.from == link.to ? "compute" : "moving",
             fmt::format("{:.1f} MB/s: {:.3f} MB in {:.3f} ms of a step", link.rate() / 1e6,
                         link.bytes / 1e6, ms(link.seconds)));
  }
  page.close_plot();
}

void draw_tables(Page& page, const Report& report) {
  if (report.tables.empty()) {
    return;
  }
  constexpr std::size_t kMostTables = 24;
  const std::size_t shown = std::min(kMostTables, report.tables.size());
  page.section("Tables",
               "Megabytes of rows per step that a rank's lookups read of a table, most first.");
  page.open_plot(shown, report.tables.front().bytes / 1e6, "MB");
  for (std::size_t i = 0; i < shown; ++i) {
    const TableShare& share = report.tables[i];
    page.label(i, fmt::format("{}, rank {}", share.table, share.rank));
    page.box(i, 0, share.bytes / 1e6, "lookup",
             fmt::format("{:.3f} MB, {:.0f} rows", share.bytes / 1e6, share.rows));
  }
  page.close_plot();
}

void draw_stragglers(Page& page, const Report& report) {
  if (report.stragglers.empty()) {
    return;
  }
  page.section("Who is waited for",
               "Milliseconds per step that the others lose because this rank comes last.");
  std::vector<Straggler> by_rank = report.stragglers;
  std::sort(by_rank.begin(), by_rank.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  page.open_plot(by_rank.size(), ms(report.stragglers.front().waited_for), "ms");
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    page.label(i, fmt::format("rank {}", by_rank[i].rank));
    page.box(
        i, 0, ms(by_rank[i].waited_for), "waiting",
        fmt::format("{:.3f} ms, last in {} of {} collectives, most in {}",
                    ms(by_rank[i].waited_for), by_rank[i].last, by_rank[i].of, by_rank[i].part));
  }
  page.close_plot();
}

void write_tables(Page& page, const Report& report) {
  page.section("Critical path", "What the step's length follows from, per step.");
  page.add("<div class=\"wide\"><table><tr><th>part</th><th>rank</th><th>ms</th><th>%</th></tr>\n");
  for (const PathShare& share : report.path) {
    page.add("<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.1f}</td></tr>\n", escaped(share.name),
             share.rank, ms(share.seconds), 100 * share.seconds / report.mean.step);
  }
  page.add("</table></div>\n");
  page.section("At least", "Bounds, not forecasts: a step with one thing made ideal.");
  page.add("<table><tr><th>if</th><th>ms</th><th>change</th></tr>\n");
  for (const auto& [what, value] : {std::pair{"perfect overlap", report.perfect_overlap},
                                    {"balanced ranks", report.balanced_ranks},
                                    {"a doubled link", report.doubled_link}}) {
    page.add("<tr><td>{}</td><td>{:.3f}</td><td>{:+.1f} %</td></tr>\n", what, ms(value),
             100 * (value - report.mean.step) / report.mean.step);
  }
  page.add("</table>\n");
  page.section("Parts", "Milliseconds per step; bytes that a rank sends.");
  page.add(
      "<div class=\"wide\"><table><tr><th>part</th><th>mean</th><th>longest</th><th>waiting</th>"
      "<th>bytes</th><th>to other hosts</th><th>bus, MB/s</th></tr>\n");
  const auto ranks = static_cast<double>(report.ranks.size());
  for (const PartTime& part : report.parts) {
    const auto bytes = [&](const std::vector<double>& values) {
      return part.kind == Kind::kCollective
                 ? format_bytes(static_cast<std::uint64_t>(sum_of(values) / ranks))
                 : std::string();
    };
    page.add(
        "<tr><td>{}</td><td>{:.3f}</td><td>{:.3f}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td></tr>\n",
        escaped(part.name), ms(part.mean()), ms(part.longest()),
        part.kind == Kind::kCollective ? fmt::format("{:.3f}", ms(sum_of(part.waiting) / ranks))
                                       : std::string(),
        bytes(part.bytes), bytes(part.cross_host_bytes),
        part.kind == Kind::kCollective ? fmt::format("{:.1f}", part.bus_bandwidth() / 1e6)
                                       : std::string());
  }
  page.add("</table></div>\n");
}

}  // namespace

std::string to_html(const Report& report, const std::vector<RankWork>& trace) {
  Page page;
  page.open();
  page.add("<h1>{} steps of {} ranks: {:.3f} ms a step</h1>\n", report.steps, report.ranks.size(),
           ms(report.mean.step));
  for (const Finding& finding : report.findings) {
    page.add("<p class=\"finding\">{}</p>\n", escaped(finding.text));
  }
  draw_timeline(page, report, trace);
  draw_breakdown(page, report);
  draw_bytes(page, report);
  draw_links(page, report);
  draw_tables(page, report);
  draw_stragglers(page, report);
  write_tables(page, report);
  page.close();
  return page.take();
}

std::string diff_to_html(const Report& before, const Report& after) {
  constexpr std::size_t kMostRows = 24;
  std::vector<Change> all = changes(before, after);
  all.resize(std::min(all.size(), kMostRows));
  const double delta = after.mean.step - before.mean.step;
  Page page;
  page.open();
  page.add("<h1>A step took {:.3f} ms and takes {:.3f} ms: {:+.1f} %</h1>\n", ms(before.mean.step),
           ms(after.mean.step), before.mean.step > 0 ? 100 * delta / before.mean.step : 0.0);
  page.section("Parts", "Milliseconds per step of the mean rank, largest change first.");
  page.add(
      "<p class=\"key\"><span><i style=\"background:var(--idle)\"></i>before</span>"
      "<span><i style=\"background:var(--compute)\"></i>after</span></p>\n");
  double most = 0;
  for (const Change& change : all) {
    most = std::max({most, ms(change.before), ms(change.after)});
  }
  page.open_plot(2 * all.size(), most, "ms");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Change& change = all[i];
    page.label(2 * i, change.name);
    page.label(2 * i + 1, fmt::format("{:+.3f}", ms(change.delta())));
    page.box(2 * i, 0, ms(change.before), "idle",
             fmt::format("before: {:.3f} ms", ms(change.before)));
    page.box(2 * i + 1, 0, ms(change.after), "compute",
             fmt::format("after: {:.3f} ms", ms(change.after)));
  }
  page.close_plot();
  page.close();
  return page.take();
}

}  // namespace weft::trace
