/// What a job asks of its tables: how many ids, of how many samples, and how they repeat.
///
/// From the configuration alone (lengths of synthetic columns, otherwise a guess), or from the
/// JSON of `weft data stats`. Plain values; the same on all machines up to the last bits of pow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/spec/config.h"

namespace weft::planner {

/// Rows that are asked for equally often.
struct AccessSegment {
  double rows = 0.0;
  double share = 0.0;  ///< of all ids, of all its rows together
};

/// How a feature reads its table.
struct FeatureUse {
  std::int64_t feature = 0;  ///< index in Config::sparse_features
  std::int64_t table = 0;
  double length = 1.0;   ///< ids per sample on average, empty bags included
  double present = 1.0;  ///< share of the samples with an id
  bool pooled = true;
  bool weighted = false;
  bool by_frequency = false;            ///< row 0 is the most frequent (mapping: vocabulary)
  bool measured = false;                ///< from statistics, not a guess
  std::vector<AccessSegment> segments;  ///< most frequent first; rows and shares of those in use
};

struct Workload {
  std::vector<FeatureUse> features;  ///< as configured
};

/// Requires a validated configuration. Lengths of columns that are not synthetic are taken as 1 for
/// pooled features and 8 for sequences, at most max_length; popularity as Zipf's with
/// exponent 1.05.
Workload make_workload(const spec::Config& config);

/// The same, with what `stats` knows of a feature's column (JSON of `weft data stats`,
/// docs/data.md; `file` stands in messages). Throws Error(kConfig) where it is no such JSON, or has
/// none of the columns.
Workload make_workload(const spec::Config& config,
                       const std::string& stats,
                       const std::string& file);

/// Segments of Zipf's law with exponent `s` over `rows` rows: the first few alone, then ever larger
/// ones.
std::vector<AccessSegment> zipf_segments(double rows, double s);

/// Expected different rows among `ids` independent draws: Σ rows (1 - (1 - share/rows)^ids).
double unique_rows(const FeatureUse& use, double ids);

/// Share of the ids that fall on some rows of a table of `num_embeddings`: by frequency where
/// rows are in its order, else as many as there are rows, since hashing scatters them.
double share_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings);

}  // namespace weft::planner
