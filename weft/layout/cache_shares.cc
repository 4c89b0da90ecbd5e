#include "weft/layout/cache_shares.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/layout/tables.h"

namespace weft::layout {
namespace {

std::int64_t whole_bytes(const spec::Table& table, const spec::Shard& shard) {
  return shard_bytes(table, shard.rows.size(), shard.cols.size());
}

/// [ranks, or up to the last that has some] bytes of all shards that share a rank's caches.
std::vector<std::int64_t> sharing_bytes(const spec::Config& config, const spec::Plan& plan) {
  std::vector<std::int64_t> bytes;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (!shares_cache(config.tables[t])) {
      continue;
    }
    for (const spec::Shard& shard : plan.tables[t].shards) {
      bytes.resize(std::max(bytes.size(), at(shard.rank) + 1));
      bytes[at(shard.rank)] += whole_bytes(config.tables[t], shard);
    }
  }
  return bytes;
}

}  // namespace

CacheShares::CacheShares(const spec::Config& config, const spec::Plan& plan)
    : bytes_(plan.tables.size()) {
  const std::vector<std::int64_t> sharing = sharing_bytes(config, plan);
  const std::int64_t shared = spec::shared_cache_bytes(config.tiers, plan);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::Table& table = config.tables[t];
    if (table.memory.tier != spec::MemoryTier::kSsd) {
      continue;
    }
    if (shares_cache(table) && !plan.tables[t].caches.empty()) {
      bytes_[t] = plan.tables[t].caches;
      continue;
    }
    for (const spec::Shard& shard : plan.tables[t].shards) {
      bytes_[t].push_back(shares_cache(table) ? cache_share(shared, whole_bytes(table, shard),
                                                            sharing[at(shard.rank)])
                                              : table.memory.cache_bytes);
    }
  }
}

}  // namespace weft::layout
