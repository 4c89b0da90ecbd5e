/// Heads of hot rows (docs/sharding.md, "Hot rows"): which rows they are, and how a table is then
/// read.
///
/// Rows of a head are copied to every rank, those of its tail lie in shards as before. With q the
/// share of a feature's ids that fall on the head: a rank looks up q of its own ids in its copy,
/// the shards get the others. Popularity is cut in two likewise: of a table numbered by frequency
/// at the head's rows, of a measured one so that the head has the shares that were counted of its
/// rows, and the tail the rest. Nothing measured: rows of a table that hashing scatters are as hot
/// as any.
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

/// The `rows` most frequent rows of a table, as ranges for TablePlan::head; fewer where fewer ever
/// occurred. Of tables numbered by frequency (all features map by vocabulary) the first ones, of
/// others those of `measured` ([tables], or empty: nothing is known). Throws Error(kConfig) where
/// nobody counted the table's rows, or not so many, or found none; it names the table and the
/// command that counts. O(rows log rows).
std::vector<Range> hottest_rows(const spec::Config& config,
                                std::int64_t table,
                                const std::vector<HotRows>& measured,
                                std::int64_t rows);

/// How many rows can be a head of a table: those counted, or all but one of a table numbered by
/// frequency; 0 where nothing is known.
std::int64_t most_hot_rows(const spec::Config& config,
                           std::int64_t table,
                           const std::vector<HotRows>& measured);

/// Features that read the same rows of one table.
struct JointUse {
  std::vector<const FeatureUse*> features;
  FeatureUse joined;
};

/// How a table with a head is read. Never copied: the features point into it.
struct HeadedUse {
  HeadedUse() = default;
  HeadedUse(const HeadedUse&) = delete;
  HeadedUse& operator=(const HeadedUse&) = delete;

  std::shared_ptr<const HeadRows> rows;
  double share = 0.0;  ///< of all ids that the head gets
  JointUse head;       ///< of the head's rows alone: their ids, and popularity among them
  JointUse tail;       ///< of all ids; shards get what is not the head's (share_of_rows)

  std::vector<FeatureUse> features;  ///< of the head, then of the tail
};

/// That of a feature, which must be among them.
const FeatureUse& of_feature(const JointUse& uses, std::int64_t feature);

/// Rows of a table's largest cut, where the others are like `rows`: for the width of ids.
inline std::int64_t largest_cut(const RowSet& rows, const HeadedUse* headed) {
  return headed == nullptr ? rows.size() : std::max(rows.size(), headed->rows->size());
}

/// Headed tables of a job, each head looked at once. May be used by several threads.
class HeadUses {
 public:
  /// The workload outlives it.
  HeadUses(const spec::Config& config, const Workload& workload);

  /// Null where `head` is empty. O(head + counted rows) the first time, then a comparison of
  /// ranges.
  [[nodiscard]] std::shared_ptr<const HeadedUse> of(std::int64_t table,
                                                    const std::vector<Range>& head) const;

 private:
  struct Known {
    std::vector<Range> head;
    std::shared_ptr<const HeadedUse> use;
  };

  [[nodiscard]] std::shared_ptr<const HeadedUse> make(std::int64_t table,
                                                      const std::vector<Range>& head) const;

  const Workload& workload_;
  std::vector<std::int64_t> rows_;                            // [tables]
  std::vector<std::vector<const FeatureUse*>> features_;      // [tables]
  mutable std::mutex mutex_;                                  // of known_
  mutable std::map<std::int64_t, std::vector<Known>> known_;  // by table
};

}  // namespace weft::planner
