#include "weft/planner/shard_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/at.h"
#include "weft/cost/memory.h"
#include "weft/cost/row_sums.h"
#include "weft/cost/tables.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/listed_bags.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_cost.h"
#include "weft/planner/codec_cost.h"
#include "weft/planner/fetched_cost.h"
#include "weft/planner/mesh_cost.h"
#include "weft/planner/owner_cost.h"
#include "weft/planner/step_counts.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using topology::copy_s;

constexpr double kReplicaEntry = 12.0;  // row, part and place of a partial row

/// Sums of a row's gradients are written, squared for the other shards of its rows, and read again;
/// with a norm that is limited so are the updated rows.
void add_row_statistics(const StepShape& shape, ShardLoad& load, const TableBlock& block) {
  const spec::SparseOptimizer& optimizer = shape.config.tables[at(block.table)].optimizer;
  const std::int64_t cols = block.cols.size();
  const double times =
      (traits(optimizer.type).is_row_wise ? 1.0 : 0.0) + (optimizer.max_norm > 0.0 ? 1.0 : 0.0);
  if (block.column_shards < 2 || times == 0.0) {
    return;
  }
  const double vectors = cost::kFloatBytes * static_cast<double>(cols) * load.unique;
  load.update_s += copy_s(shape.cluster, 3.0 * times * vectors);
  const auto blocks = static_cast<double>(layout::column_blocks(cols));
  load.statistic_bytes = cost::kFloatBytes * times * load.unique * blocks *
                         static_cast<double>(block.column_shards - 1);
}

/// Counts of a slot in a lane of one rank that is packed, with so many ids.
double lane_count_bytes(const StepShape& shape, double ids, bool is_split) {
  if (!layout::packs_id_lanes(shape.ranks)) {
    return 0.0;
  }
  const auto bags = static_cast<std::int64_t>(std::ceil(shape.samples));
  const bool is_listed = is_split && layout::lists_bags(ids, bags);
  return layout::slot_count_bytes(layout::share_with_ids(ids), ids, is_listed ? 0.0 : 1.0, 0.0);
}

/// Rows of a table that every rank has.
struct Copies {
  std::int64_t table = 0;
  std::int64_t rows = 0;
  const std::vector<const FeatureUse*>& features;  ///< that read them
  const FeatureUse& joined;                        ///< these as one
  bool fetched = false;                            ///< bags are added at the samples
  bool whole = false;                              ///< of a data_parallel table, and not hot rows
};

/// Where bags are added at the sample, rows that this rank asks for are read once and their
/// partial sums, made there, come as entries (fetched_cost.cc).
ShardLoad copies_cost(const StepShape& shape, const Copies& copies) {
  const spec::Table& table = shape.config.tables[at(copies.table)];
  const std::int64_t held = copies.rows;
  const FeatureUse& use = copies.joined;
  const double width = cost::kFloatBytes * static_cast<double>(table.embedding_dim);
  ShardLoad load{.bytes = copies.whole ? layout::resident_bytes(table, held, table.embedding_dim)
                                       : layout::shard_bytes(table, held, table.embedding_dim)};
  double vectors = 0.0;
  if (copies.fetched) {
    const Asked own = asked(shape, use, shape.samples * use.length);
    load.lookup_s = cost::lookup_s(shape.cluster, table, table.embedding_dim,
                                   {.ids = own.rows, .cold = 0.0, .pooled = false});
    // As if they travelled; their other ends are in fetched_cost.cc.
    load.encode_s = encode_s(shape, shape.config.codecs.forward, table.embedding_dim, own.rows);
    load.decode_s =
        decode_s(shape, shape.config.codecs.backward, table.embedding_dim, own.partials);
    load.ids = own.partials;
    vectors = own.partials;
  }
  for (std::size_t f = 0; f < copies.features.size() && !copies.fetched; ++f) {
    const FeatureUse& one = *copies.features[f];
    const double ids = shape.samples * one.length;
    const cost::ShardWork read{.ids = ids,
                               .bags = shape.samples * one.present,
                               .hot = near_share(shape, one, ids, width),
                               .cold = shape.cold,
                               .pooled = one.pooled};
    load.lookup_s += cost::lookup_s(shape.cluster, table, table.embedding_dim, read);
    load.ids += ids;
    vectors += one.pooled ? shape.samples * one.present : ids;
  }
  const Asked own = asked(shape, use, shape.samples * use.length);
  load.unique = unique_rows(use, static_cast<double>(shape.config.batch_size) * use.length);
  const auto rows = static_cast<double>(held);
  const cost::ShardWork read{.rows = rows,
                             .ids = load.ids,
                             .unique = own.rows,
                             .bags = vectors,
                             .cold = shape.cold,
                             .pooled = true};
  load.coalesce_s = cost::coalesce_s(shape.cluster, held, read);
  if (shape.world_ranks == 1) {
    load.update_s = cost::update_s(shape.cluster, table, table.embedding_dim, read);
    return load;
  }
  // A rank adds up its own rows; all ranks' partial rows, or the sums of their owners, are sorted
  // together, each being an entry with a gradient of its own, and every replica updates what any
  // rank touched.
  const cost::SummedTable sums{
      .rows = held, .cols = table.embedding_dim, .partials = own.partials, .touched = load.unique};
  const bool owned = layout::row_sums(shape.world_ranks) == layout::RowSums::kOwned;
  const auto world = static_cast<double>(shape.world_ranks);
  const double partial = owned ? load.unique : own.partials * world;
  const cost::ShardWork merged{.rows = rows,
                               .ids = partial,
                               .unique = load.unique,
                               .bags = partial,
                               .cold = 1.0,
                               .pooled = true,
                               .mixed = true};
  load.update_s = cost::gradients_s(shape.cluster, table.embedding_dim, read) +
                  std::max(0.0, load.ids - own.partials) * shape.cluster.compute.repeat.value +
                  copy_s(shape.cluster, own.partials * (kReplicaEntry + width)) +
                  (owned ? owner_s(shape, sums, world) : 0.0) +
                  cost::coalesce_s(shape.cluster, held, merged) +
                  cost::update_s(shape.cluster, table, table.embedding_dim, merged);
  load.partials = own.partials;
  load.statistic_bytes = cost::row_sum_bytes(shape.world_ranks, sums);
  return load;
}

}  // namespace

ShardLoad shard_cost(const StepShape& shape, const TableBlock& block) {
  const std::int64_t t = block.table;
  const RowSet& rows = block.rows;
  const Range& cols = block.cols;
  const HotUse* const hot_use = block.hot_use;
  const spec::Table& table = shape.config.tables[at(t)];
  const std::vector<const FeatureUse*>& features =
      hot_use != nullptr ? hot_use->tail.features : shape.by_table[at(t)];
  const FeatureUse& joint = hot_use != nullptr ? hot_use->tail.joined : shape.joined[at(t)];
  if (block.pooled_at == spec::PooledAt::kSample) {
    ShardLoad load = fetched_shard_cost(shape, block);
    add_row_statistics(shape, load, block);
    return load;
  }
  const auto id_bytes = static_cast<double>(spec::id_bytes(largest_cut(rows, hot_use)));
  const bool is_split = rows.size() < table.num_embeddings || hot_use != nullptr;
  const cost::RowShape row = cost::row_shape(table, cols.size());
  ShardLoad load{.bytes = layout::resident_bytes(table, rows.size(), cols.size())};
  double vectors = 0.0;
  for (const FeatureUse* use : features) {
    const double share = share_of_rows(*use, rows, table.num_embeddings);
    const FeatureUse held = use_of_rows(*use, rows, table.num_embeddings);
    const double ids = shape.batch * use->length * share;
    const double bags = bags_of(*use, share, shape.batch);
    const cost::ShardWork work{.ids = ids,
                               .bags = bags,
                               .hot = near_share(shape, held, ids, row.weights),
                               .cold = shape.cold,
                               .pooled = use->pooled};
    load.lookup_s += cost::lookup_s(shape.cluster, table, cols.size(), work);
    const double own_ids = (ids / shape.batch) * shape.samples;  // of one rank's samples
    load.ids += ids;
    load.asked_ids += own_ids;
    load.ids_bytes += bag_bytes(*use, share, is_split, shape.samples) +
                      lane_count_bytes(shape, own_ids, is_split) +
                      own_ids * (id_bytes + (use->weighted ? cost::kFloatBytes : 0.0));
    vectors += use->pooled ? bags : ids;
  }
  // Entries of all features are sorted and added up together.
  const FeatureUse held = use_of_rows(joint, rows, table.num_embeddings);
  load.unique = std::min(unique_rows(held, load.ids), static_cast<double>(rows.size()));
  const cost::ShardWork all{.rows = static_cast<double>(rows.size()),
                            .ids = load.ids,
                            .unique = load.unique,
                            .bags = vectors,
                            .cold = shape.cold,
                            .pooled = true,
                            .mixed = shape.ranks > 1};
  load.coalesce_s = cost::coalesce_s(shape.cluster, rows.size(), all);
  load.update_s = cost::update_s(shape.cluster, table, cols.size(), all);
  const double own = vectors / shape.batch * shape.samples;  // of one rank's samples
  load.vector_bytes = own * encoded_width(shape, shape.config.codecs.forward, cols.size());
  load.gradient_bytes = own * encoded_width(shape, shape.config.codecs.backward, cols.size());
  const bool whole = rows.size() == table.num_embeddings;
  const double others = vectors * (1.0 - 1.0 / static_cast<double>(shape.ranks));
  load.encode_s =
      encode_s(shape, shape.config.codecs.forward, cols.size(), whole ? others : vectors);
  load.decode_s = decode_s(shape, shape.config.codecs.backward, cols.size(), others);
  add_sync(shape, load,
           {.table = t,
            .rows = rows.size(),
            .cols = cols.size(),
            .held = held,
            .ids = load.ids,
            .update = all});
  add_row_statistics(shape, load, block);
  return load;
}

ShardLoad replica_cost(const StepShape& shape, std::int64_t t) {
  return copies_cost(shape, {.table = t,
                             .rows = shape.config.tables[at(t)].num_embeddings,
                             .features = shape.by_table[at(t)],
                             .joined = shape.joined[at(t)],
                             .whole = true});
}

ShardLoad hot_rows_cost(const StepShape& shape,
                        std::int64_t t,
                        const HotUse& hot_use,
                        spec::PooledAt pooled_at) {
  return copies_cost(shape, {.table = t,
                             .rows = hot_use.rows->size(),
                             .features = hot_use.hot.features,
                             .joined = hot_use.hot.joined,
                             .fetched = pooled_at == spec::PooledAt::kSample});
}

double work_s(const ShardLoad& load) {
  return load.lookup_s + load.coalesce_s + load.update_s + load.encode_s + load.decode_s;
}

double link_s(const StepShape& shape, const ShardLoad& load) {
  if (shape.ranks == 1) {
    return 0.0;
  }
  const bool network = topology::hosts(shape.cluster) > 1;
  const auto here = static_cast<double>(topology::ranks_of_host(shape.cluster, 0).count);
  const auto others = static_cast<double>(shape.ranks) - (network ? here : 1.0);
  const topology::Link& link = topology::link(
      shape.cluster, network ? topology::LinkClass::kNetwork : topology::LinkClass::kHost);
  // Ids come in; vectors go out, and their gradients come back.
  const double bytes =
      others * (load.ids_bytes + load.vector_bytes + load.gradient_bytes) + load.statistic_bytes;
  return bytes / link.rank.achieved() + (shape.mesh == nullptr ? 0.0 : sync_link_s(shape, load));
}

/// Vectors for all ranks, and entries (step_memory.h).
std::int64_t buffer_bytes(const StepShape& shape, const ShardLoad& load) {
  const auto entries = layout::run_lengths(layout::Expected{load.ids}, layout::Expected{});
  return static_cast<std::int64_t>(
      shape.in_flight *
      (static_cast<double>(shape.ranks) * load.vector_bytes + layout::total_bytes(entries).value));
}

}  // namespace weft::planner
