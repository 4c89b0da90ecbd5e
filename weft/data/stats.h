/// Statistics of a source: what a feature's table, vocabulary and placement are chosen from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/data/hashed_rows.h"
#include "weft/data/hot_rows.h"
#include "weft/data/source.h"
#include "weft/data/weft_format.h"

namespace weft::data {

/// Statistics of a categorical column; ids as the data has them.
struct CategoricalStats {
  std::string name;
  bool multi_valued = false;
  bool weighted = false;
  std::int64_t ids = 0;  ///< over all samples
  double missing = 0.0;  ///< share of samples with an empty bag
  double mean_length = 0.0;
  std::int64_t p50_length = 0;  ///< of all samples, empty bags included
  std::int64_t p99_length = 0;
  std::int64_t max_length = 0;
  std::int64_t min_id = 0;
  std::int64_t max_id = 0;
  std::int64_t distinct = 0;
  bool distinct_exact = true;  ///< otherwise HyperLogLog, standard error 0.8 %
  /// Shares of all ids that the most frequent 1, 10, 100, 1000 and the most frequent 1 % of the
  /// distinct ids have. Lower bounds where `distinct` is not exact.
  double top_1 = 0.0, top_10 = 0.0, top_100 = 0.0, top_1000 = 0.0, top_percent = 0.0;
};

/// Statistics of a dense column; 0 where no value is present.
struct DenseStats {
  std::string name;
  double missing = 0.0;  ///< share of samples that are NaN
  double mean = 0.0;     ///< of the present ones, as the deviation
  double deviation = 0.0;
  double min = 0.0;
  double max = 0.0;
};

/// Statistics of a label column.
struct LabelStats {
  std::string name;
  double mean = 0.0;  ///< the rate, for a label of 0 and 1
};

/// Statistics of the samples that were read of a source, by column.
struct Stats {
  static constexpr std::int64_t kVersion = 1;  ///< of the JSON

  std::string source;
  std::int64_t samples = 0;
  std::optional<double> bayes_ne;
  std::vector<CategoricalStats> categorical;
  std::vector<DenseStats> dense;
  std::vector<LabelStats> labels;
  std::vector<HashedTable> hashed;  ///< where a configuration says how ids are mapped
  std::vector<HotRows> hot_rows;    ///< where they were asked for
};

/// Options of compute_stats(). REQUIRES: a `config` where `hot_rows` is above 0.
struct StatsOptions {
  std::int64_t max_samples = -1;            ///< -1 = all
  std::int64_t exact_distinct = 4'000'000;  ///< distinct ids counted one by one, per column
  std::int64_t hot_rows = 0;                ///< rows to list of each table; 0: none
  const spec::Config* config = nullptr;     ///< how ids are mapped; null: no hot rows, no hashed
};

/// Reads the source once, from its beginning. Memory: up to 32 bytes per distinct id up to
/// exact_distinct; ids first seen after that are estimated together and do not count for the top
/// shares. As much again for the hot rows of each table.
Stats compute_stats(Source& source,
                    const StatsOptions& options = {},
                    const ProgressCallback& progress = {});

/// Tables of text, one line per column, hashed table and table with hot rows.
std::string stats_text(const Stats& stats);

/// An object with "version"; docs/data.md lists its members.
std::string stats_json(const Stats& stats);

}  // namespace weft::data
