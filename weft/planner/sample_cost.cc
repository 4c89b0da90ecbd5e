#include "weft/planner/sample_cost.h"

#include <map>
#include <vector>

#include "weft/base/at.h"
#include "weft/cost/memory.h"
#include "weft/planner/cache_cost.h"
#include "weft/planner/codec_cost.h"
#include "weft/planner/fetched_cost.h"
#include "weft/planner/shard_loads.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using topology::copy_s;

constexpr double kCheckedId = 8.0;    // read once
constexpr double kPackedId = 12.0;    // read and narrowed
constexpr double kUnpackedId = 12.0;  // read and widened
constexpr double kLine = 64.0;        // what a scattered access moves

/// Seconds of parts that every feature adds to, in the order of features.
struct SampleSeconds {
  std::vector<double> counts;       ///< [ranks] kExchangeCounts
  std::vector<double> output_dist;  ///< [ranks]
  std::vector<double> grad_dist;    ///< [ranks]
};

/// A feature, and how the plan holds its table.
struct PlannedFeature {
  const FeatureUse& use;
  const spec::TablePlan& plan;
  const HotUse* hot_use;  ///< null: no row is hot
  bool is_cut;            ///< vectors of a bag come from several ranks
};

void add_to_all(std::vector<double>& values, double more) {
  for (double& value : values) {
    value += more;
  }
}

/// `some`: in place of `all`, to these ranks.
void add_by_rank(std::vector<double>& seconds,
                 double all,
                 const std::map<std::int64_t, double>& some) {
  std::vector<double> own;
  for (const auto& [rank, more] : some) {
    own.push_back(seconds[at(rank)] + more);
  }
  add_to_all(seconds, all);
  std::size_t next = 0;
  for (const auto& [rank, more] : some) {
    seconds[at(rank)] = own[next++];
  }
}

/// Every id goes where its row is, and every vector comes from there and is added up. Ids are
/// counted, then scattered: for an id a line, and one for a vector of its bag. In which cuts a bag
/// has vectors nobody foresees, as with the gradients of a row.
void add_cut_feature(const StepShape& shape,
                     SampleSeconds& seconds,
                     const PlannedFeature& feature) {
  const FeatureUse& use = feature.use;
  const HotUse* const hot_use = feature.hot_use;
  const spec::Table& table = shape.config.tables[at(use.table)];
  const double ids = shape.samples * use.length;
  const double dim = static_cast<double>(table.embedding_dim);
  const FeatureUse& tail = hot_use != nullptr ? of_feature(hot_use->tail, use.feature) : use;
  OncePerRows vectors_of(tail, [&](const RowSet& rows) {
    const double share = share_of_rows(tail, rows, table.num_embeddings);
    return use.pooled ? bags_of(use, share, shape.samples) : ids * share;
  });
  double vectors = 0.0;  // of all cuts of rows
  if (hot_use != nullptr) {
    const FeatureUse& hot = of_feature(hot_use->hot, use.feature);
    vectors += shape.samples * (use.pooled ? hot.present : hot.length);
  }
  for (const spec::Shard& shard : feature.plan.shards) {
    vectors += vectors_of(shard.rows) * static_cast<double>(shard.cols.size()) / dim;
  }
  const double sums = use.pooled ? shape.samples * use.present : ids;
  add_to_all(seconds.counts, copy_s(shape.cluster, ids * (kCheckedId + kLine) + vectors * kLine));
  add_to_all(seconds.output_dist, matrix_s(shape, vectors * (cost::kFloatBytes * dim + kLine) +
                                                      sums * cost::kFloatBytes * dim) +
                                      vectors * shape.cluster.compute.repeat.value);
  if (shape.config.codecs.backward == CodecFormat::kFp32) {
    add_to_all(seconds.grad_dist, matrix_s(shape, vectors * cost::kFloatBytes * dim));
  }
}

/// Ids of a table that is elsewhere are packed; its vectors, where none is encoded, are read and
/// written once.
void add_whole_feature(const StepShape& shape,
                       SampleSeconds& seconds,
                       const PlannedFeature& feature) {
  const FeatureUse& use = feature.use;
  const double ids = shape.samples * use.length;
  const double vectors = use.pooled ? shape.samples * use.present : ids;
  std::map<std::int64_t, double> held;  // columns, by rank
  double all = 0.0;
  for (const spec::Shard& shard : feature.plan.shards) {
    held[shard.rank] += static_cast<double>(shard.cols.size());
    all += static_cast<double>(shard.cols.size());
  }
  const auto add = [&](std::vector<double>& of_ranks, const auto& of_columns) {
    std::map<std::int64_t, double> some;
    for (const auto& [rank, columns] : held) {
      some[rank] = of_columns(all - columns);
    }
    add_by_rank(of_ranks, of_columns(all), some);
  };
  const auto moved_s = [&](double columns) {
    return matrix_s(shape, 2.0 * cost::kFloatBytes * columns * vectors);
  };
  add(seconds.counts,
      [&](double columns) { return columns > 0.0 ? copy_s(shape.cluster, ids * kPackedId) : 0.0; });
  if (shape.config.codecs.forward == CodecFormat::kFp32) {
    add(seconds.output_dist, moved_s);
  }
  if (shape.config.codecs.backward == CodecFormat::kFp32) {
    add(seconds.grad_dist, moved_s);
  }
}

void add_codecs(const StepShape& shape, SampleSeconds& seconds, const PlannedFeature& feature) {
  const FeatureUse& use = feature.use;
  const HotUse* const hot_use = feature.hot_use;
  const spec::Table& table = shape.config.tables[at(use.table)];
  const double ids = shape.samples * use.length;
  const double in_matrix = use.pooled ? shape.samples : ids;
  const FeatureUse& tail = hot_use != nullptr ? of_feature(hot_use->tail, use.feature) : use;
  OncePerRows vectors_of(tail, [&](const RowSet& rows) {
    const double share = share_of_rows(tail, rows, table.num_embeddings);
    return use.pooled ? bags_of(use, share, shape.samples) : ids * share;
  });
  for (const bool forward : {true, false}) {
    const CodecFormat format = forward ? shape.config.codecs.forward : shape.config.codecs.backward;
    if (format == CodecFormat::kFp32) {
      continue;
    }
    // Partial sums of cut rows come from the own shard as from others; gradients of pooled bags are
    // read in the matrix by it. Hot rows, which every rank has, get both alike.
    const bool in_place = !feature.is_cut || (use.pooled && !forward);
    const bool own_in_place = in_place && hot_use == nullptr;
    double all = 0.0;
    if (hot_use != nullptr) {
      const FeatureUse& hot = of_feature(hot_use->hot, use.feature);
      const double vectors = shape.samples * (use.pooled ? hot.present : hot.length);
      all += round_s(shape, format, table.embedding_dim, in_place ? in_matrix : vectors);
    }
    std::map<std::int64_t, double> own;  // by rank, more than the others'
    for (const spec::Shard& shard : feature.plan.shards) {
      const std::int64_t cols = shard.cols.size();
      const double vectors = vectors_of(shard.rows);
      const double travelled =
          forward ? decode_s(shape, format, cols, vectors) : encode_s(shape, format, cols, vectors);
      all += travelled;
      if (own_in_place) {
        own[shard.rank] += round_s(shape, format, cols, in_matrix) - travelled;
      }
    }
    for (auto& [rank, more] : own) {
      more += all;
    }
    add_by_rank(forward ? seconds.output_dist : seconds.grad_dist, all, own);
  }
}

}  // namespace

void add_batch_work(const StepShape& shape,
                    PlanCost& cost,
                    const spec::Plan& plan,
                    const HotUses& hot_uses) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (is_fetched(plan.tables[t])) {
      add_fetched_table(shape, cost, static_cast<std::int64_t>(t));
    }
  }
  const double elsewhere = 1.0 - 1.0 / static_cast<double>(shape.ranks);
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kExchangeIds)] +=
        copy_s(shape.cluster, rank.load.ids * elsewhere * kUnpackedId);
  }
  SampleSeconds seconds;
  for (const RankCost& rank : cost.ranks) {
    seconds.counts.push_back(rank.seconds[at(StepPart::kExchangeCounts)]);
    seconds.output_dist.push_back(rank.seconds[at(StepPart::kOutputDist)]);
    seconds.grad_dist.push_back(rank.seconds[at(StepPart::kGradDist)]);
  }
  for (const FeatureUse& use : shape.workload.features) {
    const spec::TablePlan& table = plan.tables[at(use.table)];
    add_to_all(seconds.counts, copy_s(shape.cluster, shape.samples * use.length * kCheckedId));
    if (table.sharding == spec::Sharding::kDataParallel || is_fetched(table)) {
      continue;
    }
    const auto hot_use = hot_uses.of(use.table, table.hot);
    const PlannedFeature feature{
        .use = use,
        .plan = table,
        .hot_use = hot_use.get(),
        .is_cut = (rows_are_cut(table) || !table.hot.empty()) && shape.ranks > 1};
    if (feature.is_cut) {
      add_cut_feature(shape, seconds, feature);
    } else {
      add_whole_feature(shape, seconds, feature);
    }
    add_codecs(shape, seconds, feature);
  }
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    cost.ranks[r].seconds[at(StepPart::kExchangeCounts)] = seconds.counts[r];
    cost.ranks[r].seconds[at(StepPart::kOutputDist)] = seconds.output_dist[r];
    cost.ranks[r].seconds[at(StepPart::kGradDist)] = seconds.grad_dist[r];
  }
}

}  // namespace weft::planner
