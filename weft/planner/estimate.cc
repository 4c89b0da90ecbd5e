#include "weft/planner/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "weft/base/error.h"
#include "weft/cost/dense.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using cost::Exchange;
using spec::Sharding;
using topology::copy_s;

constexpr double kFloat = 4.0;
constexpr double kCheckedId = 8.0;    // read once
constexpr double kPackedId = 12.0;    // read and narrowed
constexpr double kUnpackedId = 12.0;  // read and widened
constexpr double kLength = 4.0;       // of a bag, on the wire
constexpr double kCountBytes = 16.0;  // of a slot
constexpr double kHeaderBytes = 256.0;
constexpr double kFlagBytes = 24.0;
constexpr double kReplicaEntry = 12.0;  // row, part and place of a partial row
constexpr double kStages = 12.0;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::size_t at(Part part) {
  return static_cast<std::size_t>(part);
}

bool is_row_wise(spec::SparseOptimizerKind kind) {
  return kind == spec::SparseOptimizerKind::kRowWiseAdagrad ||
         kind == spec::SparseOptimizerKind::kRowWiseAdam;
}

/// Bags of `samples` in which at least one id falls on a share of the rows.
double bags_of(const FeatureUse& use, double share, double samples) {
  if (use.present <= 0.0) {
    return 0.0;
  }
  const double length = use.length / use.present;  // of a bag that has one
  const double missed = share >= 1.0 ? 0.0 : std::pow(1.0 - share, length);
  return samples * use.present * (1.0 - missed);
}

/// What a rank sends to itself never leaves its memory.
Exchange away(Exchange exchange) {
  for (cost::RankTraffic& rank : exchange.ranks) {
    rank.sent[0] = rank.received[0] = 0.0;
  }
  return exchange;
}

double max_over(const std::vector<RankCost>& ranks,
                const std::function<double(const RankCost&)>& of) {
  double most = 0.0;
  for (const RankCost& rank : ranks) {
    most = std::max(most, of(rank));
  }
  return most;
}

double max_over_mean(const std::vector<RankCost>& ranks,
                     const std::function<double(const RankCost&)>& of) {
  double sum = 0.0;
  for (const RankCost& rank : ranks) {
    sum += of(rank);
  }
  return sum > 0.0 ? max_over(ranks, of) * static_cast<double>(ranks.size()) / sum : 1.0;
}

}  // namespace

std::string_view to_string(Part part) {
  static constexpr std::array<std::string_view, kParts> kNames = {
      "exchange_counts", "exchange_ids", "lookup",    "output_dist", "forward_backward", "reduce",
      "exchange_flags",  "coalesce",     "grad_dist", "update_rows", "update_dense"};
  return kNames[at(part)];
}

ShardLoad& ShardLoad::operator+=(const ShardLoad& other) {
  lookup_s += other.lookup_s;
  coalesce_s += other.coalesce_s;
  update_s += other.update_s;
  ids += other.ids;
  unique += other.unique;
  ids_bytes += other.ids_bytes;
  vector_bytes += other.vector_bytes;
  statistic_bytes += other.statistic_bytes;
  bytes += other.bytes;
  return *this;
}

double RankCost::own_s() const {
  return load.lookup_s + load.coalesce_s + load.update_s;
}

double PlanCost::imbalance() const {
  return max_over_mean(ranks, [](const RankCost& rank) { return rank.own_s(); });
}

double PlanCost::bytes_imbalance() const {
  return max_over_mean(ranks,
                       [](const RankCost& rank) { return static_cast<double>(rank.table_bytes); });
}

Estimator::Estimator(const spec::Config& config,
                     const topology::Cluster& cluster,
                     const Workload& workload,
                     std::int64_t parts)
    : config_(config),
      cluster_(cluster),
      workload_(workload),
      ranks_(topology::ranks(cluster)),
      parts_(parts),
      batch_(static_cast<double>(config.batch_size)),
      by_table_(config.tables.size()) {
  std::int64_t most = 0;
  for (std::int64_t r = 0; r < ranks_; ++r) {
    most = std::max(most, rank_samples(config.batch_size, parts_, ranks_, r).size());
  }
  samples_ = static_cast<double>(most);
  for (const FeatureUse& use : workload.features) {
    by_table_[at(use.table)].push_back(&use);
  }
}

ShardLoad Estimator::shard(std::int64_t t,
                           const RowSet& rows,
                           Range cols,
                           std::int64_t column_shards) const {
  const spec::Table& table = config_.tables[at(t)];
  const double width = kFloat * static_cast<double>(cols.size());
  const double id_bytes = rows.size() > (std::int64_t{1} << 31) ? 8.0 : 4.0;
  ShardLoad load{.bytes = cost::shard_bytes(table, rows.size(), cols.size())};
  for (const FeatureUse* use : by_table_[at(t)]) {
    const double share = share_of_rows(*use, rows, table.num_embeddings);
    FeatureUse held = *use;  // a part of the rows is asked for by a part of the ids
    if (!use->by_frequency) {
      for (AccessSegment& segment : held.segments) {
        segment.rows *= share;
      }
    }
    const double ids = batch_ * use->length * share;
    const double bags = bags_of(*use, share, batch_);
    const double unique = std::min(unique_rows(held, ids), static_cast<double>(rows.size()));
    const cost::ShardWork work{
        .ids = ids, .unique = unique, .bags = bags, .hot = 0.0, .pooled = use->pooled};
    const double vectors = use->pooled ? bags : ids;
    load.lookup_s += cost::lookup_s(cluster_, table, cols.size(), work);
    load.coalesce_s += cost::coalesce_s(cluster_, rows.size(), work);
    load.update_s += cost::update_s(cluster_, table, cols.size(), work);
    load.ids += ids;
    load.unique += unique;
    load.ids_bytes += kLength * samples_ +
                      (ids / batch_) * samples_ * (id_bytes + (use->weighted ? kFloat : 0.0));
    load.vector_bytes += width * vectors / batch_ * samples_;
  }
  if (column_shards > 1 && is_row_wise(table.optimizer.type)) {
    const double blocks =
        std::ceil(static_cast<double>(cols.size()) / static_cast<double>(spec::kColumnBlock));
    load.statistic_bytes = kFloat * load.unique * blocks * static_cast<double>(column_shards - 1);
  }
  return load;
}

ShardLoad Estimator::replica(std::int64_t t) const {
  const spec::Table& table = config_.tables[at(t)];
  const double width = kFloat * static_cast<double>(table.embedding_dim);
  ShardLoad load{.bytes = cost::shard_bytes(table, table.num_embeddings, table.embedding_dim)};
  for (const FeatureUse* use : by_table_[at(t)]) {
    const double ids = samples_ * use->length;
    const double own = unique_rows(*use, ids);
    const double all = unique_rows(*use, batch_ * use->length);
    const cost::ShardWork read{.ids = ids,
                               .unique = own,
                               .bags = samples_ * use->present,
                               .hot = 0.0,
                               .pooled = use->pooled};
    // Partial rows of all ranks are merged, and every replica updates what any of them touched.
    const cost::ShardWork merged{.ids = own * static_cast<double>(ranks_),
                                 .unique = all,
                                 .bags = 0.0,
                                 .hot = 0.0,
                                 .pooled = true};
    load.lookup_s += cost::lookup_s(cluster_, table, table.embedding_dim, read);
    load.coalesce_s += cost::coalesce_s(cluster_, table.num_embeddings, read);
    load.update_s += cost::update_s(cluster_, table, table.embedding_dim, merged) +
                     copy_s(cluster_, ids * width);
    load.ids += ids;
    load.unique += all;
    load.statistic_bytes += (kReplicaEntry + width) * own;
  }
  return load;
}

double Estimator::work_s(const ShardLoad& load) const {
  return load.lookup_s + load.coalesce_s + load.update_s;
}

double Estimator::link_s(const ShardLoad& load) const {
  if (ranks_ == 1) {
    return 0.0;
  }
  const bool network = topology::hosts(cluster_) > 1;
  const auto here = static_cast<double>(topology::ranks_of_host(cluster_, 0).count);
  const auto others = static_cast<double>(ranks_) - (network ? here : 1.0);
  const topology::Link& link = topology::link(
      cluster_, network ? topology::LinkClass::kNetwork : topology::LinkClass::kHost);
  // Ids come in; vectors go out, and their gradients come back.
  const double bytes = others * (load.ids_bytes + 2.0 * load.vector_bytes) + load.statistic_bytes;
  return bytes / link.rank.achieved();
}

std::int64_t Estimator::buffer_bytes(const ShardLoad& load) const {
  return static_cast<std::int64_t>(static_cast<double>(ranks_) *
                                   (load.vector_bytes + 2.0 * load.ids_bytes));
}

std::int64_t Estimator::capacity() const {
  double columns = 0.0;
  for (const FeatureUse& use : workload_.features) {
    columns += static_cast<double>(config_.tables[at(use.table)].embedding_dim) *
               (use.pooled ? 1.0 : use.length);
  }
  const double matrices = 2.0 * kFloat * samples_ * columns;  // vectors and their gradients
  return static_cast<std::int64_t>(std::max(0.0, topology::table_capacity(cluster_) - matrices));
}

void Estimator::add_dense(PlanCost& cost) const {
  double length = 1.0;
  for (const FeatureUse& use : workload_.features) {
    length = use.pooled ? length : std::max(length, use.length);
  }
  const cost::DenseWork work = cost::dense_work(config_, length);
  const double own_parts = std::ceil(static_cast<double>(parts_) / static_cast<double>(ranks_));
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(Part::kForwardBackward)] += cost::forward_s(cluster_, config_, work, samples_) +
                                                cost::backward_s(cluster_, config_, work, samples_);
    rank.seconds[at(Part::kUpdateDense)] += cost::dense_update_s(cluster_, config_, work);
    rank.dense_bytes = kFloat * work.parameters * (3.0 + own_parts);
  }
  const auto reduce = cost::ordered_all_reduce(cluster_, topology::all_ranks(cluster_), parts_,
                                               static_cast<std::int64_t>(work.parameters));
  if (ranks_ > 1) {
    cost.exchanges[at(Part::kReduce)] = cost::all_reduce_s(cluster_, reduce);
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
        cost.ranks[r].sent[c] += reduce.partials.ranks[r].sent[c] + reduce.sums.ranks[r].sent[c];
      }
    }
  }
}

/// What a rank does with the ids and vectors of its own samples, whoever holds the rows.
void Estimator::add_batch_work(PlanCost& cost) const {
  double ids = 0.0;
  double vectors = 0.0;
  for (const FeatureUse& use : workload_.features) {
    ids += samples_ * use.length;
    vectors += kFloat * static_cast<double>(config_.tables[at(use.table)].embedding_dim) *
               samples_ * (use.pooled ? use.present : use.length);
  }
  const double elsewhere = 1.0 - 1.0 / static_cast<double>(ranks_);
  for (RankCost& rank : cost.ranks) {
    const double received = rank.load.ids * elsewhere;
    rank.seconds[at(Part::kExchangeCounts)] +=
        copy_s(cluster_, ids * (kCheckedId + kPackedId * elsewhere));
    rank.seconds[at(Part::kExchangeIds)] += copy_s(cluster_, received * kUnpackedId);
    rank.seconds[at(Part::kOutputDist)] += copy_s(cluster_, 2.0 * vectors * elsewhere);
    rank.seconds[at(Part::kGradDist)] += copy_s(cluster_, 2.0 * vectors * elsewhere);
  }
}

void Estimator::add_exchanges(PlanCost& cost, double replica_bytes) const {
  if (ranks_ == 1) {
    return;
  }
  const topology::Group all = topology::all_ranks(cluster_);
  std::vector<double> ids;
  std::vector<double> vectors;
  std::vector<double> statistics;
  double any_statistic = 0.0;
  for (const RankCost& rank : cost.ranks) {
    ids.push_back(rank.load.ids_bytes);
    vectors.push_back(rank.load.vector_bytes);
    statistics.push_back(rank.load.statistic_bytes / static_cast<double>(ranks_ - 1));
    any_statistic += rank.load.statistic_bytes;
  }
  const double slots = static_cast<double>(workload_.features.size()) * kCountBytes;
  const auto each = [&](double bytes) { return std::vector<double>(all.size(), bytes); };
  const Exchange vectors_out = away(cost::all_to_all_even(cluster_, all, vectors));
  std::vector<std::pair<Part, Exchange>> exchanges;
  exchanges.emplace_back(
      Part::kExchangeCounts,
      away(cost::all_to_all_even(cluster_, all,
                                 each(kHeaderBytes + slots / static_cast<double>(ranks_)))));
  exchanges.emplace_back(Part::kExchangeIds,
                         cost::reversed(away(cost::all_to_all_even(cluster_, all, ids))));
  exchanges.emplace_back(Part::kOutputDist, vectors_out);
  exchanges.emplace_back(Part::kExchangeFlags,
                         away(cost::all_gather(cluster_, all, each(kFlagBytes))));
  exchanges.emplace_back(Part::kGradDist, cost::reversed(vectors_out));
  if (any_statistic > 0.0) {
    exchanges.emplace_back(Part::kUpdateRows,
                           away(cost::all_to_all_even(cluster_, all, statistics)));
  }
  if (replica_bytes > 0.0) {
    exchanges.emplace_back(Part::kUpdateRows,
                           away(cost::all_gather(cluster_, all, each(replica_bytes))));
  }
  for (const auto& [part, exchange] : exchanges) {
    cost.exchanges[at(part)] += cost::exchange_s(cluster_, exchange);
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
        cost.ranks[r].sent[c] += exchange.ranks[r].sent[c];
      }
    }
  }
}

PlanCost Estimator::cost(const spec::Plan& plan) const {
  WEFT_CHECK(plan.ranks == ranks_, "a plan for {} ranks on a cluster of {}", plan.ranks, ranks_);
  PlanCost cost;
  cost.ranks.resize(at(ranks_));
  ShardLoad replicas;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == Sharding::kDataParallel) {
      replicas += replica(static_cast<std::int64_t>(t));
      continue;
    }
    for (std::size_t i = 0; i < table.shards.size();) {
      std::size_t end = i;  // behind the shards of the same rows, which lie side by side
      while (end < table.shards.size() && table.shards[end].rows == table.shards[i].rows) {
        ++end;
      }
      const auto beside = static_cast<std::int64_t>(end - i);
      for (; i < end; ++i) {
        const spec::Shard& one = table.shards[i];
        cost.ranks[at(one.rank)].load +=
            shard(static_cast<std::int64_t>(t), one.rows, one.cols, beside);
      }
    }
  }
  const double replica_bytes = replicas.statistic_bytes;
  replicas.statistic_bytes = 0.0;  // gathered, not exchanged between shards
  add_batch_work(cost);
  for (RankCost& rank : cost.ranks) {
    rank.buffer_bytes = static_cast<double>(buffer_bytes(rank.load));
    rank.load += replicas;
    rank.table_bytes = rank.load.bytes;
    rank.seconds[at(Part::kLookup)] += rank.load.lookup_s;
    rank.seconds[at(Part::kCoalesce)] += rank.load.coalesce_s;
    rank.seconds[at(Part::kUpdateRows)] += rank.load.update_s;
  }
  add_dense(cost);
  add_exchanges(cost, ranks_ > 1 ? replica_bytes : 0.0);
  finish(cost);
  return cost;
}

void Estimator::finish(PlanCost& cost) const {
  const auto own = [](std::initializer_list<Part> parts) {
    return [parts = std::vector<Part>(parts)](const RankCost& rank) {
      double sum = 0.0;
      for (const Part part : parts) {
        sum += rank.seconds[at(part)];
      }
      return sum;
    };
  };
  const auto exchange = [&](Part part) { return cost.exchanges[at(part)]; };
  const double begin = exchange(Part::kExchangeCounts) + exchange(Part::kExchangeIds) +
                       max_over(cost.ranks, own({Part::kExchangeIds, Part::kLookup})) +
                       exchange(Part::kOutputDist) +
                       max_over(cost.ranks, own({Part::kOutputDist, Part::kForwardBackward}));
  const double links =
      exchange(Part::kExchangeFlags) + exchange(Part::kGradDist) + exchange(Part::kUpdateRows);
  // Row updates of this step, the dense one and the packing of the next: nobody waits in between.
  const double rows = links + max_over(cost.ranks, own({Part::kCoalesce})) +
                      max_over(cost.ranks, own({Part::kGradDist, Part::kUpdateRows,
                                                Part::kUpdateDense, Part::kExchangeCounts}));
  const double reduce = exchange(Part::kReduce);
  const double tail = config_.train.overlap ? std::max(rows, links + reduce) : rows + reduce;
  cost.step_s = begin + tail + kStages * cluster_.compute.stage.value;
  for (std::size_t p = 0; p < kParts; ++p) {
    const auto part = static_cast<Part>(p);
    cost.parts[p] = max_over(cost.ranks, own({part})) + cost.exchanges[p];
    for (RankCost& rank : cost.ranks) {
      rank.seconds[p] += cost.exchanges[p];
    }
  }
}

}  // namespace weft::planner
