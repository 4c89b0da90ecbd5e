#include "weft/sharding/routing.h"

#include <limits>

#include "weft/base/error.h"

namespace weft::sharding {
namespace {

Slot make_slot(std::int64_t table, const spec::TablePlan& plan, std::size_t shard) {
  Slot slot;
  slot.table = table;
  slot.shard = static_cast<std::int64_t>(shard);
  slot.rows = plan.shards[shard].rows;
  slot.cols = plan.shards[shard].cols;
  slot.wide_ids = slot.rows.size() > std::numeric_limits<std::int32_t>::max();
  return slot;
}

/// A table whose rows are not cut is looked up as any other, whatever its plan says.
bool is_fetched(const spec::TablePlan& plan) {
  return plan.pooled_at == spec::PooledAt::kSample &&
         plan.shards.front().rows != plan.shards.back().rows;
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
    route.weighted = feature.weighted;
    route.dim = config.tables[table].embedding_dim;
    route.num_embeddings = config.tables[table].num_embeddings;
    if (feature.pooling != spec::Pooling::kNone) {
      route.pooled_column = pooled_columns;
      pooled_columns += route.dim;
    }
    features.push_back(std::move(route));
    if (!is_fetched(table_plan)) {
      add_slots(table_plan, static_cast<std::int64_t>(f));
    }
  }
  add_fetched(config, plan);
}

void Routing::add_slots(const spec::TablePlan& plan, std::int64_t feature) {
  FeatureRoute& route = features[static_cast<std::size_t>(feature)];
  const bool replicated_table = route.sharding == spec::Sharding::kDataParallel;
  const std::size_t shards = replicated_table ? 1 : plan.shards.size();
  for (std::size_t k = 0; k < shards; ++k) {
    Slot slot = make_slot(route.table, plan, k);
    slot.feature = feature;
    slot.sequence = route.pooling == spec::Pooling::kNone;
    slot.weighted = route.weighted;
    const std::int64_t server = replicated_table ? ranks : plan.shards[k].rank;
    auto& list = served[static_cast<std::size_t>(server)];
    route.slots.push_back({server, static_cast<std::int64_t>(list.size())});
    if (slot.cols.begin == 0) {
      route.rows.push_back(slot.rows);
    }
    list.push_back(slot);
  }
  route.col_cuts = static_cast<std::int64_t>(shards) / route.row_cuts();
}

void Routing::add_fetched(const spec::Config& config, const spec::Plan& plan) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    RowFetch fetch;
    fetch.table = static_cast<std::int64_t>(t);
    fetch.dim = config.tables[t].embedding_dim;
    const auto number = static_cast<std::int64_t>(fetches.size());
    for (std::size_t f = 0; f < features.size() && is_fetched(plan.tables[t]); ++f) {
      if (features[f].table == fetch.table) {
        fetch.features.push_back(static_cast<std::int64_t>(f));
        features[f].fetch = number;
      }
    }
    if (fetch.features.empty()) {
      continue;
    }
    const auto& shards = plan.tables[t].shards;
    for (std::size_t k = 0; k < shards.size(); ++k) {
      Slot slot = make_slot(fetch.table, plan.tables[t], k);
      slot.feature = -1;
      slot.sequence = true;
      slot.fetch = number;
      auto& list = served[static_cast<std::size_t>(shards[k].rank)];
      fetch.slots.push_back({shards[k].rank, static_cast<std::int64_t>(list.size())});
      if (slot.cols.begin == 0) {
        fetch.rows.push_back(slot.rows);
      }
      list.push_back(slot);
    }
    fetch.col_cuts = static_cast<std::int64_t>(shards.size()) / fetch.row_cuts();
    fetches.push_back(std::move(fetch));
  }
}

}  // namespace weft::sharding
