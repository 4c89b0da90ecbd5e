/// What a job asks of its tables: how many ids, of how many samples, and how they repeat.
///
/// From the configuration alone (lengths of synthetic columns, otherwise a guess), or from the
/// JSON of `weft data stats`. Plain values; the same on all machines up to the last bits of pow.
#pragma once

#include <cstdint>
#include <memory>
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

/// The hot rows of a table, to count those of a shard among them.
class HotRanges {
 public:
  /// Ascending ranges that do not touch.
  explicit HotRanges(std::vector<Range> ranges);

  [[nodiscard]] std::int64_t size() const { return before_.back(); }

  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

  [[nodiscard]] bool contains(std::int64_t row) const;  ///< O(log ranges)

  /// How many of `rows` they are. Of rows that follow each other O(log ranges), else O(ranges).
  [[nodiscard]] std::int64_t count(const RowSet& rows) const;

 private:
  [[nodiscard]] std::int64_t count_before(std::int64_t row) const;

  std::vector<Range> ranges_;
  std::vector<std::int64_t> before_;  // [ranges + 1] rows of the ranges before
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
  /// Of a table's tail, where rows are not by frequency: the hot rows, which its shards do not
  /// serve, and the share of the ids that is left, that of `segments`.
  std::shared_ptr<const HotRanges> hot = nullptr;
  double part = 1.0;
};

/// Of a feature that nobody reads.
inline FeatureUse unread() {
  return {.length = 0.0, .present = 0.0, .segments = {}};
}

/// A row that was counted as frequent, by its number in the whole table.
struct HotRow {
  std::int64_t row = 0;
  double share = 0.0;  ///< of the table's ids
};

/// What was counted of a table's rows.
struct HotRows {
  std::int64_t most = 0;     ///< rows that were asked for; 0: nobody counted
  std::vector<HotRow> rows;  ///< most frequent first; fewer where no more occurred
};

/// The use of all tables of a job: how each feature reads its table, and what was counted of rows.
struct Workload {
  std::vector<FeatureUse> features;  ///< as configured
  std::vector<HotRows> hot_rows;     ///< [tables], or empty: nobody counted
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

/// [tables] the rows that `stats` lists as most frequent (weft data stats --hot-rows); empty where
/// it lists none. Throws Error(kConfig) as above, and where a row is not in its table, or twice.
std::vector<HotRows> measured_hot_rows(const spec::Config& config,
                                       const std::string& stats,
                                       const std::string& file);

/// Segments of Zipf's law with exponent `s` over `rows` rows: the first few alone, then ever larger
/// ones.
std::vector<AccessSegment> zipf_segments(double rows, double s);

/// Expected different rows among `ids` independent draws: Σ rows (1 - (1 - share/rows)^ids).
double unique_rows(const FeatureUse& use, double ids);

/// Features that share a table as if they were one: the most frequent row of one is that of the
/// others too. Lengths add up; of the rest the first feature's. Requires one at least.
FeatureUse joined(const std::vector<const FeatureUse*>& uses);

/// Share of the ids that fall on some rows of a table of `num_embeddings`: by frequency where
/// rows are in its order, else as many as there are rows, since hashing scatters them. Beside
/// hot rows only what the others get.
double share_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings);

/// Bags of `samples` in which at least one id falls on a share of the rows.
double bags_of(const FeatureUse& use, double share, double samples);

/// The feature as these rows see it: segments of the ids that fall on them, with shares of those.
FeatureUse use_of_rows(const FeatureUse& use, const RowSet& rows, std::int64_t num_embeddings);

}  // namespace weft::planner
