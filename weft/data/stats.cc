#include "weft/data/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "weft/data/id_counter.h"

namespace weft::data {
namespace {

constexpr std::int64_t kCountedBlock = 16384;  ///< samples decoded at a time

struct CategoricalState {
  explicit CategoricalState(std::int64_t limit) : counter(limit) {}

  void add(const RawBlock::Bags& bags) {
    for (std::size_t i = 0; i + 1 < bags.offsets.size(); ++i) {
      ++lengths[bags.offsets[i + 1] - bags.offsets[i]];
    }
    for (const std::int64_t id : bags.ids) {
      counter.add(id);
      min_id = std::min(min_id, id);
      max_id = std::max(max_id, id);
    }
  }

  IdCounter counter;
  std::map<std::int64_t, std::int64_t> lengths;  // length: samples
  std::int64_t min_id = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_id = std::numeric_limits<std::int64_t>::min();
};

struct DenseState {
  // Welford's update: stable for any mean.
  void add(const std::vector<float>& values) {
    for (const float value : values) {
      if (std::isnan(value)) {
        ++missing;
        continue;
      }
      const double x = value;
      ++present;
      sum += x;
      const double delta = x - mean;
      mean += delta / static_cast<double>(present);
      squares += delta * (x - mean);
      min = std::min(min, x);
      max = std::max(max, x);
    }
  }

  std::int64_t missing = 0;
  std::int64_t present = 0;
  double sum = 0.0;
  double mean = 0.0;
  double squares = 0.0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
};

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// The smallest length that at least `quantile` of the samples do not exceed.
std::int64_t length_quantile(const CategoricalState& state, std::int64_t samples, double quantile) {
  const auto wanted = static_cast<std::int64_t>(std::ceil(quantile * static_cast<double>(samples)));
  std::int64_t seen = 0;
  for (const auto& [length, count] : state.lengths) {
    seen += count;
    if (seen >= wanted) {
      return length;
    }
  }
  return 0;
}

CategoricalStats summarise(const Schema::Categorical& column,
                           const CategoricalState& state,
                           std::int64_t samples) {
  CategoricalStats out;
  out.name = column.name;
  out.multi_valued = column.multi_valued;
  out.weighted = column.weighted;
  for (const auto& [length, count] : state.lengths) {
    out.ids += length * count;
    out.max_length = length;
  }
  const auto empty = state.lengths.find(0);
  out.missing = share(empty == state.lengths.end() ? 0 : empty->second, samples);
  out.mean_length = share(out.ids, samples);
  out.p50_length = length_quantile(state, samples, 0.5);
  out.p99_length = length_quantile(state, samples, 0.99);
  out.min_id = out.ids > 0 ? state.min_id : 0;
  out.max_id = out.ids > 0 ? state.max_id : 0;
  out.distinct = state.counter.distinct();
  out.distinct_exact = state.counter.exact();
  const std::vector<std::int64_t> counts = state.counter.descending_counts();
  const auto top = [&](std::int64_t n) {
    const auto end = counts.begin() + std::min(n, static_cast<std::int64_t>(counts.size()));
    return share(std::accumulate(counts.begin(), end, std::int64_t{0}), out.ids);
  };
  out.top_1 = top(1);
  out.top_10 = top(10);
  out.top_100 = top(100);
  out.top_1000 = top(1000);
  out.top_percent = top((out.distinct + 99) / 100);
  return out;
}

DenseStats summarise(const std::string& name, const DenseState& state) {
  DenseStats out;
  out.name = name;
  out.missing = share(state.missing, state.missing + state.present);
  if (state.present > 0) {
    out.mean = state.mean;
    out.deviation = std::sqrt(state.squares / static_cast<double>(state.present));
    out.min = state.min;
    out.max = state.max;
  }
  return out;
}

}  // namespace

Stats compute_stats(Source& source, const StatsOptions& options, const ProgressCallback& progress) {
  const Schema& schema = source.schema();
  std::vector<CategoricalState> categorical(schema.categorical.size(),
                                            CategoricalState(options.exact_distinct));
  std::vector<DenseState> dense(schema.dense.size());
  std::vector<DenseState> labels(schema.labels.size());
  Stats stats;
  std::optional<RowCounter> rows;
  if (options.hot_rows > 0) {
    rows.emplace(*options.config, schema, source.describe(), options.exact_distinct);
  }
  RawBlock block;
  std::vector<std::int64_t> ids;
  const bool all = options.max_samples < 0;
  const std::int64_t total = all || (source.size() >= 0 && source.size() < options.max_samples)
                                 ? source.size()
                                 : options.max_samples;
  while (all || stats.samples < options.max_samples) {
    const std::int64_t wanted =
        all ? kCountedBlock : std::min(kCountedBlock, options.max_samples - stats.samples);
    const std::int64_t got = source.load(stats.samples, wanted);
    if (got > 0) {
      ids.resize(static_cast<std::size_t>(got));
      std::iota(ids.begin(), ids.end(), stats.samples);
      source.read(ids, block);
      stats.samples += got;
      if (rows) {
        rows->add(block);
      }
      for (std::size_t i = 0; i < categorical.size(); ++i) {
        categorical[i].add(block.categorical[i]);
      }
      for (std::size_t i = 0; i < dense.size(); ++i) {
        dense[i].add(block.dense[i]);
      }
      for (std::size_t i = 0; i < labels.size(); ++i) {
        labels[i].add(block.labels[i]);
      }
    }
    if (progress) {
      progress(stats.samples, total);
    }
    if (got < wanted) {
      break;
    }
  }
  if (rows) {
    stats.hot_rows = rows->most_frequent(options.hot_rows);
  }
  if (options.config != nullptr) {
    stats.hashed =
        hashed_tables(*options.config, schema, [&](std::int64_t column) -> const IdCounter& {
          return categorical[static_cast<std::size_t>(column)].counter;
        });
  }
  stats.source = source.describe();
  stats.bayes_ne = stats.samples == source.size() ? source.bayes_ne() : std::nullopt;
  for (std::size_t i = 0; i < categorical.size(); ++i) {
    stats.categorical.push_back(summarise(schema.categorical[i], categorical[i], stats.samples));
  }
  for (std::size_t i = 0; i < dense.size(); ++i) {
    stats.dense.push_back(summarise(schema.dense[i], dense[i]));
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    // Zeros and ones add up exactly, so the rate is the nearest number to the true one.
    const DenseState& label = labels[i];
    stats.labels.push_back({schema.labels[i], label.present > 0
                                                  ? label.sum / static_cast<double>(label.present)
                                                  : 0.0});
  }
  return stats;
}

}  // namespace weft::data
