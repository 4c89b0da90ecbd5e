#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/text.h"
#include "weft/base/text_lines.h"
#include "weft/trace/report.h"

namespace weft::trace {

namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 12;  // of a table that goes on

double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0.0;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return sum / static_cast<double>(values.size());
}

void breakdown_row(TextLines& text, const std::string& name, const Breakdown& b) {
  text.line("{:<12} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.0f} %",
            name, to_ms(b.step), to_ms(b.compute), to_ms(b.lookup), to_ms(b.moving),
            to_ms(b.waiting), to_ms(b.other), to_ms(b.idle), percent(b.overlapped, b.collectives));
}

void write_breakdown(TextLines& text, const Report& report) {
  text.line("Where a step goes, ms; lookup, moving and waiting: what nothing before them hides");
  text.line("{:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}", "", "step", "compute",
            "lookup", "moving", "waiting", "other", "idle", "overlapped");
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    breakdown_row(text, fmt::format("rank {}", r), report.ranks[r]);
  }
  if (report.ranks.size() > 1) {
    breakdown_row(text, "mean", report.mean);
  }
}

void write_parts(TextLines& text, const Report& report) {
  text.line("");
  text.line("Parts, ms per step; slowest: the longest rank over the mean");
  text.line("{:<34} {:>9} {:>9} {:>12} {:>9} {:>10} {:>10} {:>11}", "", "mean", "longest",
            "slowest", "waiting", "bytes", "cross-host", "bus, MB/s");
  for (const PartTime& part : report.parts) {
    const auto slowest = static_cast<int>(
        std::max_element(part.seconds.begin(), part.seconds.end()) - part.seconds.begin());
    const double ratio = part.mean() > 0 ? part.longest() / part.mean() : 1.0;
    const bool is_collective = part.kind == Kind::kCollective;
    text.line("{:<34} {:>9.3f} {:>9.3f} {:>12} {:>9} {:>10} {:>10} {:>11}", part.name,
              to_ms(part.mean()), to_ms(part.longest()),
              fmt::format("{:.2f} rank {}", ratio, slowest),
              is_collective ? fmt::format("{:.3f}", to_ms(mean(part.waiting))) : "",
              is_collective ? format_estimated_bytes(mean(part.bytes)) : "",
              is_collective ? format_estimated_bytes(mean(part.cross_host_bytes)) : "",
              is_collective ? fmt::format("{:.1f}", part.bus_bandwidth() / 1e6) : "");
  }
}

void write_stragglers(TextLines& text, const Report& report) {
  if (report.stragglers.empty()) {
    return;
  }
  text.line("");
  text.line("Who is waited for: ms per step that the others lose because it comes last");
  text.line("{:<12} {:>9} {:>20}   {}", "", "ms", "last in collectives", "most in");
  for (std::size_t i = 0; i < std::min(kMostLines, report.stragglers.size()); ++i) {
    const Straggler& one = report.stragglers[i];
    text.line("{:<12} {:>9.3f} {:>20}   {}", fmt::format("rank {}", one.rank),
              to_ms(one.waited_for), fmt::format("{} of {}", one.last, one.of), one.part);
  }
}

void write_findings(TextLines& text, const Report& report) {
  for (const Finding& finding : report.findings) {
    text.line("! {}", finding.text);
  }
}

void write_links(TextLines& text, const Report& report) {
  if (report.links.empty()) {
    return;
  }
  text.line("");
  text.line("Links, per step; rate: while data was coming, slowest first");
  text.line("{:<40} {:>12} {:>9} {:>12}", "", "bytes", "ms", "MB/s");
  for (std::size_t i = 0; i < std::min(kMostLines, report.links.size()); ++i) {
    const LinkUse& link = report.links[i];
    text.line("{:<40} {:>12} {:>9.3f} {:>12.1f}", fmt::format("{} to {}", link.from, link.to),
              format_estimated_bytes(link.bytes), to_ms(link.seconds), link.rate() / 1e6);
  }
}

void write_tables(TextLines& text, const Report& report) {
  if (report.tables.empty()) {
    return;
  }
  double all = 0;
  for (const TableShare& share : report.tables) {
    all += share.bytes;
  }
  text.line("");
  text.line("Tables, per step: rows that lookups read, most bytes first");
  text.line("{:<34} {:>9} {:>12} {:>12} {:>8}", "", "rank", "rows", "bytes", "of all");
  for (std::size_t i = 0; i < std::min(kMostLines, report.tables.size()); ++i) {
    const TableShare& share = report.tables[i];
    text.line("{:<34} {:>9} {:>12.0f} {:>12} {:>6.1f} %", share.table, share.rank, share.rows,
              format_estimated_bytes(share.bytes), percent(share.bytes, all));
  }
}

void write_path(TextLines& text, const Report& report) {
  text.line("");
  text.line("Critical path, ms per step: what the step's length follows from");
  for (std::size_t i = 0; i < std::min(kMostLines, report.path.size()); ++i) {
    const PathShare& share = report.path[i];
    text.line("{:<34} {:>9.3f} {:>6.1f} %   rank {}", share.name, to_ms(share.seconds),
              percent(share.seconds, report.mean.step), share.rank);
  }
}

void write_what_if(TextLines& text, const Report& report) {
  const double step = report.mean.step;
  text.line("");
  text.line("A step would take at least, ms");
  for (const auto& [what, value] : {std::pair{"with perfect overlap", report.perfect_overlap},
                                    {"with balanced ranks", report.balanced_ranks},
                                    {"with a doubled link", report.doubled_link}}) {
    text.line("{:<34} {:>9.3f} {:>+6.1f} %", what, to_ms(value), percent(value - step, step));
  }
}

json to_value(const Breakdown& b) {
  return {{"step", b.step},     {"compute", b.compute},         {"lookup", b.lookup},
          {"moving", b.moving}, {"waiting", b.waiting},         {"other", b.other},
          {"idle", b.idle},     {"collectives", b.collectives}, {"overlapped", b.overlapped}};
}

}  // namespace

std::vector<Change> changes(const Report& before, const Report& after) {
  std::map<std::string, Change> by_name;
  for (const PartTime& part : before.parts) {
    by_name[part.name].before = part.mean();
  }
  for (const PartTime& part : after.parts) {
    by_name[part.name].after = part.mean();
  }
  by_name["idle"] = {"idle", before.mean.idle, after.mean.idle};
  std::vector<Change> sorted;
  for (auto& [name, change] : by_name) {
    change.name = name;
    sorted.push_back(change);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Change& a, const Change& b) {
    return std::abs(a.delta()) > std::abs(b.delta());
  });
  return sorted;
}

std::string to_text(const Report& report) {
  TextLines text;
  const std::set<std::string> hosts(report.hosts.begin(), report.hosts.end());
  text.line("{} of {} on {}; a step takes {:.3f} ms", counted(report.steps, "step"),
            counted(std::ssize(report.ranks), "rank"), counted(std::ssize(hosts), "host"),
            to_ms(report.mean.step));
  if (report.clock_error > 0) {
    text.line("clocks of hosts agree within {:.3f} ms", to_ms(report.clock_error));
  }
  if (report.dropped > 0) {
    text.line("{} spans found no room: record fewer steps", report.dropped);
  }
  write_findings(text, report);
  text.line("");
  write_breakdown(text, report);
  write_parts(text, report);
  write_links(text, report);
  write_tables(text, report);
  write_stragglers(text, report);
  write_path(text, report);
  write_what_if(text, report);
  return text.take();
}

std::string to_json(const Report& report) {
  json out = {{"version", 1},
              {"steps", report.steps},
              {"hosts", report.hosts},
              {"clock_error", report.clock_error},
              {"dropped", report.dropped},
              {"mean", to_value(report.mean)},
              {"ranks", json::array()},
              {"parts", json::array()},
              {"stragglers", json::array()},
              {"path", json::array()},
              {"links", json::array()},
              {"tables", json::array()},
              {"findings", json::array()},
              {"what_if",
               {{"perfect_overlap", report.perfect_overlap},
                {"balanced_ranks", report.balanced_ranks},
                {"doubled_link", report.doubled_link}}}};
  for (const Breakdown& rank : report.ranks) {
    out["ranks"].push_back(to_value(rank));
  }
  for (const PartTime& part : report.parts) {
    out["parts"].push_back({{"name", part.name},
                            {"kind", std::string(to_string(part.kind))},
                            {"seconds", part.seconds},
                            {"waiting", part.waiting},
                            {"bytes", part.bytes},
                            {"cross_host_bytes", part.cross_host_bytes},
                            {"bus_bandwidth", part.bus_bandwidth()}});
  }
  for (const LinkUse& link : report.links) {
    out["links"].push_back(
        {{"from", link.from}, {"to", link.to}, {"bytes", link.bytes}, {"seconds", link.seconds}});
  }
  for (const TableShare& share : report.tables) {
    out["tables"].push_back({{"table", share.table},
                             {"rank", share.rank},
                             {"rows", share.rows},
                             {"bytes", share.bytes}});
  }
  for (const Finding& finding : report.findings) {
    out["findings"].push_back({{"kind", std::string(to_string(finding.kind))},
                               {"name", finding.name},
                               {"text", finding.text}});
  }
  for (const Straggler& one : report.stragglers) {
    out["stragglers"].push_back({{"rank", one.rank},
                                 {"last", one.last},
                                 {"of", one.of},
                                 {"waited_for", one.waited_for},
                                 {"part", one.part}});
  }
  for (const PathShare& share : report.path) {
    out["path"].push_back({{"name", share.name}, {"rank", share.rank}, {"seconds", share.seconds}});
  }
  return out.dump(1) + "\n";
}

std::string diff_to_text(const Report& before, const Report& after) {
  TextLines text;
  const double delta = after.mean.step - before.mean.step;
  text.line("a step took {:.3f} ms and takes {:.3f} ms: {:+.3f} ms, {:+.1f} %",
            to_ms(before.mean.step), to_ms(after.mean.step), to_ms(delta),
            percent(delta, before.mean.step));
  text.line("");
  text.line("Parts, ms per step of the mean rank, largest change first");
  text.line("{:<34} {:>9} {:>9} {:>9} {:>16}", "", "before", "after", "change", "of the change");
  const std::vector<Change> all = changes(before, after);
  for (std::size_t i = 0; i < std::min(kMostLines, all.size()); ++i) {
    const Change& change = all[i];
    text.line("{:<34} {:>9.3f} {:>9.3f} {:>+9.3f} {:>14.0f} %", change.name, to_ms(change.before),
              to_ms(change.after), to_ms(change.delta()),
              delta != 0 ? 100 * change.delta() / delta : 0.0);
  }
  return text.take();
}

std::string diff_to_json(const Report& before, const Report& after) {
  json out = {{"version", 1},
              {"before", to_value(before.mean)},
              {"after", to_value(after.mean)},
              {"parts", json::array()}};
  for (const Change& change : changes(before, after)) {
    out["parts"].push_back(
        {{"name", change.name}, {"before", change.before}, {"after", change.after}});
  }
  return out.dump(1) + "\n";
}

}  // namespace weft::trace
