/// Private to planner/: what blocks of tables cost, each kind once. A table has thousands of shards
/// that differ in nothing an estimate depends on but their rows' number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/planner/hot_rows.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"

namespace weft::planner {

/// A number that depends on a cut of rows, once for all cuts that are alike.
template <typename Of>
class OncePerRows {
 public:
  OncePerRows(const FeatureUse& use, Of of)
      : distinct_(use.by_frequency || use.hot), of_(std::move(of)) {}

  double operator()(const RowSet& rows) {
    const RowSet key = distinct_ ? rows : RowSet(0, rows.size());
    for (const auto& [known, value] : known_) {
      if (known == key) {
        return value;
      }
    }
    if (known_.size() == kMost) {
      known_.clear();
    }
    return known_.emplace_back(key, of_(rows)).second;
  }

 private:
  static constexpr std::size_t kMost = 8;

  bool distinct_;  // by frequency or beside hot rows: equal numbers of rows differ
  Of of_;
  std::vector<std::pair<RowSet, double>> known_;
};

class ShardLoads {
 public:
  /// Which outlives it.
  explicit ShardLoads(const StepShape& shape);

  /// shard_cost(). Valid as long as this.
  const ShardLoad& of(const TableBlock& block);

  /// replica_cost(), likewise.
  const ShardLoad& replica(std::int64_t table);

 private:
  struct Key {
    std::int64_t table = 0;
    RowSet rows;  ///< of a table whose ids are scattered as many from 0 on
    std::int64_t cols = 0;
    std::int64_t column_shards = 0;
    spec::PooledAt pooled_at = spec::PooledAt::kOwner;
    const HotUse* hot_use = nullptr;
    std::int64_t hot_rows = 0;  ///< how many of the rows are hot

    friend bool operator==(const Key&, const Key&) = default;
  };

  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

  struct Recent {
    Key key;
    const ShardLoad* load = nullptr;
  };

  [[nodiscard]] std::int64_t count_hot(const HotUse& hot_use, const RowSet& rows);

  const StepShape& shape_;
  std::vector<bool> by_frequency_;  // [tables] that any feature reads so; shorter: not
  std::unordered_map<Key, ShardLoad, Hash> known_;
  std::array<Recent, 4> recent_ = {};  // of known_: pieces of a table come in a few sizes
  std::size_t oldest_ = 0;
  std::unordered_map<std::int64_t, ShardLoad> replicas_;  // by table
  /// Of hot rows and n: how many of them have which remainder by n.
  std::map<std::pair<const HotUse*, std::int64_t>, std::vector<std::int64_t>> remainders_;
};

}  // namespace weft::planner
