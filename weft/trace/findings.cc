#include "weft/trace/findings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft::trace {

namespace {

constexpr double kSlowRate = 0.5;        // of the other hosts' median
constexpr double kSkew = 1.25;           // of the mean rank's bytes
constexpr double kStragglerTime = 0.05;  // of the step
constexpr double kStragglerLead = 2.0;   // over the next rank

using HostPair = std::pair<std::string, std::string>;  // from, to

/// Of one direction of a host's link.
struct Rate {
  std::string host;
  double best = 0;  ///< bytes per second, to or from any other host
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Best rate of every host's link; `end`: LinkUse::from for what it sends, to for what it gets.
std::vector<Rate> best_rates(const std::vector<LinkUse>& links, std::string LinkUse::* end) {
  std::map<std::string, double> best;
  for (const LinkUse& link : links) {
    if (link.from != link.to) {
      double& known = best[link.*end];
      known = std::max(known, link.rate());
    }
  }
  std::vector<Rate> rates;
  for (const auto& [host, rate] : best) {
    rates.push_back({host, rate});
  }
  return rates;
}

std::optional<Finding> slow_link(const std::vector<LinkUse>& links) {
  for (const auto& [end, way] :
       {std::pair{&LinkUse::from, "sends"}, std::pair{&LinkUse::to, "receives"}}) {
    const std::vector<Rate> rates = best_rates(links, end);
    if (rates.size() < 3) {
      continue;
    }
    const Rate& slowest = *std::min_element(
        rates.begin(), rates.end(), [](const Rate& a, const Rate& b) { return a.best < b.best; });
    std::vector<double> others;
    for (const Rate& rate : rates) {
      if (rate.host != slowest.host) {
        others.push_back(rate.best);
      }
    }
    const double usual = median(others);
    if (slowest.best < kSlowRate * usual) {
      return Finding{.kind = Finding::Kind::kSlowLink,
                     .name = slowest.host,
                     .text = fmt::format("the link of {} is slow: it {} {:.1f} MB/s at best, the "
                                         "other hosts {:.1f} MB/s",
                                         slowest.host, way, slowest.best / 1e6, usual / 1e6)};
    }
  }
  return std::nullopt;
}

std::optional<Finding> skewed_table(const Report& report) {
  const std::size_t ranks = report.ranks.size();
  std::vector<double> bytes(ranks);
  for (const TableShare& share : report.tables) {
    bytes[static_cast<std::size_t>(share.rank)] += share.bytes;
  }
  double all = 0;
  for (const double one : bytes) {
    all += one;
  }
  const double mean = all / static_cast<double>(ranks);
  const auto most =
      static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
  if (mean == 0 || bytes[most] < kSkew * mean) {
    return std::nullopt;
  }
  const auto heaviest =
      std::find_if(report.tables.begin(), report.tables.end(), [&](const TableShare& share) {
        return static_cast<std::size_t>(share.rank) == most;  // they are sorted by bytes
      });
  const double excess = bytes[most] - mean;
  if (heaviest->bytes < excess && heaviest->bytes < bytes[most] / 2) {
    return std::nullopt;
  }
  return Finding{.kind = Finding::Kind::kSkewedTable,
                 .name = heaviest->table,
                 .text = fmt::format("table {} is {:.0f} % of the rows' bytes that rank {} reads, "
                                     "{:.2f} times those of the mean rank: split or move it",
                                     heaviest->table, 100 * heaviest->bytes / bytes[most], most,
                                     bytes[most] / mean)};
}

std::optional<Finding> straggler(const Report& report) {
  if (report.stragglers.size() < 2) {
    return std::nullopt;
  }
  const Straggler& first = report.stragglers[0];
  if (first.waited_for < kStragglerTime * report.mean.step ||
      first.waited_for < kStragglerLead * report.stragglers[1].waited_for) {
    return std::nullopt;
  }
  return Finding{.kind = Finding::Kind::kStraggler,
                 .name = fmt::format("rank {}", first.rank),
                 .text = fmt::format("rank {} on {} is waited for: {:.3f} ms of a step, most in {}",
                                     first.rank, report.hosts[static_cast<std::size_t>(first.rank)],
                                     1e3 * first.waited_for, first.part)};
}

}  // namespace

std::string_view to_string(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kStraggler:
      return "straggler";
    case Finding::Kind::kSkewedTable:
      return "skewed_table";
    case Finding::Kind::kSlowLink:
      return "slow_link";
  }
  fail(ErrorCode::kInternal, "kind {} of a finding has no name", static_cast<int>(kind));
}

std::vector<LinkUse> link_uses(const std::vector<RankWork>& trace) {
  struct Came {
    std::vector<Interval> times;
    double bytes = 0;
  };

  std::map<HostPair, Came> came;
  for (const RankWork& rank : trace) {
    for (const Work& work : rank.work) {
      for (const Arrival& one : work.from) {
        const auto from = static_cast<std::size_t>(one.rank);
        if (from < trace.size()) {
          Came& link = came[{trace[from].host, rank.host}];
          link.times.push_back({one.begin_ns, one.end_ns});
          link.bytes += static_cast<double>(one.bytes);
        }
      }
    }
  }
  std::vector<LinkUse> links;
  const double steps = static_cast<double>(trace.front().steps.size());
  for (auto& [hosts, link] : came) {
    links.push_back(
        {.from = hosts.first,
         .to = hosts.second,
         .bytes = link.bytes / steps,
         .seconds = static_cast<double>(length(unite(std::move(link.times)))) / 1e9 / steps});
  }
  std::stable_sort(links.begin(), links.end(),
                   [](const LinkUse& a, const LinkUse& b) { return a.rate() < b.rate(); });
  return links;
}

std::vector<TableShare> table_shares(const std::vector<RankWork>& trace) {
  std::vector<TableShare> shares;
  const double steps = static_cast<double>(trace.front().steps.size());
  for (const RankWork& rank : trace) {
    for (const TableReads& table : rank.tables) {
      shares.push_back({.table = table.table,
                        .rank = rank.rank,
                        .rows = static_cast<double>(table.rows) / steps,
                        .bytes = static_cast<double>(table.bytes) / steps});
    }
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const TableShare& a, const TableShare& b) { return a.bytes > b.bytes; });
  return shares;
}

std::vector<Finding> find(const Report& report) {
  std::vector<Finding> found;
  for (std::optional<Finding>& one :
       std::vector{slow_link(report.links), skewed_table(report), straggler(report)}) {
    if (one) {
      found.push_back(std::move(*one));
    }
  }
  return found;
}

}  // namespace weft::trace
