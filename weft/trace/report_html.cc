#include "weft/trace/report_html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weft/base/html_page.h"
#include "weft/base/text.h"

namespace weft::trace {

namespace {

constexpr std::size_t kMostRanks = 32;  // of the timeline

/// The classes of the style sheet and what a rank's time in them is.
constexpr std::array<std::pair<std::string_view, double Breakdown::*>, 6> kShares = {
    {{"compute", &Breakdown::compute},
     {"lookup", &Breakdown::lookup},
     {"moving", &Breakdown::moving},
     {"waiting", &Breakdown::waiting},
     {"other", &Breakdown::other},
     {"idle", &Breakdown::idle}}};

constexpr std::array<KeyEntry, 6> kKinds = {{{"compute", "compute"},
                                             {"lookup", "lookup"},
                                             {"moving", "moving: bytes between ranks"},
                                             {"waiting", "waiting for the last peer"},
                                             {"other", "other"},
                                             {"idle", "idle"}}};

/// Of bytes and links.
constexpr std::array<KeyEntry, 2> kWhere = {
    {{"compute", "inside a host"}, {"moving", "to other hosts"}}};

constexpr std::array<KeyEntry, 2> kWhen = {{{"idle", "before"}, {"compute", "after"}}};

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

/// As far as it lies in the step.
void draw_work(
    HtmlPage& page, std::size_t row, const Work& work, const Interval& step, std::int64_t zero) {
  const auto at = [&step, zero](std::int64_t ns) {
    return static_cast<double>(std::clamp(ns, step.begin, step.end) - zero) / 1e6;
  };
  const std::string title =
      fmt::format("{}{}{}: {:.3f} ms", work.part, work.part.empty() ? "" : ", ", work.name,
                  static_cast<double>(work.time.length()) / 1e6);
  const auto box = [&](std::int64_t begin, std::int64_t end, std::string_view colour,
                       std::string_view says) {
    page.box({.row = row,
              .begin = at(begin),
              .end = at(end),
              .colour = colour,
              .title = says,
              .inside = work.name});
  };
  switch (work.kind) {
    case Kind::kCollective:
      box(work.time.begin, work.arrived, "waiting", title + ", waiting");
      box(work.arrived, work.time.end, "moving",
          fmt::format(
              "{}, {}", title,
              format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(work.bytes, 0)))));
      break;
    case Kind::kLookup:
      box(work.time.begin, work.time.end, "lookup", title);
      break;
    case Kind::kCompute:
      box(work.time.begin, work.time.end, "compute", title);
      break;
    case Kind::kStep:
    case Kind::kWait:
    case Kind::kIo:
      box(work.time.begin, work.time.end, "other", title);
      break;
  }
}

void draw_timeline(HtmlPage& page, const Report& report, const std::vector<RankWork>& trace) {
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
  page.key(kKinds);
  page.open_plot(rows.size(), static_cast<double>(end - zero) / 1e6, "ms");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [r, stream] = rows[i];
    const bool first = i == 0 || rows[i - 1].rank != r;
    page.label(i, first ? fmt::format("rank {}", r) : "");
    const Interval& time = trace[r].steps[index].time;
    for (const Work& work : trace[r].work) {
      const bool shown = work.time.begin < time.end &&
                         (work.time.begin >= time.begin || work.time.end > time.begin);
      if (work.stream == stream && shown) {
        draw_work(page, i, work, time, zero);
      }
    }
  }
  page.close_plot();
}

void draw_breakdown(HtmlPage& page, const Report& report) {
  page.section("Breakdown per rank",
               "Milliseconds per step. Each moment counts once: lookups that no computing hides, "
               "communication that neither hides, waiting for peers.");
  page.key(kKinds);
  double longest = 0;
  for (const Breakdown& rank : report.ranks) {
    longest = std::max(longest, to_ms(rank.step));
  }
  page.open_plot(report.ranks.size(), longest, "ms");
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    page.label(r, fmt::format("rank {}", r));
    double begin = 0;
    for (const auto& [name, share] : kShares) {
      const double width = to_ms(report.ranks[r].*share);
      page.box({.row = r,
                .begin = begin,
                .end = begin + width,
                .colour = name,
                .title = fmt::format("{}: {:.3f} ms", name, width),
                .inside = fmt::format("{:.3f}", width)});
      begin += width;
    }
    page.figure(r, begin, fmt::format("{:.3f} ms", begin));
  }
  page.close_plot();
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void draw_bytes(HtmlPage& page, const Report& report) {
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
  page.key(kWhere);
  page.open_plot(parts.size(), most, "MB");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double all = sum_of(parts[i]->bytes) / 1e6;
    const double cross = sum_of(parts[i]->cross_host_bytes) / 1e6;
    page.label(i, parts[i]->name);
    page.box({.row = i,
              .end = all - cross,
              .colour = "compute",
              .title = fmt::format("inside a host: {:.3f} MB", all - cross),
              .inside = fmt::format("{:.3f}", all - cross)});
    page.box({.row = i,
              .begin = all - cross,
              .end = all,
              .colour = "moving",
              .title = fmt::format("to other hosts: {:.3f} MB", cross),
              .inside = fmt::format("{:.3f}", cross)});
    page.figure(i, all, fmt::format("{:.3f} MB", all));
  }
  page.close_plot();
}

void draw_links(HtmlPage& page, const Report& report) {
  if (report.links.empty()) {
    return;
  }
  page.section("Rate of links",
               "Megabytes per second while data was coming from one host to another.");
  page.key(kWhere);
  page.open_plot(report.links.size(), report.links.back().rate() / 1e6, "MB/s");
  for (std::size_t i = 0; i < report.links.size(); ++i) {
    const LinkUse& link = report.links[i];
    page.label(i, fmt::format("{} to {}", link.from, link.to));
    page.box({.row = i,
              .end = link.rate() / 1e6,
              .colour = link.from == link.to ? "compute" : "moving",
              .title = fmt::format("{:.1f} MB/s: {:.3f} MB in {:.3f} ms of a step",
                                   link.rate() / 1e6, link.bytes / 1e6, to_ms(link.seconds))});
    page.figure(i, link.rate() / 1e6, fmt::format("{:.1f} MB/s", link.rate() / 1e6));
  }
  page.close_plot();
}

void draw_tables(HtmlPage& page, const Report& report) {
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
    page.box({.row = i,
              .end = share.bytes / 1e6,
              .colour = "lookup",
              .title = fmt::format("{:.3f} MB, {:.0f} rows", share.bytes / 1e6, share.rows)});
    page.figure(i, share.bytes / 1e6, fmt::format("{:.3f} MB", share.bytes / 1e6));
  }
  page.close_plot();
}

void draw_stragglers(HtmlPage& page, const Report& report) {
  if (report.stragglers.empty()) {
    return;
  }
  page.section("Who is waited for",
               "Milliseconds per step that the others lose because this rank comes last.");
  std::vector<Straggler> by_rank = report.stragglers;
  std::sort(by_rank.begin(), by_rank.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  page.open_plot(by_rank.size(), to_ms(report.stragglers.front().waited_for), "ms");
  for (std::size_t i = 0; i < by_rank.size(); ++i) {
    page.label(i, fmt::format("rank {}", by_rank[i].rank));
    const Straggler& one = by_rank[i];
    page.box({.row = i,
              .end = to_ms(one.waited_for),
              .colour = "waiting",
              .title = fmt::format("{:.3f} ms, last in {} of {} collectives, most in {}",
                                   to_ms(one.waited_for), one.last, one.of, one.part)});
    page.figure(i, to_ms(one.waited_for), fmt::format("{:.3f} ms", to_ms(one.waited_for)));
  }
  page.close_plot();
}

void write_tables(HtmlPage& page, const Report& report) {
  page.section("Critical path", "What the step's length follows from, per step.");
  page.add("<div class=\"wide\"><table><tr><th>part</th><th>rank</th><th>ms</th><th>%</th></tr>\n");
  for (const PathShare& share : report.path) {
    page.add("<tr><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.1f}</td></tr>\n",
             HtmlPage::escaped(share.name), share.rank, to_ms(share.seconds),
             100 * share.seconds / report.mean.step);
  }
  page.add("</table></div>\n");
  page.section("At least", "Bounds, not forecasts: a step with one thing made ideal.");
  page.add("<table><tr><th>if</th><th>ms</th><th>change</th></tr>\n");
  for (const auto& [what, value] : {std::pair{"perfect overlap", report.perfect_overlap},
                                    {"balanced ranks", report.balanced_ranks},
                                    {"a doubled link", report.doubled_link}}) {
    page.add("<tr><td>{}</td><td>{:.3f}</td><td>{:+.1f} %</td></tr>\n", what, to_ms(value),
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
        HtmlPage::escaped(part.name), to_ms(part.mean()), to_ms(part.longest()),
        part.kind == Kind::kCollective ? fmt::format("{:.3f}", to_ms(sum_of(part.waiting) / ranks))
                                       : std::string(),
        bytes(part.bytes), bytes(part.cross_host_bytes),
        part.kind == Kind::kCollective ? fmt::format("{:.1f}", part.bus_bandwidth() / 1e6)
                                       : std::string());
  }
  page.add("</table></div>\n");
}

}  // namespace

std::string to_html(const Report& report,
                    const std::vector<RankWork>& trace,
                    const PageOrigin& origin) {
  HtmlPage page;
  page.open("Weft trace");
  page.add("<h1>{} of {}: {:.3f} ms a step</h1>\n", counted(report.steps, "step"),
           counted(std::ssize(report.ranks), "rank"), to_ms(report.mean.step));
  for (const Finding& finding : report.findings) {
    page.add("<p class=\"finding\">{}</p>\n", HtmlPage::escaped(finding.text));
  }
  draw_timeline(page, report, trace);
  draw_breakdown(page, report);
  draw_bytes(page, report);
  draw_links(page, report);
  draw_tables(page, report);
  draw_stragglers(page, report);
  write_tables(page, report);
  page.origin(origin);
  page.close();
  return page.take();
}

std::string diff_to_html(const Report& before, const Report& after, const PageOrigin& origin) {
  constexpr std::size_t kMostRows = 24;
  std::vector<Change> all = changes(before, after);
  all.resize(std::min(all.size(), kMostRows));
  const double delta = after.mean.step - before.mean.step;
  HtmlPage page;
  page.open("Weft trace");
  page.add("<h1>A step took {:.3f} ms and takes {:.3f} ms: {:+.1f} %</h1>\n",
           to_ms(before.mean.step), to_ms(after.mean.step),
           before.mean.step > 0 ? 100 * delta / before.mean.step : 0.0);
  page.section("Parts", "Milliseconds per step of the mean rank, largest change first.");
  page.key(kWhen);
  double most = 0;
  for (const Change& change : all) {
    most = std::max({most, to_ms(change.before), to_ms(change.after)});
  }
  page.open_plot(2 * all.size(), most, "ms");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Change& change = all[i];
    page.label(2 * i, change.name);
    page.label(2 * i + 1, fmt::format("{:+.3f}", to_ms(change.delta())));
    page.box({.row = 2 * i,
              .end = to_ms(change.before),
              .colour = "idle",
              .title = fmt::format("before: {:.3f} ms", to_ms(change.before))});
    page.figure(2 * i, to_ms(change.before), fmt::format("{:.3f} ms", to_ms(change.before)));
    page.box({.row = 2 * i + 1,
              .end = to_ms(change.after),
              .colour = "compute",
              .title = fmt::format("after: {:.3f} ms", to_ms(change.after))});
    page.figure(2 * i + 1, to_ms(change.after), fmt::format("{:.3f} ms", to_ms(change.after)));
  }
  page.close_plot();
  page.origin(origin);
  page.close();
  return page.take();
}

}  // namespace weft::trace
