#include "weft/planner/plan_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/at.h"
#include "weft/base/html_page.h"
#include "weft/base/text.h"
#include "weft/base/text_lines.h"
#include "weft/layout/tables.h"
#include "weft/planner/mesh_report.h"
#include "weft/planner/pipeline_report.h"
#include "weft/planner/tier_report.h"

namespace weft::planner {
namespace {

using nlohmann::json;
using spec::Sharding;

constexpr std::size_t kMostRanks = 16;
constexpr std::size_t kMostTables = 40;
constexpr std::size_t kMostNamedRanks = 5;
constexpr std::size_t kMostProposals = 6;  // beside the simple ones

/// "0 3 4 5 ... 63".
std::string ranks_of(const spec::TablePlan& table) {
  std::string text;
  const std::size_t shown = std::min(kMostNamedRanks, table.shards.size());
  for (std::size_t i = 0; i < shown; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : " ", table.shards[i].rank);
  }
  if (shown < table.shards.size()) {
    text += fmt::format(" ... {}", table.shards.back().rank);
  }
  return text;
}

std::string where(const PlanReport& report, const spec::TablePlan& table) {
  return table.sharding == Sharding::kDataParallel
             ? fmt::format("all {}", report.result.best().plan.world())
             : ranks_of(table);
}

std::int64_t count_hot_rows(const spec::TablePlan& table) {
  std::int64_t rows = 0;
  for (const Range& range : table.hot) {
    rows += range.size();
  }
  return rows;
}

/// "row_wise", "row_wise modulo, sample", "table_wise, 1,000 hot rows".
std::string scheme(const spec::TablePlan& table) {
  return fmt::format(
      "{}{}{}{}", to_string(table.sharding), table.shards.front().rows.step > 1 ? " modulo" : "",
      is_fetched(table) ? ", sample" : "",
      table.hot.empty() ? "" : ", " + format_count(count_hot_rows(table)) + " hot rows");
}

/// What a job does without a plan, or whatever of the kind was allowed.
const Proposal& before(const PlanReport& report) {
  for (const char* name : {"greedy by bytes and lookups", "table_wise"}) {
    for (const Proposal& one : report.result.proposals) {
      if (one.name == name) {
        return one;
      }
    }
  }
  return report.result.best();
}

std::string imbalance_line(const PlanReport& report) {
  const Proposal& first = before(report);
  const PlanCost& now = report.result.best().cost;
  return fmt::format(
      "most over mean of the ranks, {} / now: work {:.2f} / {:.2f}, bytes of tables {:.2f} / "
      "{:.2f}",
      first.name, first.cost.imbalance(), now.imbalance(), first.cost.bytes_imbalance(),
      now.bytes_imbalance());
}

/// Of the whole table, on however many ranks.
double table_bytes(const PlanReport& report, std::int64_t t) {
  const spec::Table& table = report.config.tables[at(t)];
  return static_cast<double>(layout::shard_bytes(table, table.num_embeddings, table.embedding_dim));
}

double ids_per_sample(const PlanReport& report, std::int64_t t) {
  double ids = 0.0;
  for (const FeatureUse& use : report.workload.features) {
    ids += use.table == t ? use.length : 0.0;
  }
  return ids;
}

/// Tables by bytes, most first.
std::vector<std::int64_t> tables_by_bytes(const PlanReport& report) {
  std::vector<std::int64_t> order;
  for (std::size_t t = 0; t < report.config.tables.size(); ++t) {
    order.push_back(static_cast<std::int64_t>(t));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return table_bytes(report, a) > table_bytes(report, b);
  });
  return order;
}

/// Ranks by the work of their tables, most first.
std::vector<std::size_t> ranks_by_work(const PlanCost& cost) {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    order.push_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return cost.ranks[a].own_s() > cost.ranks[b].own_s();
  });
  return order;
}

/// The best, and the simple ones.
std::vector<const Proposal*> shown_proposals(const PlanReport& report) {
  std::vector<const Proposal*> shown;
  std::size_t balanced = 0;
  for (const Proposal& one : report.result.proposals) {
    if (one.simple || balanced++ < kMostProposals) {
      shown.push_back(&one);
    }
  }
  return shown;
}

/// Rows that are all in memory need no fetch.
std::vector<StepPart> shown_parts(const PlanCost& cost) {
  std::vector<StepPart> parts;
  for (const StepPart part : kPredictedParts) {
    if (part != StepPart::kFetch || cost.parts[at(part)] > 0.0) {
      parts.push_back(part);
    }
  }
  return parts;
}

void write_overview(TextLines& text, const PlanReport& report) {
  const Proposal& best = report.result.best();
  const bool measured =
      std::any_of(report.workload.features.begin(), report.workload.features.end(),
                  [](const FeatureUse& use) { return use.measured; });
  text.line("{} on {} of {}, cluster {}: {}", counted(std::ssize(report.config.tables), "table"),
            counted(best.plan.world(), "rank"), counted(topology::hosts(report.cluster), "host"),
            report.cluster.name, best.name);
  if (const std::string mesh = mesh_line(report); !mesh.empty()) {
    text.line("{}; ranks and tables below are those of a group", mesh);
  }
  text.line("{}", imbalance_line(report));
  write_step(text, report);
  if (!measured) {
    text.line("lengths and popularity of ids are {}; weft data stats --format json measures them",
              report.config.data.format == spec::DataFormat::kSynthetic ? "those of the generator"
                                                                        : "a guess");
  }
}

void write_parts(TextLines& text, const PlanReport& report) {
  const PlanCost& cost = report.result.best().cost;
  text.line("");
  text.line("Parts of a step, ms");
  text.line("{:<20} {:>12} {:>12}", "", "slowest rank", "exchange");
  for (const StepPart part : shown_parts(cost)) {
    const auto p = static_cast<std::size_t>(part);
    text.line("{:<20} {:>12.3f} {:>12.3f}", to_string(part), to_ms(cost.parts[p]),
              to_ms(cost.exchanges[p]));
  }
}

void write_ranks(TextLines& text, const PlanReport& report) {
  const PlanCost& cost = report.result.best().cost;
  text.line("");
  text.line("Ranks, most work first: ms of lookup, coalescing and update; bytes per step");
  text.line("{:<10} {:>9} {:>12} {:>12} {:>12} {:>14} {:>14}", "", "ms", "lookups", "tables",
            "buffers", "inside host", "to others");
  const std::vector<std::size_t> order = ranks_by_work(cost);
  for (std::size_t i = 0; i < std::min(kMostRanks, order.size()); ++i) {
    const RankCost& rank = cost.ranks[order[i]];
    text.line("rank {:<5} {:>9.3f} {:>12.0f} {:>12} {:>12} {:>14} {:>14}", order[i],
              to_ms(rank.own_s()), rank.load.ids,
              format_estimated_bytes(static_cast<double>(rank.table_bytes)),
              format_estimated_bytes(rank.buffer_bytes), format_estimated_bytes(rank.sent[1]),
              format_estimated_bytes(rank.sent[2]));
  }
  if (order.size() > kMostRanks) {
    text.line("... {} more", order.size() - kMostRanks);
  }
}

void write_tables(TextLines& text, const PlanReport& report) {
  text.line("");
  text.line("Tables, largest first");
  text.line("{:<20} {:>11} {:>8} {:<24} {:>6} {:<18} {}", "", "bytes", "ids", "scheme", "shards",
            "ranks", "why");
  const std::vector<std::int64_t> order = tables_by_bytes(report);
  for (std::size_t i = 0; i < std::min(kMostTables, order.size()); ++i) {
    const std::int64_t t = order[i];
    const spec::TablePlan& table = report.result.best().plan.tables[at(t)];
    text.line("{:<20} {:>11} {:>8.2f} {:<24} {:>6} {:<18} {}", table.table,
              format_estimated_bytes(table_bytes(report, t)), ids_per_sample(report, t),
              scheme(table), table.shards.size(), where(report, table), why(report, t));
  }
  if (order.size() > kMostTables) {
    std::map<std::string, int> schemes;
    for (std::size_t i = kMostTables; i < order.size(); ++i) {
      ++schemes[std::string(to_string(report.result.best().plan.tables[at(order[i])].sharding))];
    }
    std::string rest;
    for (const auto& [scheme, count] : schemes) {
      rest += fmt::format("{}{} {}", rest.empty() ? "" : ", ", count, scheme);
    }
    text.line("... {} more: {}", order.size() - kMostTables, rest);
  }
}

void write_proposals(TextLines& text, const PlanReport& report) {
  const double best = report.result.best().cost.step_s;
  text.line("");
  text.line("Proposals: step of sync in ms; most over mean of the ranks' work and of their bytes");
  if (report.result.schedule_decided) {
    text.line("the first one's step is the shortest under its schedule");
  }
  text.line("{:<32} {:>10} {:>9} {:>9} {:>9}", "", "step", "", "work", "bytes");
  const std::vector<const Proposal*> shown = shown_proposals(report);
  for (const Proposal* one : shown) {
    text.line("{:<32} {:>10.3f} {:>+7.1f} % {:>9.2f} {:>9.2f}{}", one->name,
              to_ms(one->cost.step_s), 100.0 * (one->cost.step_s / best - 1.0),
              one->cost.imbalance(), one->cost.bytes_imbalance(),
              one->fits() ? "" : "  does not fit");
  }
  if (shown.size() < report.result.proposals.size()) {
    text.line("... {} more balanced ones", report.result.proposals.size() - shown.size());
  }
}

void draw_proposals(HtmlPage& page, const PlanReport& report) {
  page.section("Proposals",
               fmt::format("Predicted milliseconds of a step of schedule sync.{}",
                           report.result.schedule_decided
                               ? " The first one's step is the shortest under its schedule."
                               : ""));
  page.key(std::array{KeyEntry{"compute", "fits"}, KeyEntry{"idle", "does not fit into memory"}});
  const std::vector<const Proposal*> shown = shown_proposals(report);
  const Proposal* const slowest =
      std::ranges::max(shown, {}, [](const Proposal* one) { return one->cost.step_s; });
  page.open_plot(shown.size(), to_ms(slowest->cost.step_s), "ms");
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const Proposal& one = *shown[i];
    page.label(i, one.name);
    page.box({.row = i,
              .end = to_ms(one.cost.step_s),
              .colour = one.fits() ? "compute" : "idle",
              .title = fmt::format("{:.3f} ms, work {:.2f} and bytes {:.2f} times the mean at most",
                                   to_ms(one.cost.step_s), one.cost.imbalance(),
                                   one.cost.bytes_imbalance())});
    page.figure(i, to_ms(one.cost.step_s), fmt::format("{:.3f} ms", to_ms(one.cost.step_s)));
  }
  page.close_plot();
}

void draw_parts(HtmlPage& page, const PlanCost& cost) {
  page.section("Parts of a step", "Predicted milliseconds of the slowest rank.");
  page.key(std::array{KeyEntry{"compute", "work"}, KeyEntry{"moving", "exchange between ranks"}});
  const std::vector<StepPart> parts = shown_parts(cost);
  page.open_plot(parts.size(), to_ms(*std::max_element(cost.parts.begin(), cost.parts.end())),
                 "ms");
  for (std::size_t row = 0; row < parts.size(); ++row) {
    const auto p = static_cast<std::size_t>(parts[row]);
    const double own = cost.parts[p] - cost.exchanges[p];
    page.label(row, to_string(parts[row]));
    page.box({.row = row,
              .end = to_ms(own),
              .colour = "compute",
              .title = fmt::format("work: {:.3f} ms", to_ms(own)),
              .inside = fmt::format("{:.3f}", to_ms(own))});
    page.box({.row = row,
              .begin = to_ms(own),
              .end = to_ms(cost.parts[p]),
              .colour = "moving",
              .title = fmt::format("exchange: {:.3f} ms", to_ms(cost.exchanges[p])),
              .inside = fmt::format("{:.3f}", to_ms(cost.exchanges[p]))});
    page.figure(row, to_ms(cost.parts[p]), fmt::format("{:.3f} ms", to_ms(cost.parts[p])));
  }
  page.close_plot();
}

void draw_ranks(HtmlPage& page, const PlanCost& cost) {
  const std::vector<std::size_t> order = ranks_by_work(cost);
  const std::size_t shown = std::min(2 * kMostRanks, order.size());
  page.section("Ranks",
               fmt::format("Milliseconds of lookup, coalescing and update; {} of {} ranks, "
                           "most work first.",
                           shown, order.size()));
  page.open_plot(shown, to_ms(cost.ranks[order.front()].own_s()), "ms");
  for (std::size_t i = 0; i < shown; ++i) {
    const RankCost& rank = cost.ranks[order[i]];
    page.label(i, fmt::format("rank {}", order[i]));
    page.box(
        {.row = i,
         .end = to_ms(rank.own_s()),
         .colour = "lookup",
         .title = fmt::format("{:.3f} ms, {:.0f} lookups, tables {}, buffers {}, to other hosts {}",
                              to_ms(rank.own_s()), rank.load.ids,
                              format_estimated_bytes(static_cast<double>(rank.table_bytes)),
                              format_estimated_bytes(rank.buffer_bytes),
                              format_estimated_bytes(rank.sent[2]))});
    page.figure(i, to_ms(rank.own_s()), fmt::format("{:.3f} ms", to_ms(rank.own_s())));
  }
  page.close_plot();
}

void draw_tables(HtmlPage& page, const PlanReport& report) {
  page.section("Tables", "Largest first.");
  page.add(
      "<div class=\"wide\"><table><tr><th>table</th><th>bytes</th><th>ids per sample</th>"
      "<th>scheme</th><th>shards</th><th>ranks</th><th>why</th></tr>\n");
  for (const std::int64_t t : tables_by_bytes(report)) {
    const spec::TablePlan& table = report.result.best().plan.tables[at(t)];
    page.add(
        "<tr><td>{}</td><td>{}</td><td>{:.2f}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "</tr>\n",
        HtmlPage::escaped(table.table), format_estimated_bytes(table_bytes(report, t)),
        ids_per_sample(report, t), scheme(table), table.shards.size(), where(report, table),
        HtmlPage::escaped(why(report, t)));
  }
  page.add("</table></div>\n");
}

json parts_of(const std::array<double, kStepParts>& seconds) {
  json out = json::object();
  for (const StepPart part : kPredictedParts) {
    out[std::string(to_string(part))] = seconds[static_cast<std::size_t>(part)];
  }
  return out;
}

json to_value(const Proposal& proposal) {
  return {{"name", proposal.name},
          {"fits", proposal.fits()},
          {"step_s", proposal.cost.step_s},
          {"parts", parts_of(proposal.cost.parts)},
          {"exchanges", parts_of(proposal.cost.exchanges)},
          {"imbalance", proposal.cost.imbalance()},
          {"bytes_imbalance", proposal.cost.bytes_imbalance()}};
}

}  // namespace

std::string to_text(const PlanReport& report) {
  TextLines text;
  write_overview(text, report);
  write_meshes(text, report);
  write_pipelines(text, report);
  write_proposals(text, report);
  write_parts(text, report);
  write_ranks(text, report);
  write_tables(text, report);
  write_tiers(text, report);
  return text.take();
}

std::string to_json(const PlanReport& report) {
  const Proposal& best = report.result.best();
  json out = {{"version", 1},
              {"cluster", report.cluster.name},
              {"ranks", json::array()},
              {"tables", json::array()},
              {"proposals", json::array()},
              {"capacity", report.result.capacity},
              {"batch_size", report.config.batch_size},
              {"before", before(report).name},
              {"plan", spec::plan_to_yaml(best.plan)}};
  add_meshes(out, report);
  add_pipelines(out, report);
  add_tiers(out, report);
  const MeshCluster& mesh = *report.result.mesh;
  std::vector<std::size_t> places(mesh.by_position.size());  // of ranks of the world
  for (std::size_t p = 0; p < places.size(); ++p) {
    places[at(mesh.by_position[p])] = p;
  }
  for (const std::size_t position : places) {
    const RankCost& rank = best.cost.ranks[position % best.cost.ranks.size()];
    out["ranks"].push_back({{"group", position / best.cost.ranks.size()},
                            {"place", position % best.cost.ranks.size()},
                            {"seconds", parts_of(rank.seconds)},
                            {"lookups", rank.load.ids},
                            {"table_bytes", rank.table_bytes},
                            {"buffer_bytes", rank.buffer_bytes},
                            {"host_bytes", rank.sent[1]},
                            {"network_bytes", rank.sent[2]}});
  }
  const Estimator estimator = estimator_of(report);
  for (std::size_t i = 0; i < best.plan.tables.size(); ++i) {
    const auto t = static_cast<std::int64_t>(i);
    const spec::TablePlan& table = best.plan.tables[i];
    const auto hot_use = estimator.hot_use_of(t, table.hot);
    std::set<std::int64_t> ranks;
    for (const spec::Shard& shard : table.shards) {
      ranks.insert(shard.rank);
    }
    out["tables"].push_back({{"table", table.table},
                             {"sharding", std::string(to_string(table.sharding))},
                             {"row_split", table.shards.front().rows.step > 1 ? "modulo" : "range"},
                             {"pooled_at", is_fetched(table) ? "sample" : "owner"},
                             {"shards", table.shards.size()},
                             {"ranks", ranks},
                             {"bytes", table_bytes(report, t)},
                             {"ids_per_sample", ids_per_sample(report, t)},
                             {"head_rows", count_hot_rows(table)},
                             {"head_share", hot_use ? hot_use->share : 0.0},
                             {"why", why(report, t)}});
  }
  for (const Proposal& one : report.result.proposals) {
    out["proposals"].push_back(to_value(one));
  }
  return out.dump(1) + "\n";
}

std::string to_html(const PlanReport& report, const PageOrigin& origin) {
  const Proposal& best = report.result.best();
  HtmlPage page;
  page.open("Weft plan");
  page.add("<h1>{} on {}: {:.3f} ms a step, as predicted</h1>\n",
           counted(std::ssize(report.config.tables), "table"), counted(best.plan.world(), "rank"),
           to_ms(report.result.step_s()));
  page.add("<p>Cluster {}, {}; {}.</p>\n", HtmlPage::escaped(report.cluster.name),
           counted(topology::hosts(report.cluster), "host"), HtmlPage::escaped(best.name));
  if (const std::string mesh_text = mesh_line(report); !mesh_text.empty()) {
    page.add("<p>{}; ranks and tables below are those of a group.</p>\n", mesh_text);
  }
  page.add("<p>{}.</p>\n", HtmlPage::escaped(imbalance_line(report)));
  draw_meshes(page, report);
  draw_pipelines(page, report);
  draw_proposals(page, report);
  draw_parts(page, best.cost);
  draw_ranks(page, best.cost);
  draw_tables(page, report);
  draw_tiers(page, report);
  page.origin(origin);
  page.close();
  return page.take();
}

}  // namespace weft::planner
