#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/text.h"
#include "weft/data/stats.h"

namespace weft::data {
namespace {

// Cells, the first row the headings; the first column is aligned left, the others right.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) {
      line += fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += line + "\n";
  }
  return text;
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100.0 * share);
}

std::string number(double value) {
  return fmt::format("{:.4g}", value);
}

double share_of(const HotRows& hot) {
  double sum = 0.0;
  for (const HotRows::Row& row : hot.rows) {
    sum += row.share;
  }
  return sum;
}

std::string distinct(const CategoricalStats& column) {
  return (column.distinct_exact ? "" : "~") + format_count(column.distinct);
}

nlohmann::ordered_json to_value(const HotRows& hot) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  nlohmann::ordered_json shares = nlohmann::ordered_json::array();
  for (const HotRows::Row& row : hot.rows) {
    rows.push_back(row.row);
    shares.push_back(row.share);
  }
  return {{"table", hot.table},
          {"ids", hot.ids},
          {"most", hot.most},
          {"rows", std::move(rows)},
          {"shares", std::move(shares)}};
}

}  // namespace

std::string stats_text(const Stats& stats) {
  std::string text = fmt::format("{}\n{} {} read\n", stats.source, format_count(stats.samples),
                                 stats.samples == 1 ? "sample" : "samples");
  if (stats.bayes_ne) {
    text += fmt::format("best possible NE {:.4f}\n", *stats.bayes_ne);
  }
  if (!stats.labels.empty()) {
    std::vector<std::vector<std::string>> rows = {{"label", "mean"}};
    for (const LabelStats& label : stats.labels) {
      rows.push_back({label.name, fmt::format("{:.4f}", label.mean)});
    }
    text += "\n" + table(rows);
  }
  if (!stats.categorical.empty()) {
    std::vector<std::vector<std::string>> rows = {{"categorical", "missing", "length", "p50", "p99",
                                                   "max", "distinct", "top 1", "top 10", "top 100",
                                                   "top 1000", "top 1%"}};
    for (const CategoricalStats& column : stats.categorical) {
      rows.push_back({column.name, percent(column.missing),
                      fmt::format("{:.2f}", column.mean_length),
                      fmt::format("{}", column.p50_length), fmt::format("{}", column.p99_length),
                      fmt::format("{}", column.max_length), distinct(column), percent(column.top_1),
                      percent(column.top_10), percent(column.top_100), percent(column.top_1000),
                      percent(column.top_percent)});
    }
    text += "\n" + table(rows);
    if (std::any_of(stats.categorical.begin(), stats.categorical.end(),
                    [](const CategoricalStats& column) { return !column.distinct_exact; })) {
      text += "~ estimated, within about 2 %; top shares of these columns are lower bounds\n";
    }
  }
  if (!stats.hashed.empty()) {
    std::vector<std::vector<std::string>> rows = {{"hashed to", "rows", "distinct", "share a row"}};
    for (const HashedTable& hashed : stats.hashed) {
      rows.push_back({hashed.table, format_count(hashed.rows),
                      (hashed.exact ? "" : "~") + format_count(hashed.distinct),
                      percent(hashed.shared)});
    }
    text += "\n" + table(rows);
  }
  if (!stats.hot_rows.empty()) {
    std::vector<std::vector<std::string>> rows = {{"hot rows of", "ids", "rows", "share"}};
    for (const HotRows& hot : stats.hot_rows) {
      rows.push_back({hot.table, format_count(hot.ids),
                      format_count(static_cast<std::int64_t>(hot.rows.size())),
                      percent(share_of(hot))});
    }
    text += "\n" + table(rows);
  }
  if (!stats.dense.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"dense", "missing", "mean", "deviation", "min", "max"}};
    for (const DenseStats& column : stats.dense) {
      rows.push_back({column.name, percent(column.missing), number(column.mean),
                      number(column.deviation), number(column.min), number(column.max)});
    }
    text += "\n" + table(rows);
  }
  return text;
}

std::string stats_json(const Stats& stats) {
  nlohmann::ordered_json out;
  out["version"] = Stats::kVersion;
  out["source"] = stats.source;
  out["samples"] = stats.samples;
  if (stats.bayes_ne) {
    out["bayes_ne"] = *stats.bayes_ne;
  }
  out["labels"] = nlohmann::ordered_json::array();
  for (const LabelStats& label : stats.labels) {
    out["labels"].push_back({{"name", label.name}, {"mean", label.mean}});
  }
  out["categorical"] = nlohmann::ordered_json::array();
  for (const CategoricalStats& column : stats.categorical) {
    nlohmann::ordered_json entry = {
        {"name", column.name},
        {"multi_valued", column.multi_valued},
        {"weighted", column.weighted},
        {"ids", column.ids},
        {"missing", column.missing},
        {"length_mean", column.mean_length},
        {"length_p50", column.p50_length},
        {"length_p99", column.p99_length},
        {"length_max", column.max_length},
        {"id_min", column.min_id},
        {"id_max", column.max_id},
        {"distinct", column.distinct},
        {"distinct_method", column.distinct_exact ? "exact" : "hyperloglog"},
        {"top_1", column.top_1},
        {"top_10", column.top_10},
        {"top_100", column.top_100},
        {"top_1000", column.top_1000},
        {"top_percent", column.top_percent}};
    out["categorical"].push_back(std::move(entry));
  }
  out["dense"] = nlohmann::ordered_json::array();
  for (const DenseStats& column : stats.dense) {
    out["dense"].push_back({{"name", column.name},
                            {"missing", column.missing},
                            {"mean", column.mean},
                            {"deviation", column.deviation},
                            {"min", column.min},
                            {"max", column.max}});
  }
  if (!stats.hashed.empty()) {
    out["hashed"] = nlohmann::ordered_json::array();
    for (const HashedTable& hashed : stats.hashed) {
      out["hashed"].push_back({{"table", hashed.table},
                               {"rows", hashed.rows},
                               {"distinct", hashed.distinct},
                               {"distinct_method", hashed.exact ? "exact" : "hyperloglog"},
                               {"shared", hashed.shared}});
    }
  }
  if (!stats.hot_rows.empty()) {
    out["hot_rows"] = nlohmann::ordered_json::array();
    for (const HotRows& hot : stats.hot_rows) {
      out["hot_rows"].push_back(to_value(hot));
    }
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace weft::data
