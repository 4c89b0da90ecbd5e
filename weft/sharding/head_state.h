/// Private to sharding/: the state of a head's rows, here and in the shards that cover them.
///
/// While a job trains the head has them, and the shards' copies are old. Whoever reads or writes
/// all state (checkpoints, hashes) knows shards alone: before it reads, rows go from the head to
/// the shards of this rank; after it has written, from all ranks' shards to the heads. Nothing is
/// converted: of a mesh, sums of squares of a head's rows are those of one group in the shards too,
/// while those of the other rows are multiples (train/mesh.h).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

struct HeadedTable {
  const spec::TablePlan* plan = nullptr;
  embedding::TableShard* head = nullptr;
  std::vector<embedding::TableShard*> shards;  ///< as in the plan; null: on another rank
};

/// Copies the head's rows into this rank's shards. Inside a stage, as the next.
void store_head(const HeadedTable& table);

/// Fills the head from the shards of all ranks. Collective. Memory: the head's bytes, twice on one
/// rank.
void load_head(comm::Communicator& comm, Context& ctx, const HeadedTable& table);

}  // namespace weft::sharding
