#include "weft/planner/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/cost/codec.h"
#include "weft/cost/dense.h"
#include "weft/cost/hierarchical.h"
#include "weft/cost/memory.h"
#include "weft/planner/shard_loads.h"
#include "weft/planner/step_memory.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using cost::Exchange;
using spec::Sharding;
using topology::copy_s;

constexpr double kCheckedId = 8.0;      // read once
constexpr double kPackedId = 12.0;      // read and narrowed
constexpr double kUnpackedId = 12.0;    // read and widened
constexpr double kLine = 64.0;          // what a scattered access moves
constexpr double kReplicaEntry = 12.0;  // row, part and place of a partial row
constexpr double kStages = 12.0;

/// Of a bag's length on the wire: none where a shard gets all bags, each of one id, or no id; else
/// one byte, as good as always.
double length_bytes(const FeatureUse& use, double share) {
  const bool all_of_one = share >= 1.0 && use.length == 1.0 && use.present == 1.0;
  return all_of_one || share <= 0.0 ? 0.0 : 1.0;
}

void add_to_all(std::vector<double>& values, double more) {
  for (double& value : values) {
    value += more;
  }
}

double max_over(const std::vector<RankCost>& ranks,
                const std::function<double(const RankCost&)>& of) {
  double most = 0.0;
  for (const RankCost& rank : ranks) {
    most = std::max(most, of(rank));
  }
  return most;
}

}  // namespace

Estimator::Estimator(const spec::Config& config,
                     const topology::Cluster& cluster,
                     const Workload& workload,
                     std::int64_t parts)
    : shape_(step_shape(config, cluster, workload, parts)), hot_uses_(config, workload) {
}

Estimator::Estimator(const spec::Config& config,
                     const MeshCluster& mesh,
                     const Workload& workload,
                     std::int64_t parts)
    : shape_(step_shape(config, mesh, workload, parts)), hot_uses_(config, workload) {
}

/// Share of the ids that find their row near: not the first of their row in this step, and not so
/// long after the one before that as many other rows as fill the cache came in between. Tables are
/// looked up one after the other, so only a table's own rows come in between. Che, Tung, Wang
/// (2002): a row stays for the same number of draws, in which so many different ones come as fit.
double Estimator::near_share(const FeatureUse& use, double ids, double row_bytes) const {
  const double fits = shape_.cluster.compute.cache.value / row_bytes;
  if (ids <= 0.0 || fits <= 0.0) {
    return 0.0;
  }
  const double first = unique_rows(use, ids);
  double stay = ids;  // draws
  if (first > fits) {
    double low = 0.0;
    double high = ids;
    for (int i = 0; i < 12; ++i) {  // to a few thousandths of the draws
      stay = 0.5 * (low + high);
      (unique_rows(use, stay) < fits ? low : high) = stay;
    }
  }
  double hits = 0.0;
  for (const AccessSegment& segment : use.segments) {
    const double each = segment.share / segment.rows;
    hits += segment.share * (each >= 1.0 ? 1.0 : 1.0 - std::exp(stay * std::log1p(-each)));
  }
  return std::clamp(hits, 0.0, 1.0 - first / ids);
}

/// Vectors or gradients moved between matrices, of which caches hold what is not cold.
double Estimator::matrix_s(double bytes) const {
  return copy_s(shape_.cluster, bytes * shape_.cold) +
         topology::near_s(shape_.cluster, bytes * (1.0 - shape_.cold));
}

ShardLoad Estimator::shard(const TableBlock& block) const {
  const std::int64_t t = block.table;
  const RowSet& rows = block.rows;
  const Range& cols = block.cols;
  const HotUse* const hot_use = block.hot_use;
  const spec::Table& table = shape_.config.tables[at(t)];
  const std::vector<const FeatureUse*>& features =
      hot_use != nullptr ? hot_use->tail.features : shape_.by_table[at(t)];
  const FeatureUse& joint = hot_use != nullptr ? hot_use->tail.joined : shape_.joined[at(t)];
  if (block.pooled_at == spec::PooledAt::kSample) {
    ShardLoad load = fetched_shard(block);
    add_row_statistics(load, block);
    return load;
  }
  const auto id_bytes = static_cast<double>(spec::id_bytes(largest_cut(rows, hot_use)));
  const cost::RowShape row = cost::row_shape(table, cols.size());
  ShardLoad load{.bytes = cost::shard_bytes(table, rows.size(), cols.size())};
  double vectors = 0.0;
  for (const FeatureUse* use : features) {
    const double share = share_of_rows(*use, rows, table.num_embeddings);
    const FeatureUse held = use_of_rows(*use, rows, table.num_embeddings);
    const double ids = shape_.batch * use->length * share;
    const double bags = bags_of(*use, share, shape_.batch);
    const cost::ShardWork work{.ids = ids,
                               .bags = bags,
                               .hot = near_share(held, ids, row.weights),
                               .cold = shape_.cold,
                               .pooled = use->pooled};
    load.lookup_s += cost::lookup_s(shape_.cluster, table, cols.size(), work);
    load.ids += ids;
    load.ids_bytes += length_bytes(*use, share) * shape_.samples +
                      (ids / shape_.batch) * shape_.samples *
                          (id_bytes + (use->weighted ? cost::kFloatBytes : 0.0));
    vectors += use->pooled ? bags : ids;
  }
  // Entries of all features are sorted and added up together.
  const FeatureUse held = use_of_rows(joint, rows, table.num_embeddings);
  load.unique = std::min(unique_rows(held, load.ids), static_cast<double>(rows.size()));
  const cost::ShardWork all{.rows = static_cast<double>(rows.size()),
                            .ids = load.ids,
                            .unique = load.unique,
                            .bags = vectors,
                            .cold = shape_.cold,
                            .pooled = true,
                            .mixed = shape_.ranks > 1};
  load.coalesce_s = cost::coalesce_s(shape_.cluster, rows.size(), all);
  load.update_s = cost::update_s(shape_.cluster, table, cols.size(), all);
  const double own = vectors / shape_.batch * shape_.samples;  // of one rank's samples
  load.vector_bytes = own * encoded_width(shape_.config.codecs.forward, cols.size());
  load.gradient_bytes = own * encoded_width(shape_.config.codecs.backward, cols.size());
  const bool whole = rows.size() == table.num_embeddings;
  const double others = vectors * (1.0 - 1.0 / static_cast<double>(shape_.ranks));
  load.encode_s = encode_s(shape_.config.codecs.forward, cols.size(), whole ? others : vectors);
  load.decode_s = decode_s(shape_.config.codecs.backward, cols.size(), others);
  add_sync(load, {.table = t,
                  .rows = rows.size(),
                  .cols = cols.size(),
                  .held = held,
                  .ids = load.ids,
                  .update = all});
  add_row_statistics(load, block);
  return load;
}

/// Bytes of a vector on the wire.
double Estimator::encoded_width(CodecFormat format, std::int64_t cols) const {
  return static_cast<double>(encoded_bytes(format, shape_.config.codecs.group_size, cols));
}

double Estimator::encode_s(CodecFormat format, std::int64_t cols, double vectors) const {
  return cost::encode_s(shape_.cluster, {format, shape_.config.codecs.group_size, cols, vectors,
                                         shape_.config.codecs.rounding});
}

double Estimator::decode_s(CodecFormat format, std::int64_t cols, double vectors) const {
  return cost::decode_s(shape_.cluster, {format, shape_.config.codecs.group_size, cols, vectors});
}

/// Encoded and decoded in place: what a rank has for itself.
double Estimator::round_s(CodecFormat format, std::int64_t cols, double vectors) const {
  return encode_s(format, cols, vectors) + decode_s(format, cols, vectors);
}

/// Sums of a row's gradients are written, squared for the other shards of its rows, and read again;
/// with a norm that is limited so are the updated rows.
void Estimator::add_row_statistics(ShardLoad& load, const TableBlock& block) const {
  const spec::SparseOptimizer& optimizer = shape_.config.tables[at(block.table)].optimizer;
  const std::int64_t cols = block.cols.size();
  const double times =
      (traits(optimizer.type).is_row_wise ? 1.0 : 0.0) + (optimizer.max_norm > 0.0 ? 1.0 : 0.0);
  if (block.column_shards < 2 || times == 0.0) {
    return;
  }
  const double vectors = cost::kFloatBytes * static_cast<double>(cols) * load.unique;
  load.update_s += copy_s(shape_.cluster, 3.0 * times * vectors);
  const double blocks =
      std::ceil(static_cast<double>(cols) / static_cast<double>(spec::kColumnBlock));
  load.statistic_bytes = cost::kFloatBytes * times * load.unique * blocks *
                         static_cast<double>(block.column_shards - 1);
}

ShardLoad Estimator::replica(std::int64_t t) const {
  return copies(t, shape_.config.tables[at(t)].num_embeddings, shape_.by_table[at(t)],
                shape_.joined[at(t)], false);
}

ShardLoad Estimator::hot_rows(std::int64_t t,
                              const HotUse& hot_use,
                              spec::PooledAt pooled_at) const {
  return copies(t, hot_use.rows->size(), hot_use.hot.features, hot_use.hot.joined,
                pooled_at == spec::PooledAt::kSample);
}

/// Where bags are added at the sample, rows that this rank asks for are read once and their
/// partial sums, made there, come as entries (fetched_cost.cc).
ShardLoad Estimator::copies(std::int64_t t,
                            std::int64_t held,
                            const std::vector<const FeatureUse*>& features,
                            const FeatureUse& use,
                            bool fetched) const {
  const spec::Table& table = shape_.config.tables[at(t)];
  const double width = cost::kFloatBytes * static_cast<double>(table.embedding_dim);
  ShardLoad load{.bytes = cost::shard_bytes(table, held, table.embedding_dim)};
  double vectors = 0.0;
  if (fetched) {
    const Asked own = asked(use, shape_.samples * use.length);
    load.lookup_s = cost::lookup_s(shape_.cluster, table, table.embedding_dim,
                                   {.ids = own.rows, .cold = 0.0, .pooled = false});
    // As if they travelled; their other ends are in fetched_cost.cc.
    load.encode_s = encode_s(shape_.config.codecs.forward, table.embedding_dim, own.rows);
    load.decode_s = decode_s(shape_.config.codecs.backward, table.embedding_dim, own.partials);
    load.ids = own.partials;
    vectors = own.partials;
  }
  for (std::size_t f = 0; f < features.size() && !fetched; ++f) {
    const FeatureUse& one = *features[f];
    const double ids = shape_.samples * one.length;
    const cost::ShardWork read{.ids = ids,
                               .bags = shape_.samples * one.present,
                               .hot = near_share(one, ids, width),
                               .cold = shape_.cold,
                               .pooled = one.pooled};
    load.lookup_s += cost::lookup_s(shape_.cluster, table, table.embedding_dim, read);
    load.ids += ids;
    vectors += one.pooled ? shape_.samples * one.present : ids;
  }
  const Asked own = asked(use, shape_.samples * use.length);
  load.unique = unique_rows(use, static_cast<double>(shape_.config.batch_size) * use.length);
  const auto rows = static_cast<double>(held);
  const cost::ShardWork read{.rows = rows,
                             .ids = load.ids,
                             .unique = own.rows,
                             .bags = vectors,
                             .cold = shape_.cold,
                             .pooled = true};
  load.coalesce_s = cost::coalesce_s(shape_.cluster, held, read);
  if (shape_.world_ranks == 1) {
    load.update_s = cost::update_s(shape_.cluster, table, table.embedding_dim, read);
    return load;
  }
  // A rank adds up its own rows; all ranks' partial rows are sorted together, each being an entry
  // with a gradient of its own, and every replica updates what any rank touched.
  const double partial = own.partials * static_cast<double>(shape_.world_ranks);
  const cost::ShardWork merged{.rows = rows,
                               .ids = partial,
                               .unique = load.unique,
                               .bags = partial,
                               .cold = 1.0,
                               .pooled = true,
                               .mixed = true};
  load.update_s = cost::gradients_s(shape_.cluster, table.embedding_dim, read) +
                  std::max(0.0, load.ids - own.partials) * shape_.cluster.compute.repeat.value +
                  copy_s(shape_.cluster, own.partials * (kReplicaEntry + width)) +
                  cost::coalesce_s(shape_.cluster, held, merged) +
                  cost::update_s(shape_.cluster, table, table.embedding_dim, merged);
  load.statistic_bytes = (kReplicaEntry + width) * own.partials;
  return load;
}

double Estimator::work_s(const ShardLoad& load) const {
  return load.lookup_s + load.coalesce_s + load.update_s + load.encode_s + load.decode_s;
}

double Estimator::link_s(const ShardLoad& load) const {
  if (shape_.ranks == 1) {
    return 0.0;
  }
  const bool network = topology::hosts(shape_.cluster) > 1;
  const auto here = static_cast<double>(topology::ranks_of_host(shape_.cluster, 0).count);
  const auto others = static_cast<double>(shape_.ranks) - (network ? here : 1.0);
  const topology::Link& link = topology::link(
      shape_.cluster, network ? topology::LinkClass::kNetwork : topology::LinkClass::kHost);
  // Ids come in; vectors go out, and their gradients come back.
  const double bytes =
      others * (load.ids_bytes + load.vector_bytes + load.gradient_bytes) + load.statistic_bytes;
  return bytes / link.rank.achieved() + (shape_.mesh == nullptr ? 0.0 : sync_link_s(load));
}

/// Vectors for all ranks, and entries (step_memory.h).
std::int64_t Estimator::buffer_bytes(const ShardLoad& load) const {
  constexpr double kEntry = 28.0;
  return static_cast<std::int64_t>(static_cast<double>(shape_.ranks) * load.vector_bytes +
                                   kEntry * load.ids);
}

std::int64_t Estimator::capacity() const {
  return static_cast<std::int64_t>(std::max(
      0.0, topology::table_capacity(shape_.cluster) - shape_.matrix_bytes - shape_.dense_bytes));
}

/// Ranks of one host are taken to share a process.
void Estimator::add_memory(PlanCost& cost, const spec::Plan& plan) const {
  const auto transport =
      topology::hosts(shape_.world) > 1 ? Transport::kReceived : Transport::kLent;
  const std::vector<StepMemory> memory =
      step_memory(shape_.config, shape_.workload, plan, transport, hot_uses_);
  double dense = shape_.dense_bytes;
  if (plan.collectives.dense == spec::CollectiveForm::kHierarchical && shape_.has_dense_hierarchy) {
    cost::DenseMemoryShape whole{.parts = shape_.parts,
                                 .ranks = shape_.world_ranks,
                                 .rank = 0,
                                 .threads = shape_.cluster.threads,
                                 .elements = {}};
    for (const std::int64_t rank : shape_.everybody) {
      whole.hosts.push_back(topology::host_of(shape_.world, rank));
    }
    dense = dense_memory(shape_.config, shape_.workload, std::move(whole)).bytes();
  }
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    cost.ranks[r].buffer_bytes =
        memory[r].buffers() + memory[r].tables - static_cast<double>(cost.ranks[r].table_bytes);
    if (shape_.mesh != nullptr) {
      cost.ranks[r].buffer_bytes += sync_memory(cost.ranks[r].load);
    }
    cost.ranks[r].sample_bytes = memory[r].matrices + dense;
  }
}

void Estimator::add_dense(PlanCost& cost, const spec::Plan& plan) const {
  std::vector<double> lengths;
  for (const FeatureUse& use : shape_.workload.features) {
    lengths.push_back(use.length);
  }
  const cost::DenseWork work = cost::dense_work(shape_.config, lengths);
  const double own_parts =
      std::ceil(static_cast<double>(shape_.parts) / static_cast<double>(shape_.world_ranks));
  const cost::DenseBatch batch =
      cost::dense_batch(shape_.config.batch_size, shape_.parts, own_parts, shape_.samples);
  const double model_s = cost::forward_s(shape_.cluster, shape_.config, work, batch) +
                         cost::backward_s(shape_.cluster, shape_.config, work, batch);
  const double update_s = cost::dense_update_s(shape_.cluster, shape_.config, work);
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kForwardBackward)] += model_s;
    rank.seconds[at(StepPart::kUpdateDense)] += update_s;
  }
  add_reduce(cost, plan.collectives.dense, static_cast<std::int64_t>(work.bucket));
}

/// What ranks do with the ids and vectors of their own samples, whoever holds the rows.
void Estimator::add_batch_work(PlanCost& cost, const spec::Plan& plan) const {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (is_fetched(plan.tables[t])) {
      add_fetched_table(cost, static_cast<std::int64_t>(t));
    }
  }
  const double elsewhere = 1.0 - 1.0 / static_cast<double>(shape_.ranks);
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kExchangeIds)] +=
        copy_s(shape_.cluster, rank.load.ids * elsewhere * kUnpackedId);
  }
  SampleSeconds seconds;
  for (const RankCost& rank : cost.ranks) {
    seconds.counts.push_back(rank.seconds[at(StepPart::kExchangeCounts)]);
    seconds.output_dist.push_back(rank.seconds[at(StepPart::kOutputDist)]);
    seconds.grad_dist.push_back(rank.seconds[at(StepPart::kGradDist)]);
  }
  for (const FeatureUse& use : shape_.workload.features) {
    const spec::TablePlan& table = plan.tables[at(use.table)];
    add_to_all(seconds.counts, copy_s(shape_.cluster, shape_.samples * use.length * kCheckedId));
    if (table.sharding == Sharding::kDataParallel || is_fetched(table)) {
      continue;
    }
    const bool cut = (rows_are_cut(table) || !table.hot.empty()) && shape_.ranks > 1;
    if (cut) {
      add_cut_feature(seconds, use, table);
    } else {
      add_whole_feature(seconds, use, table);
    }
    add_codecs(seconds, use, table, cut);
  }
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    cost.ranks[r].seconds[at(StepPart::kExchangeCounts)] = seconds.counts[r];
    cost.ranks[r].seconds[at(StepPart::kOutputDist)] = seconds.output_dist[r];
    cost.ranks[r].seconds[at(StepPart::kGradDist)] = seconds.grad_dist[r];
  }
}

/// Every id goes where its row is, and every vector comes from there and is added up. Ids are
/// counted, then scattered: for an id a line, and one for a vector of its bag. In which cuts a bag
/// has vectors nobody foresees, as with the gradients of a row.
void Estimator::add_cut_feature(SampleSeconds& seconds,
                                const FeatureUse& use,
                                const spec::TablePlan& plan) const {
  const spec::Table& table = shape_.config.tables[at(use.table)];
  const double ids = shape_.samples * use.length;
  const double dim = static_cast<double>(table.embedding_dim);
  const auto hot_use = hot_uses_.of(use.table, plan.hot);
  const FeatureUse& tail = hot_use ? of_feature(hot_use->tail, use.feature) : use;
  OncePerRows vectors_of(tail, [&](const RowSet& rows) {
    const double share = share_of_rows(tail, rows, table.num_embeddings);
    return use.pooled ? bags_of(use, share, shape_.samples) : ids * share;
  });
  double vectors = 0.0;  // of all cuts of rows
  if (hot_use) {
    const FeatureUse& hot = of_feature(hot_use->hot, use.feature);
    vectors += shape_.samples * (use.pooled ? hot.present : hot.length);
  }
  for (const spec::Shard& shard : plan.shards) {
    vectors += vectors_of(shard.rows) * static_cast<double>(shard.cols.size()) / dim;
  }
  const double sums = use.pooled ? shape_.samples * use.present : ids;
  add_to_all(seconds.counts, copy_s(shape_.cluster, ids * (kCheckedId + kLine) + vectors * kLine));
  add_to_all(seconds.output_dist, matrix_s(vectors * (cost::kFloatBytes * dim + kLine) +
                                           sums * cost::kFloatBytes * dim) +
                                      vectors * shape_.cluster.compute.repeat.value);
  if (shape_.config.codecs.backward == CodecFormat::kFp32) {
    add_to_all(seconds.grad_dist, matrix_s(vectors * cost::kFloatBytes * dim));
  }
}

/// Ids of a table that is elsewhere are packed; its vectors, where none is encoded, are read and
/// written once.
void Estimator::add_whole_feature(SampleSeconds& seconds,
                                  const FeatureUse& use,
                                  const spec::TablePlan& plan) const {
  const double ids = shape_.samples * use.length;
  const double vectors = use.pooled ? shape_.samples * use.present : ids;
  std::map<std::int64_t, double> held;  // columns, by rank
  double all = 0.0;
  for (const spec::Shard& shard : plan.shards) {
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
    return matrix_s(2.0 * cost::kFloatBytes * columns * vectors);
  };
  add(seconds.counts, [&](double columns) {
    return columns > 0.0 ? copy_s(shape_.cluster, ids * kPackedId) : 0.0;
  });
  if (shape_.config.codecs.forward == CodecFormat::kFp32) {
    add(seconds.output_dist, moved_s);
  }
  if (shape_.config.codecs.backward == CodecFormat::kFp32) {
    add(seconds.grad_dist, moved_s);
  }
}

void Estimator::add_by_rank(std::vector<double>& seconds,
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

PlanCost Estimator::cost(const spec::Plan& plan) const {
  ShardLoads loads(*this);
  return cost(plan, loads);
}

PlanCost Estimator::cost(const spec::Plan& plan, ShardLoads& loads) const {
  WEFT_CHECK(plan.ranks == shape_.ranks, "a plan for {} ranks on a cluster of {}", plan.ranks,
             shape_.ranks);
  PlanCost cost;
  cost.ranks.resize(at(shape_.ranks));
  ShardLoad replicas;
  std::vector<double> bytes;  // of row statistics
  Exchange statistics = cost::no_exchange(shape_.cluster);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == Sharding::kDataParallel) {
      replicas += loads.replica(static_cast<std::int64_t>(t));
      continue;
    }
    const spec::PooledAt pooled_at =
        is_fetched(table) ? spec::PooledAt::kSample : spec::PooledAt::kOwner;
    const auto hot_use = hot_uses_.of(static_cast<std::int64_t>(t), table.hot);
    if (hot_use) {
      replicas += hot_rows(static_cast<std::int64_t>(t), *hot_use, pooled_at);
    }
    for (std::size_t i = 0; i < table.shards.size();) {
      std::size_t end = i;  // behind the shards of the same rows, which lie side by side
      while (end < table.shards.size() && table.shards[end].rows == table.shards[i].rows) {
        ++end;
      }
      const std::span beside(table.shards.data() + i, end - i);
      bytes.clear();
      for (const spec::Shard& one : beside) {
        const auto count = static_cast<std::int64_t>(beside.size());
        const ShardLoad& load = loads.of({.table = static_cast<std::int64_t>(t),
                                          .rows = one.rows,
                                          .cols = one.cols,
                                          .column_shards = count,
                                          .pooled_at = pooled_at,
                                          .hot_use = hot_use.get()});
        bytes.push_back(load.statistic_bytes / std::max(1.0, static_cast<double>(count - 1)));
        cost.ranks[at(one.rank)].load += load;
      }
      add_pairs(statistics, beside, bytes);
      i = end;
    }
  }
  const double replica_bytes = replicas.statistic_bytes;
  replicas.statistic_bytes = 0.0;  // gathered, not exchanged between shards
  add_batch_work(cost, plan);
  for (RankCost& rank : cost.ranks) {
    rank.load += replicas;
    rank.table_bytes = rank.load.bytes;
    rank.seconds[at(StepPart::kLookup)] += rank.load.lookup_s;
    rank.seconds[at(StepPart::kOutputDist)] += rank.load.encode_s;
    rank.seconds[at(StepPart::kCoalesce)] += rank.load.coalesce_s;
    rank.seconds[at(StepPart::kGradDist)] += rank.load.decode_s;
    rank.seconds[at(StepPart::kUpdateRows)] += rank.load.update_s;
  }
  add_memory(cost, plan);
  add_dense(cost, plan);
  add_exchanges(cost, plan, statistics, shape_.world_ranks > 1 ? replica_bytes : 0.0);
  if (shape_.mesh != nullptr) {
    add_mesh_exchanges(cost, plan);
  }
  finish(cost);
  return cost;
}

void Estimator::finish(PlanCost& cost) const {
  const auto own = [](std::initializer_list<StepPart> parts) {
    return [parts = std::vector<StepPart>(parts)](const RankCost& rank) {
      double sum = 0.0;
      for (const StepPart part : parts) {
        sum += rank.seconds[at(part)];
      }
      return sum;
    };
  };
  const auto exchange = [&](StepPart part) { return cost.exchanges[at(part)]; };
  const double begin =
      exchange(StepPart::kExchangeCounts) + exchange(StepPart::kExchangeIds) +
      max_over(cost.ranks, own({StepPart::kExchangeIds, StepPart::kLookup})) +
      exchange(StepPart::kOutputDist) +
      max_over(cost.ranks, own({StepPart::kOutputDist, StepPart::kForwardBackward}));
  const double links = exchange(StepPart::kExchangeFlags) + exchange(StepPart::kGradDist) +
                       exchange(StepPart::kUpdateRows) + exchange(StepPart::kSyncReplicas);
  // Row updates of this step, the dense one and the packing of the next: nobody waits in between.
  const double rows =
      links + max_over(cost.ranks, own({StepPart::kCoalesce})) +
      max_over(cost.ranks, own({StepPart::kGradDist, StepPart::kUpdateRows, StepPart::kSyncReplicas,
                                StepPart::kUpdateDense, StepPart::kExchangeCounts}));
  const double reduce = exchange(StepPart::kReduce);
  const double tail = shape_.config.train.overlap ? std::max(rows, links + reduce) : rows + reduce;
  const double stages = shape_.mesh == nullptr ? kStages : kStages + 1.0;  // sync_replicas
  cost.step_s = begin + tail + stages * shape_.cluster.compute.stage.value;
  for (const StepPart part : kPredictedParts) {
    const auto p = static_cast<std::size_t>(part);
    cost.parts[p] = max_over(cost.ranks, own({part})) + cost.exchanges[p];
    for (RankCost& rank : cost.ranks) {
      rank.seconds[p] += cost.exchanges[p];
    }
  }
}

}  // namespace weft::planner
