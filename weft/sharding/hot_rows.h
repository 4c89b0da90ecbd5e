/// Private to sharding/: the state of hot rows, in this rank's copy and in the shards that cover
/// them.
///
/// While a job trains, every rank's copy of the hot rows is right, and the shards' is old. Whoever
/// reads or writes all state (checkpoints, hashes) knows shards alone: before it reads, hot rows go
/// from the copy to the shards of this rank; after it has written, from the shards of all ranks to
/// every copy. Nothing is converted: of a mesh, sums of squares of hot rows are those of one group
/// in the shards too, while those of the other rows are multiples (train/mesh.h).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// A table with hot rows.
struct HotTable {
  const spec::TablePlan* plan = nullptr;
  embedding::TableShard* hot = nullptr;        ///< the copy
  std::vector<embedding::TableShard*> shards;  ///< as in the plan; null: on another rank
};

/// Copies the hot rows into this rank's shards. Inside a stage, as the next.
void store_hot(const HotTable& table);

/// Fills the copy of the hot rows from the shards of all ranks. Collective. Memory: the copy's
/// bytes, twice on one rank.
void load_hot(comm::Communicator& comm, Context& ctx, const HotTable& table);

}  // namespace weft::sharding
