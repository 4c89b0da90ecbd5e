/// What a job's tables have asked of memories other than dense ones, summed over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/config.h"
#include "weft/storage/row_tier.h"
#include "weft/storage/segment_store.h"

namespace weft::train {

/// Of one table with memory.tier lazy or ssd.
struct TableTier {
  std::string table;
  spec::MemoryTier tier = spec::MemoryTier::kLazy;
  storage::TierCounts counts;
};

/// Of all such tables of a job, since it began, evaluations included.
struct TierFigures {
  std::vector<TableTier> tables;  ///< in the order of the configuration
  storage::StoreCounts disks;     ///< of all ranks' stores

  [[nodiscard]] bool empty() const { return tables.empty(); }
};

/// Of this rank alone.
TierFigures own_tier_figures(const spec::Config& config, const sharding::ShardedEmbeddings& tables);

/// Sums over the ranks of `comm`. Collective; equal on all ranks.
TierFigures tier_figures(comm::Communicator& comm,
                         Context& ctx,
                         const spec::Config& config,
                         const sharding::ShardedEmbeddings& tables);

}  // namespace weft::train
