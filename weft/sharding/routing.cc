#include "weft/sharding/routing.h"

#include <limits>

#include "weft/base/error.h"

namespace weft::sharding {
namespace {

Slot make_slot(const spec::SparseFeature& feature, const spec::Shard& shard) {
  Slot slot;
  slot.rows = shard.rows;
  slot.cols = shard.cols;
  slot.sequence = feature.pooling == spec::Pooling::kNone;
  slot.weighted = feature.weighted;
  slot.wide_ids = shard.rows.size() > std::numeric_limits<std::int32_t>::max();
  return slot;
}

}  // namespace

Routing::Routing(const spec::Config& config, const spec::Plan& plan)
    : ranks(plan.ranks), parts(plan.parts), served(static_cast<std::size_t>(plan.ranks) + 1) {
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    FeatureRoute route;
    route.table = spec::table_index(config, feature);
    const auto table = static_cast<std::size_t>(route.table);
    const spec::TablePlan& table_plan = plan.tables.at(table);
    route.sharding = table_plan.sharding;
    route.pooling = feature.pooling;
    route.dim = config.tables[table].embedding_dim;
    route.num_embeddings = config.tables[table].num_embeddings;
    if (feature.pooling != spec::Pooling::kNone) {
      route.pooled_column = pooled_columns;
      pooled_columns += route.dim;
    }
    const bool replicated_table = route.sharding == spec::Sharding::kDataParallel;
    const std::size_t shards = replicated_table ? 1 : table_plan.shards.size();
    for (std::size_t k = 0; k < shards; ++k) {
      const spec::Shard& shard = table_plan.shards[k];
      Slot slot = make_slot(feature, shard);
      slot.feature = static_cast<std::int64_t>(f);
      slot.table = route.table;
      slot.shard = static_cast<std::int64_t>(k);
      const std::int64_t server = replicated_table ? ranks : shard.rank;
      auto& list = served[static_cast<std::size_t>(server)];
      route.slots.push_back({server, static_cast<std::int64_t>(list.size())});
      if (slot.cols.begin == 0) {
        route.rows.push_back(shard.rows);
      }
      list.push_back(slot);
    }
    route.col_cuts = static_cast<std::int64_t>(shards) / route.row_cuts();
    features.push_back(std::move(route));
  }
}

}  // namespace weft::sharding
