#include "weft/planner/fetched_cost.h"

#include <algorithm>
#include <vector>

#include "weft/base/at.h"
#include "weft/cost/codec.h"
#include "weft/cost/memory.h"
#include "weft/cost/tables.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_cost.h"
#include "weft/planner/codec_cost.h"
#include "weft/planner/hot_rows.h"
#include "weft/planner/mesh_cost.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using topology::copy_s;

constexpr double kHashLine = 64.0;     // what a look into a hash table moves
constexpr double kFoundRow = 50.0;     // written per row that is asked for
constexpr double kSortedRow = 128.0;   // three passes, and packed
constexpr double kEntryLengths = 8.0;  // two runs per subtree, per shard

/// Of the rows of a shard that one rank asks for with `ids` ids: two lists per subtree of its
/// parts, of rows that are new and of those that an earlier one has (weft/sharding/unique_rows.h).
double fetched_id_bytes(const StepShape& shape,
                        const TableBlock& block,
                        const FeatureUse& held,
                        double ids,
                        const Asked& one) {
  const auto id_bytes = static_cast<double>(spec::id_bytes(largest_cut(block.rows, block.hot_use)));
  if (shape.config.codecs.ids == spec::IdCodec::kNarrow) {
    return id_bytes * one.partials;
  }
  // By frequency, rows lie in the order of their segments; otherwise those in use lie anywhere.
  std::vector<cost::DrawnRows> fresh;
  std::vector<cost::DrawnRows> again;
  double bytes = 0.0;
  double before = 0.0;
  for (const double share : shape.subtrees) {
    fresh.clear();
    again.clear();
    const auto add = [&](const FeatureUse& use, double among) {
      const double all = unique_rows(use, ids * share);
      const double first =
          std::min(all, unique_rows(use, ids * (before + share)) - unique_rows(use, ids * before));
      fresh.push_back({among, first});
      again.push_back({among, all - first});
    };
    if (held.by_frequency) {
      FeatureUse segment = held;
      for (const AccessSegment& one_segment : held.segments) {
        segment.segments.assign(1, one_segment);
        add(segment, one_segment.rows);
      }
    } else {
      add(held, static_cast<double>(block.rows.size()));
    }
    bytes += cost::packed_id_bytes(fresh, id_bytes) + cost::packed_id_bytes(again, id_bytes);
    before += share;
  }
  return bytes;
}

}  // namespace

Asked asked(const StepShape& shape, const FeatureUse& held, double ids) {
  Asked asked{.rows = unique_rows(held, ids)};
  for (const double share : shape.subtrees) {
    asked.partials += unique_rows(held, ids * share);
  }
  return asked;
}

/// Every rank's rows are read once and sent in the order of its list, and its partial gradients are
/// sorted with those of the others.
ShardLoad fetched_shard_cost(const StepShape& shape, const TableBlock& block) {
  const std::int64_t t = block.table;
  const RowSet& rows = block.rows;
  const Range& cols = block.cols;
  const HotUse* const hot_use = block.hot_use;
  const spec::Table& table = shape.config.tables[at(t)];
  const auto ranks = static_cast<double>(shape.ranks);
  const double width = cost::kFloatBytes * static_cast<double>(cols.size());
  const FeatureUse& use = hot_use != nullptr ? hot_use->tail.joined : shape.joined[at(t)];
  ShardLoad load{.bytes = layout::resident_bytes(table, rows.size(), cols.size())};
  const FeatureUse held = use_of_rows(use, rows, table.num_embeddings);
  const double share = share_of_rows(use, rows, table.num_embeddings);
  const double asking = shape.samples * use.length * share;
  const Asked one = asked(shape, held, asking);  // by one rank
  load.unique = unique_rows(held, shape.batch * use.length * share);
  load.ids = ranks * one.rows;
  const double row_bytes = cost::row_shape(table, cols.size()).weights;
  // What another rank has asked for before is near where a rank's rows fit the cache.
  const bool stays = one.rows * row_bytes <= shape.cluster.compute.cache.value;
  const cost::ShardWork read{.ids = load.ids,
                             .unique = load.unique,
                             .hot = stays && load.ids > 0.0 ? 1.0 - load.unique / load.ids : 0.0,
                             .cold = 0.0,
                             .pooled = false};
  const double partials = ranks * one.partials;
  const cost::ShardWork merged{.ids = partials,
                               .unique = load.unique,
                               .bags = partials,
                               .cold = 1.0,
                               .pooled = true,
                               .mixed = shape.ranks > 1};
  load.lookup_s = cost::lookup_s(shape.cluster, table, cols.size(), read);
  load.coalesce_s = cost::coalesce_s(shape.cluster, rows.size(), merged);
  load.encode_s = encode_s(shape, shape.config.codecs.forward, cols.size(), load.ids);
  load.decode_s = decode_s(shape, shape.config.codecs.backward, cols.size(), partials);
  const bool coded = shape.config.codecs.backward != CodecFormat::kFp32;
  load.update_s = (coded ? 0.0 : copy_s(shape.cluster, 2.0 * width * partials)) +  // to one place
                  cost::update_s(shape.cluster, table, cols.size(), merged);
  const double rows_bytes = fetched_id_bytes(shape, block, held, asking, one);
  const double asks = layout::share_with_ids(asking);  // the share of ranks that want any row
  load.asked_ids = asking;
  load.ids_bytes = kEntryLengths * static_cast<double>(shape.subtrees.size()) * asks + rows_bytes;
  if (layout::packs_id_lanes(shape.ranks)) {
    const bool packed = shape.config.codecs.ids == spec::IdCodec::kPacked;
    load.ids_bytes += layout::slot_count_bytes(asks, one.partials, 0.0, packed ? rows_bytes : 0.0);
  }
  load.vector_bytes = encoded_width(shape, shape.config.codecs.forward, cols.size()) * one.rows;
  load.gradient_bytes =
      encoded_width(shape, shape.config.codecs.backward, cols.size()) * one.partials;
  add_sync(shape, load,
           {.table = t,
            .rows = rows.size(),
            .cols = cols.size(),
            .held = held,
            .ids = shape.batch * use.length * share,
            .update = merged});
  return load;
}

/// At the sample: an id is looked up in a hash table, rows come into one matrix, bags are added
/// from there as from a table of fp32 rows, and on the way back their gradients are summed.
void add_fetched_table(const StepShape& shape, PlanCost& cost, std::int64_t t) {
  if (shape.by_table[at(t)].empty()) {
    return;
  }
  spec::Table matrix = shape.config.tables[at(t)];
  matrix.dtype = spec::RowDType::kFp32;
  const std::int64_t dim = matrix.embedding_dim;
  const double width = cost::kFloatBytes * static_cast<double>(dim);
  const double ids = shape.samples * shape.joined[at(t)].length;
  const Asked own = asked(shape, shape.joined[at(t)], ids);
  double lookup_s = 0.0;
  double vectors = 0.0;
  for (const FeatureUse* use : shape.by_table[at(t)]) {
    const double looked_up = shape.samples * use->length;
    const cost::ShardWork work{.ids = looked_up,
                               .bags = shape.samples * use->present,
                               .hot = near_share(shape, *use, looked_up, width),
                               .cold = shape.cold,
                               .pooled = use->pooled};
    lookup_s += cost::lookup_s(shape.cluster, matrix, dim, work);
    vectors += use->pooled ? work.bags : work.ids;
  }
  const cost::ShardWork all{
      .ids = ids, .unique = own.rows, .bags = vectors, .cold = shape.cold, .pooled = true};
  const auto rows = static_cast<std::int64_t>(std::max(1.0, own.rows));
  const double sorted =
      shape.config.codecs.ids == spec::IdCodec::kPacked && shape.ranks > 1 ? kSortedRow : 0.0;
  const double counts_s =
      copy_s(shape.cluster, ids * kHashLine + own.rows * (kHashLine + kFoundRow + sorted));
  const double rows_s = shape.config.codecs.forward == CodecFormat::kFp32
                            ? copy_s(shape.cluster, 2.0 * width * own.rows)
                            : decode_s(shape, shape.config.codecs.forward, dim, own.rows);
  const double sums_s = shape.config.codecs.backward == CodecFormat::kFp32
                            ? copy_s(shape.cluster, width * own.partials)
                            : encode_s(shape, shape.config.codecs.backward, dim, own.partials);
  const double output_s = rows_s + lookup_s;
  const double coalesce_s = cost::coalesce_s(shape.cluster, rows, all);
  const double gradients_s = cost::gradients_s(shape.cluster, dim, all) + sums_s;
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kExchangeCounts)] += counts_s;
    rank.seconds[at(StepPart::kOutputDist)] += output_s;
    rank.seconds[at(StepPart::kCoalesce)] += coalesce_s;
    rank.seconds[at(StepPart::kGradDist)] += gradients_s;
  }
}

}  // namespace weft::planner
