/// Hot rows (docs/sharding.md, "Hot rows"): which rows of a table they are, and how the table is
/// then read.
///
/// Hot rows are copied to every rank; the other rows, the table's tail, lie in shards as before.
/// With q the share of a feature's ids that fall on hot rows: a rank looks up q of its own ids in
/// its copy, the shards get the others. Popularity is cut in two likewise: of a table numbered by
/// frequency where its hot rows begin and end, of a measured one so that hot rows have the shares
/// that were counted of them, and the tail the rest. Nothing measured: hot rows of a table that
/// hashing scatters are asked for as often as any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// The `rows` most frequent rows of a table, as ranges for TablePlan::hot; fewer where fewer ever
/// occurred. Of tables numbered by frequency (all features map by vocabulary) the first ones, of
/// others those of `measured` ([tables], or empty: nothing is known). Throws Error(kConfig) where
/// nobody counted the table's rows, or not so many, or found none; it names the table and the
/// command that counts. O(rows log rows).
std::vector<Range> hottest_rows(const spec::Config& config,
                                std::int64_t table,
                                const std::vector<HotRows>& measured,
                                std::int64_t rows);

/// How many rows of a table can be hot: those counted, or all but one of a table numbered by
/// frequency; 0 where nothing is known.
std::int64_t most_hot_rows(const spec::Config& config,
                           std::int64_t table,
                           const std::vector<HotRows>& measured);

/// Features that read the same rows of one table.
struct JointUse {
  std::vector<const FeatureUse*> features;
  FeatureUse joined;
};

/// How a table with hot rows is read. Never copied: the joint uses point into it.
struct HotUse {
  HotUse() = default;
  HotUse(const HotUse&) = delete;
  HotUse& operator=(const HotUse&) = delete;

  std::shared_ptr<const HotRanges> rows;
  double share = 0.0;  ///< of all ids that hot rows get
  JointUse hot;        ///< of hot rows alone: their ids, and popularity among them
  JointUse tail;       ///< of all ids; shards get what is not for hot rows (share_of_rows)

  std::vector<FeatureUse> features;  ///< of the hot rows, then of the tail
};

/// That of a feature, which must be among them.
const FeatureUse& of_feature(const JointUse& uses, std::int64_t feature);

/// Rows of a table's largest cut, where the others are like `rows`: for the width of ids.
inline std::int64_t largest_cut(const RowSet& rows, const HotUse* hot_use) {
  return hot_use == nullptr ? rows.size() : std::max(rows.size(), hot_use->rows->size());
}

/// How the tables of a job are read, each choice of hot rows looked at once. May be used by several
/// threads.
class HotUses {
 public:
  /// The workload outlives it.
  HotUses(const spec::Config& config, const Workload& workload);

  /// Null where `hot` is empty. O(hot rows + counted rows) the first time, then a comparison of
  /// ranges.
  [[nodiscard]] std::shared_ptr<const HotUse> of(std::int64_t table,
                                                 const std::vector<Range>& hot) const;

 private:
  struct Known {
    std::vector<Range> hot;
    std::shared_ptr<const HotUse> use;
  };

  [[nodiscard]] std::shared_ptr<const HotUse> make(std::int64_t table,
                                                   const std::vector<Range>& hot) const;

  const Workload& workload_;
  std::vector<std::int64_t> rows_;                            // [tables]
  std::vector<std::vector<const FeatureUse*>> features_;      // [tables]
  mutable std::mutex mutex_;                                  // of known_
  mutable std::map<std::int64_t, std::vector<Known>> known_;  // by table
};

}  // namespace weft::planner
