/// Bytes of the caches of a plan's shards whose rows lie on disks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::layout {

/// What each shard of a plan has of caches: a table with a cache_bytes has that on each of its
/// shards; the others of a rank share what it has (spec::shared_cache_bytes()), as the plan says
/// (TablePlan::caches), or else by the bytes of the shards. A value.
class CacheShares {
 public:
  /// O(shards). REQUIRES: a checked plan.
  CacheShares(const spec::Config& config, const spec::Plan& plan);

  /// Of a shard, by its table and its place among the table's; 0 where its rows are in memory.
  [[nodiscard]] std::int64_t bytes(std::size_t table, std::size_t shard) const {
    return bytes_[table].empty() ? 0 : bytes_[table][shard];
  }

 private:
  std::vector<std::vector<std::int64_t>> bytes_;  ///< [tables][shards], or empty: not on disks
};

}  // namespace weft::layout
