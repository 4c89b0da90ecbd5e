#include "weft/planner/workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/planner/stats_file.h"

namespace weft::planner {
namespace {

using nlohmann::json;

constexpr double kGuessedZipf = 1.05;
constexpr double kGuessedSequence = 8.0;
constexpr double kSegmentGrowth = 2.0;
constexpr double kFewRows = 16.0;

const std::string& column_of(const spec::SparseFeature& feature) {
  return feature.column.empty() ? feature.name : feature.column;
}

double at_most_max_length(const spec::SparseFeature& feature, double length) {
  return feature.max_length > 0 ? std::min(length, static_cast<double>(feature.max_length))
                                : length;
}

/// Σ k^-s over k in [first, last): where they are many, by the integral from half a place before to
/// half before the end.
double zipf_weight(double first, double last, double s) {
  if (last - first <= kFewRows) {
    double sum = 0.0;
    for (double k = first; k < last; k += 1.0) {
      sum += std::pow(k, -s);
    }
    return sum;
  }
  const double a = first - 0.5;
  const double b = last - 0.5;
  return std::abs(s - 1.0) < 1e-9 ? std::log(b / a)
                                  : (std::pow(b, 1.0 - s) - std::pow(a, 1.0 - s)) / (1.0 - s);
}

/// Makes shares add up to 1 over at most `rows` rows: ids that a table has no rows for share rows.
void fit(std::vector<AccessSegment>& segments, double rows) {
  double all_rows = 0.0;
  double all_shares = 0.0;
  for (const AccessSegment& segment : segments) {
    all_rows += segment.rows;
    all_shares += segment.share;
  }
  const double shrink = all_rows > rows ? rows / all_rows : 1.0;
  for (AccessSegment& segment : segments) {
    segment.rows *= shrink;
    segment.share /= all_shares;
  }
}

const spec::SyntheticColumn* synthetic_column(const spec::Config& config, const std::string& name) {
  if (config.data.format != spec::DataFormat::kSynthetic) {
    return nullptr;
  }
  for (const spec::SyntheticColumn& column : config.data.synthetic.columns) {
    if (column.name == name) {
      return &column;
    }
  }
  return nullptr;
}

FeatureUse use_of(const spec::Config& config, std::size_t f) {
  const spec::SparseFeature& feature = config.sparse_features[f];
  FeatureUse use{.feature = static_cast<std::int64_t>(f),
                 .table = spec::table_index(config, feature),
                 .pooled = feature.pooling != spec::Pooling::kNone,
                 .weighted = feature.weighted,
                 .by_frequency = feature.mapping == spec::IdMapping::kVocabulary,
                 .segments = {}};
  const auto rows =
      static_cast<double>(config.tables[static_cast<std::size_t>(use.table)].num_embeddings);
  const spec::SyntheticColumn* const column = synthetic_column(config, column_of(feature));
  if (column != nullptr) {
    const double mean = 0.5 * static_cast<double>(column->min_length + column->max_length);
    use.present = column->min_length > 0 ? 1.0 - column->missing : (1.0 - column->missing) * 0.99;
    use.length = at_most_max_length(feature, mean) * (1.0 - column->missing);
    use.segments = zipf_segments(static_cast<double>(column->cardinality), column->zipf);
  } else {
    use.length = at_most_max_length(feature, use.pooled ? 1.0 : kGuessedSequence);
    use.segments = zipf_segments(rows, kGuessedZipf);
  }
  fit(use.segments, rows);
  return use;
}

/// Top shares become segments of equal rows.
std::vector<AccessSegment> measured_segments(const ColumnStats& column) {
  const double distinct = std::max(1.0, column.distinct);
  // Rows, and the share of the most frequent so many.
  std::vector<std::pair<double, double>> curve = {{1.0, column.top_1},
                                                  {10.0, column.top_10},
                                                  {100.0, column.top_100},
                                                  {1000.0, column.top_1000},
                                                  {std::ceil(0.01 * distinct), column.top_percent},
                                                  {distinct, 1.0}};
  std::stable_sort(curve.begin(), curve.end());
  std::vector<AccessSegment> segments;
  double rows = 0.0;
  double share = 0.0;
  for (const auto& [upto, sum] : curve) {
    const double end = std::min(upto, distinct);
    if (end > rows && sum > share) {
      segments.push_back({.rows = end - rows, .share = sum - share});
      rows = end;
      share = sum;
    }
  }
  return segments;
}

/// A table's entry of the list `hot_rows`.
HotRows hot_rows_of(const spec::Table& table, const json& listed) {
  HotRows hot{.most = listed.at("most").get<std::int64_t>(), .rows = {}};
  const json& rows = listed.at("rows");
  const json& shares = listed.at("shares");
  if (rows.size() != shares.size()) {
    fail(ErrorCode::kConfig, "{} rows of table {} and {} shares", rows.size(), table.name,
         shares.size());
  }
  std::unordered_set<std::int64_t> seen;
  double left = 1.0 + 1e-9;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const HotRow row{.row = rows[i].get<std::int64_t>(), .share = shares[i].get<double>()};
    if (row.row < 0 || row.row >= table.num_embeddings) {
      fail(ErrorCode::kConfig, "row {} of table {}, which has {} rows", row.row, table.name,
           table.num_embeddings);
    }
    if (!seen.insert(row.row).second) {
      fail(ErrorCode::kConfig, "row {} of table {} twice", row.row, table.name);
    }
    left -= row.share;
    if (!(row.share >= 0.0) || left < 0.0) {
      fail(ErrorCode::kConfig, "shares of table {} that are negative, or more than 1 together",
           table.name);
    }
    hot.rows.push_back(row);
  }
  return hot;
}

/// How many of `rows` lie before `row`.
double rows_before(const RowSet& rows, double row) {
  const double last = std::min(std::ceil(row), static_cast<double>(rows.end));
  const double behind = last - static_cast<double>(rows.begin);
  return behind <= 0.0 ? 0.0 : std::floor((behind - 1.0) / static_cast<double>(rows.step)) + 1.0;
}

/// Which share of the rows [first, last) is among `rows`. Ends between two rows count in part, but
/// of every n-th row whole ones do.
double held_of(const RowSet& rows, double first, double last) {
  if (rows.step == 1) {
    const double begin = std::max(first, static_cast<double>(rows.begin));
    const double end = std::min(last, static_cast<double>(rows.end));
    return std::max(0.0, end - begin) / (last - first);
  }
  const double all = std::ceil(last) - std::ceil(first);
  return all > 0.0 ? (rows_before(rows, last) - rows_before(rows, first)) / all
                   : 1.0 / static_cast<double>(rows.step);
}

/// Of rows that hashing scattered, beside hot rows of those that are not hot.
double share_of_scattered(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings) {
  const std::int64_t own = rows.size() - (use.hot ? use.hot->count(rows) : 0);
  const std::int64_t all = num_embeddings - (use.hot ? use.hot->size() : 0);
  return own <= 0 ? 0.0 : static_cast<double>(own) / static_cast<double>(all);
}

}  // namespace

HotRanges::HotRanges(std::vector<Range> ranges) : ranges_(std::move(ranges)), before_{0} {
  for (const Range& range : ranges_) {
    before_.push_back(before_.back() + range.size());
  }
}

/// Rows below `row`.
std::int64_t HotRanges::count_before(std::int64_t row) const {
  const auto next =
      std::lower_bound(ranges_.begin(), ranges_.end(), row,
                       [](const Range& one, std::int64_t end) { return one.end <= end; });
  const auto i = static_cast<std::size_t>(next - ranges_.begin());
  return before_[i] + (next == ranges_.end() ? 0 : std::max<std::int64_t>(0, row - next->begin));
}

bool HotRanges::contains(std::int64_t row) const {
  return count_before(row + 1) > count_before(row);
}

std::int64_t HotRanges::count(const RowSet& rows) const {
  if (rows.step == 1) {
    return rows.begin < rows.end ? count_before(rows.end) - count_before(rows.begin) : 0;
  }
  std::int64_t count = 0;
  for (const Range& range : ranges_) {
    const auto before = [&](std::int64_t end) {
      return RowSet(rows.begin, std::min(end, rows.end), rows.step).size();
    };
    count += before(range.end) - before(range.begin);
  }
  return count;
}

Workload make_workload(const spec::Config& config) {
  Workload workload;
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    workload.features.push_back(use_of(config, f));
  }
  return workload;
}

Workload make_workload(const spec::Config& config,
                       const std::string& stats,
                       const std::string& file) {
  Workload workload = make_workload(config);
  std::map<std::string, std::string> wanted;  // column: a feature that reads it
  for (const spec::SparseFeature& feature : config.sparse_features) {
    wanted.emplace(column_of(feature), feature.name);
  }
  const std::map<std::string, ColumnStats> columns = read_column_stats(stats, file, wanted);
  for (FeatureUse& use : workload.features) {
    const auto f = static_cast<std::size_t>(use.feature);
    const auto found = columns.find(column_of(config.sparse_features[f]));
    if (found == columns.end()) {
      continue;
    }
    const ColumnStats& column = found->second;
    use.length = at_most_max_length(config.sparse_features[f], column.length_mean);
    use.present = 1.0 - column.missing;
    use.segments = measured_segments(column);
    use.measured = true;
    fit(use.segments,
        static_cast<double>(config.tables[static_cast<std::size_t>(use.table)].num_embeddings));
  }
  if (columns.empty()) {
    fail(ErrorCode::kConfig,
         "{} has none of the columns of this configuration; make statistics of its data", file);
  }
  workload.hot_rows = measured_hot_rows(config, stats, file);
  return workload;
}

std::vector<HotRows> measured_hot_rows(const spec::Config& config,
                                       const std::string& stats,
                                       const std::string& file) {
  std::vector<HotRows> all;
  try {
    const json root = json::parse(stats);
    if (root.at("version") != 1) {
      fail(ErrorCode::kConfig, "version {}; this Weft reads version 1", root.at("version").dump());
    }
    if (!root.contains("hot_rows")) {
      return {};
    }
    all.resize(config.tables.size());
    for (const json& listed : root.at("hot_rows")) {
      const auto table =
          std::find_if(config.tables.begin(), config.tables.end(), [&](const spec::Table& one) {
            return one.name == listed.at("table").get<std::string>();
          });
      if (table != config.tables.end()) {
        all[static_cast<std::size_t>(table - config.tables.begin())] = hot_rows_of(*table, listed);
      }
    }
  } catch (const std::exception& error) {
    fail(ErrorCode::kConfig,
         "{} has no list of hot rows of these tables: {}; write it with weft data stats CONFIG "
         "--format json --hot-rows N",
         file, error.what());
  }
  return all;
}

std::vector<AccessSegment> zipf_segments(double rows, double s) {
  std::vector<AccessSegment> segments;
  if (s == 0.0) {
    return {{.rows = rows, .share = 1.0}};
  }
  double width = 1.0;
  for (double first = 1.0; first < rows + 1.0;) {
    const double last = std::min(first + width, rows + 1.0);
    segments.push_back({.rows = last - first, .share = zipf_weight(first, last, s)});
    first = last;
    width = std::max(1.0, std::floor((kSegmentGrowth - 1.0) * first));
  }
  fit(segments, rows);
  return segments;
}

double unique_rows(const FeatureUse& use, double ids) {
  double unique = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double each = segment.share / segment.rows;  // may be 1: one row is all there is
    const double missed = each >= 1.0 ? 0.0 : std::exp(ids * std::log1p(-each));
    unique += segment.rows * (1.0 - missed);
  }
  return std::min(unique, ids);
}

FeatureUse joined(const std::vector<const FeatureUse*>& uses) {
  FeatureUse all = *uses.front();
  if (uses.size() == 1) {
    return all;
  }
  std::vector<double> ends;  // of segments, by row
  all.length = 0.0;
  for (const FeatureUse* use : uses) {
    all.length += use->length;
    double end = 0.0;
    for (const AccessSegment& segment : use->segments) {
      ends.push_back(end += segment.rows);
    }
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  all.segments.clear();
  double begin = 0.0;
  for (const double end : ends) {
    all.segments.push_back({.rows = end - begin, .share = 0.0});
    begin = end;
  }
  for (const FeatureUse* use : uses) {
    const double part = all.length > 0.0 ? use->length / all.length : 0.0;
    std::size_t next = 0;
    double end = 0.0;
    for (const AccessSegment& segment : use->segments) {
      end += segment.rows;
      for (; next < ends.size() && ends[next] <= end; ++next) {
        all.segments[next].share += part * segment.share * all.segments[next].rows / segment.rows;
      }
    }
  }
  return all;
}

double share_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings) {
  if (!use.by_frequency) {
    return use.part * share_of_scattered(use, rows, num_embeddings);
  }
  double share = 0.0;
  double first = 0.0;
  for (const AccessSegment& segment : use.segments) {
    share += segment.share * held_of(rows, first, first + segment.rows);
    first += segment.rows;
  }
  return share;
}

double bags_of(const FeatureUse& use, double share, double samples) {
  if (use.present <= 0.0) {
    return 0.0;
  }
  const double length = use.length / use.present;  // of a bag that has one
  const double missed = share >= 1.0 ? 0.0 : std::pow(1.0 - share, length);
  return samples * use.present * (1.0 - missed);
}

FeatureUse use_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings) {
  FeatureUse held = use;
  if (!use.by_frequency) {
    const double share = share_of_scattered(use, rows, num_embeddings);
    for (AccessSegment& segment : held.segments) {
      segment.rows *= share;
    }
    return held;
  }
  held.segments.clear();
  const double all = share_of_rows(use, rows, num_embeddings);
  double first = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double part = held_of(rows, first, first + segment.rows);
    if (part > 0.0 && segment.share > 0.0) {
      held.segments.push_back({.rows = segment.rows * part, .share = segment.share * part / all});
    }
    first += segment.rows;
  }
  return held;
}

}  // namespace weft::planner
