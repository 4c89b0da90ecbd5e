#include "weft/planner/workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

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
std::vector<AccessSegment> measured_segments(const json& column) {
  const double distinct = std::max(1.0, column.at("distinct").get<double>());
  std::vector<std::pair<double, double>> curve;  // rows, share of the most frequent so many
  for (const auto& [rows, key] : {std::pair{1.0, "top_1"},
                                  {10.0, "top_10"},
                                  {100.0, "top_100"},
                                  {1000.0, "top_1000"},
                                  {std::ceil(0.01 * distinct), "top_percent"}}) {
    curve.emplace_back(rows, column.at(key).get<double>());
  }
  curve.emplace_back(distinct, 1.0);
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

}  // namespace

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
  std::size_t known = 0;
  try {
    const json root = json::parse(stats);
    if (root.at("version") != 1) {
      fail(ErrorCode::kConfig, "version {}; this Weft reads version 1", root.at("version").dump());
    }
    std::map<std::string, const json*> columns;
    for (const json& column : root.at("categorical")) {
      columns[column.at("name")] = &column;
    }
    for (FeatureUse& use : workload.features) {
      const auto f = static_cast<std::size_t>(use.feature);
      const auto found = columns.find(column_of(config.sparse_features[f]));
      if (found == columns.end()) {
        continue;
      }
      const json& column = *found->second;
      use.length =
          at_most_max_length(config.sparse_features[f], column.at("length_mean").get<double>());
      use.present = 1.0 - column.at("missing").get<double>();
      use.segments = measured_segments(column);
      use.measured = true;
      fit(use.segments,
          static_cast<double>(config.tables[static_cast<std::size_t>(use.table)].num_embeddings));
      ++known;
    }
  } catch (const std::exception& error) {
    fail(ErrorCode::kConfig,
         "{} has no statistics of columns: {}; write them with weft data stats "
         "--format json",
         file, error.what());
  }
  if (known == 0) {
    fail(ErrorCode::kConfig,
         "{} has none of the columns of this configuration; make statistics of its data", file);
  }
  return workload;
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

double share_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings) {
  if (!use.by_frequency) {
    return static_cast<double>(rows.size()) / static_cast<double>(num_embeddings);
  }
  double share = 0.0;
  double first = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double begin = std::max(first, static_cast<double>(rows.begin));
    const double end = std::min(first + segment.rows, static_cast<double>(rows.end));
    const double held = std::ceil(std::max(0.0, end - begin) / static_cast<double>(rows.step));
    share += segment.share * std::min(held, segment.rows) / segment.rows;
    first += segment.rows;
  }
  return share;
}

}  // namespace weft::planner
