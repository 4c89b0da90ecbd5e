/// Private to train: what a job does about its mesh (weft/spec/mesh.h) before it trains.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/spec/config.h"
#include "weft/spec/mesh.h"
#include "weft/spec/plan.h"

namespace weft::train {

/// The ranks of the world in the order of their positions; null where that is their order. From
/// here on ranks are positions: they decide samples and parts. Collective.
std::unique_ptr<comm::Communicator> order_by_position(comm::Communicator& world,
                                                      const spec::Plan& plan);

/// Throws Error(kConfig) naming the nearest intervals unless checkpoints every `every` steps (0:
/// none) are made when replicas are equal.
void check_checkpoint_interval(const spec::Mesh& mesh, std::int64_t every);

/// "rank r of the world is in group r / 4": what messages that name ranks are read with.
std::string describe_groups(const spec::Plan& plan);

/// What became of the groups of a job that has lost these ranks of the world, and how it goes on
/// without them. `checkpoint`: to resume from; empty: there is none.
std::string describe_lost_ranks(const spec::Plan& plan,
                                std::span<const int> lost,
                                const std::string& checkpoint);

/// What a table's Adagrad sums are multiples of: c, and of its hot rows 1, since these are kept as
/// one group would have them.
struct MomentScale {
  double scale = 1.0;
  std::vector<Range> unscaled;  ///< ascending, apart

  /// Returns 1 for a row of `unscaled` and `scale` for any other. O(log ranges).
  [[nodiscard]] double of(std::int64_t row) const;

  friend bool operator==(const MomentScale&, const MomentScale&) = default;
};

/// Of the tables where c is not 1, by name. A checkpoint records them.
using MomentScales = std::map<std::string, MomentScale>;

/// Returns the scales that the tables have under this plan. Of data_parallel tables and of
/// optimizers without scaled sums (optim::has_scaled_moment) there is none.
MomentScales moment_scales(const spec::Config& config, const spec::Plan& plan);

/// c, or {"scale": c, "unscaled_rows": [[begin, end], ...]}.
void to_json(nlohmann::json& json, const MomentScale& scale);

/// Those in "moment_scales" of a checkpoint's extra_json; none where that is not there. Throws
/// Error(kCheckpoint) where they are not what to_json() writes.
MomentScales saved_moment_scales(const std::string& extra_json);

/// Multiplies the sums of a shard that was saved with scales `from` so that they have scales `to`:
/// the shard trains on with the same steps. Exact where to/from is a power of two; rows whose scale
/// is the same keep their bits. Inside a stage. Of rows that are not all in memory those that exist
/// are visited, where the others' sums are 0; with an initial_accumulator all rows, which exist
/// afterwards.
void rescale_moments(embedding::TableShard& shard, const MomentScale& from, const MomentScale& to);

}  // namespace weft::train
