#include "weft/sharding/routing.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::sharding {
namespace {

bool is_fetched(const spec::TablePlan& plan) {
  return layout::path_of(plan) == Path::kUniqueRows;
}

std::int64_t count_rows(const std::vector<Range>& ranges) {
  std::int64_t rows = 0;
  for (const Range& range : ranges) {
    rows += range.size();
  }
  return rows;
}

}  // namespace

Routing::Routing(const spec::Config& config, const spec::Plan& plan, std::int64_t group)
    : ranks(plan.ranks),
      parts(plan.parts),
      positions(plan.world()),
      first_position(group * plan.ranks),
      micro_batches(config.pipeline.cuts()),
      served(static_cast<std::size_t>(plan.ranks) + 1) {
  add_features(config, plan);
  add_fetched(config, plan);
}

void Routing::add_features(const spec::Config& config, const spec::Plan& plan) {
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    FeatureRoute route;
    route.name = feature.name;
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
    route.is_here = !table_plan.shards.empty();
    if (!is_fetched(table_plan) && route.is_here) {
      Slot slot;
      slot.feature = static_cast<std::int64_t>(f);
      slot.table = route.table;
      slot.sequence = route.pooling == spec::Pooling::kNone;
      slot.weighted = route.weighted;
      slot.cols = {0, route.dim};
      slot.path = layout::path_of(table_plan);
      add_slots(table_plan, slot, route);
      route.path = slot.path;
    }
    features.push_back(std::move(route));
  }
}

/// A slot like `slot` for every shard, and for the hot rows.
void Routing::add_slots(const spec::TablePlan& plan, const Slot& slot, RowCuts& cuts) {
  const auto add = [&](std::int64_t server, const Slot& one) {
    auto& list = served[static_cast<std::size_t>(server)];
    cuts.slots.push_back({server, static_cast<std::int64_t>(list.size())});
    list.push_back(one);
  };
  const bool replicated_table = plan.sharding == spec::Sharding::kDataParallel;
  const std::size_t shards = replicated_table ? 1 : plan.shards.size();
  std::int64_t most_rows = count_rows(plan.hot);
  for (const spec::Shard& shard : plan.shards) {
    most_rows = std::max(most_rows, shard.rows.size());
  }
  for (std::size_t k = 0; k < shards; ++k) {
    const spec::Shard& shard = plan.shards[k];
    Slot one = slot;
    if (shard.cols.begin == 0) {
      cuts.rows.push_back(shard.rows);
    }
    one.shard = static_cast<std::int64_t>(k);
    one.rows = shard.rows;
    one.cols = shard.cols;
    one.id_bytes = spec::id_bytes(most_rows);
    one.row_cut = static_cast<std::int64_t>(cuts.rows.size()) - 1;
    add(replicated_table ? replicated() : shard.rank, one);
  }
  cuts.col_cuts = static_cast<std::int64_t>(shards / cuts.rows.size());
  if (!plan.hot.empty()) {
    Slot hot = slot;
    hot.shard = kHotShard;
    hot.row_cut = static_cast<std::int64_t>(cuts.rows.size());
    hot.path = Path::kHotRows;
    hot.tail = slot.path;
    hot.rows = Range{0, count_rows(plan.hot)};
    hot.id_bytes = spec::id_bytes(most_rows);
    add(replicated(), hot);
    cuts.hot = plan.hot;
  }
}

void Routing::add_fetched(const spec::Config& config, const spec::Plan& plan) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    RowFetch fetch;
    fetch.table = static_cast<std::int64_t>(t);
    fetch.name = config.tables[t].name;
    fetch.dim = config.tables[t].embedding_dim;
    const auto number = static_cast<std::int64_t>(fetches.size());
    for (std::size_t f = 0; f < features.size() && is_fetched(plan.tables[t]); ++f) {
      if (features[f].table == fetch.table) {
        fetch.features.push_back(static_cast<std::int64_t>(f));
        features[f].fetch = number;
        features[f].path = Path::kUniqueRows;
      }
    }
    if (fetch.features.empty()) {
      continue;
    }
    Slot slot;
    slot.feature = -1;
    slot.table = fetch.table;
    slot.sequence = true;
    slot.fetch = number;
    slot.path = Path::kUniqueRows;
    slot.packed = config.codecs.ids == spec::IdCodec::kPacked;
    slot.cols = {0, fetch.dim};
    add_slots(plan.tables[t], slot, fetch);
    fetches.push_back(std::move(fetch));
  }
}

Path Routing::asks(std::int64_t feature, std::int64_t rank) const {
  const FeatureRoute& route = features[static_cast<std::size_t>(feature)];
  const bool in_place = std::all_of(
      route.slots.begin(), route.slots.end(),
      [&](const SlotAddress& address) { return path(address, rank) == Path::kInPlace; });
  return route.path == Path::kWholeBags && in_place ? Path::kInPlace : route.path;
}

}  // namespace weft::sharding
