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
constexpr double kLine = 64.0;        // what a scattered access moves
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

/// Matrices of this rank's samples: the vectors of all pooled features and the ids of sequences.
double matrix_bytes(const spec::Config& config, const Workload& workload, double samples) {
  double columns = 0.0;
  for (const FeatureUse& use : workload.features) {
    columns += static_cast<double>(config.tables[at(use.table)].embedding_dim) *
               (use.pooled ? 1.0 : use.length);
  }
  return kFloat * samples * columns;
}

bool rows_are_cut(const spec::TablePlan& table) {
  return std::any_of(table.shards.begin(), table.shards.end(), [&](const spec::Shard& shard) {
    return shard.rows != table.shards.front().rows;
  });
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
  // Vectors are written and their gradients read again and again between other stages: what of both
  // matrices the caches do not hold is fetched each time.
  const double matrices = 2.0 * matrix_bytes(config, workload, samples_);
  cold_ = matrices > 0.0 ? std::max(0.0, 1.0 - cluster.compute.cache.value / matrices) : 0.0;
  for (const FeatureUse& use : workload.features) {
    by_table_[at(use.table)].push_back(&use);
  }
}

/// Share of the ids that find their row near: not the first of their row in this step, and not so
/// long after the one before that as many other rows as fill the cache came in between. Tables are
/// looked up one after the other, so only a table's own rows come in between. Che, Tung, Wang
/// (2002): a row stays for the same number of draws, in which so many different ones come as fit.
double Estimator::hot(const FeatureUse& use, double ids, double row_bytes) const {
  const double fits = cluster_.compute.cache.value / row_bytes;
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

ShardLoad Estimator::shard(std::int64_t t,
                           const RowSet& rows,
                           Range cols,
                           std::int64_t column_shards) const {
  const spec::Table& table = config_.tables[at(t)];
  const double width = kFloat * static_cast<double>(cols.size());
  const double id_bytes = rows.size() > (std::int64_t{1} << 31) ? 8.0 : 4.0;
  const cost::RowShape row = cost::row_shape(table, cols.size());
  const bool statistics = column_shards > 1 && is_row_wise(table.optimizer.type);
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
    const cost::ShardWork work{.ids = ids,
                               .unique = unique,
                               .bags = bags,
                               .hot = hot(held, ids, row.weights),
                               .cold = cold_,
                               .pooled = use->pooled,
                               .mixed = ranks_ > 1};
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
  if (statistics) {
    // Sums of a row's gradients are written, squared for the others, and read again.
    load.update_s += copy_s(cluster_, 3.0 * width * load.unique);
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
                               .hot = hot(*use, ids, width),
                               .cold = cold_,
                               .pooled = use->pooled};
    load.lookup_s += cost::lookup_s(cluster_, table, table.embedding_dim, read);
    load.coalesce_s += cost::coalesce_s(cluster_, table.num_embeddings, read);
    if (ranks_ == 1) {
      load.update_s += cost::update_s(cluster_, table, table.embedding_dim, read);
      load.unique += own;
      load.ids += ids;
      continue;
    }
    // A rank adds up its own rows; all ranks' partial rows are sorted together, each being an entry
    // with a gradient of its own, and every replica updates what any rank touched.
    const double partial = own * static_cast<double>(ranks_);
    const cost::ShardWork merged{
        .ids = partial, .unique = all, .bags = partial, .cold = 1.0, .pooled = true, .mixed = true};
    load.update_s += cost::gradients_s(cluster_, table.embedding_dim, read) +
                     copy_s(cluster_, own * (kReplicaEntry + width)) +
                     cost::coalesce_s(cluster_, table.num_embeddings, merged) +
                     cost::update_s(cluster_, table, table.embedding_dim, merged);
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
  const double matrices = 2.0 * matrix_bytes(config_, workload_, samples_);  // and gradients
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

/// What ranks do with the ids and vectors of their own samples, whoever holds the rows.
void Estimator::add_batch_work(PlanCost& cost, const spec::Plan& plan) const {
  const double elsewhere = 1.0 - 1.0 / static_cast<double>(ranks_);
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(Part::kExchangeIds)] +=
        copy_s(cluster_, rank.load.ids * elsewhere * kUnpackedId);
  }
  for (const FeatureUse& use : workload_.features) {
    const spec::TablePlan& table = plan.tables[at(use.table)];
    for (RankCost& rank : cost.ranks) {
      rank.seconds[at(Part::kExchangeCounts)] +=
          copy_s(cluster_, samples_ * use.length * kCheckedId);
    }
    if (table.sharding == Sharding::kDataParallel || ranks_ == 1) {
      continue;
    }
    if (rows_are_cut(table)) {
      add_cut_feature(cost, use, table);
    } else {
      add_whole_feature(cost, use, table);
    }
  }
}

/// Every id goes where its row is, and every vector comes from there and is added up. Ids are
/// counted, then scattered: for an id a line, and one for a vector of its bag.
void Estimator::add_cut_feature(PlanCost& cost,
                                const FeatureUse& use,
                                const spec::TablePlan& plan) const {
  const spec::Table& table = config_.tables[at(use.table)];
  const double ids = samples_ * use.length;
  const double dim = static_cast<double>(table.embedding_dim);
  double vectors = 0.0;  // of all cuts of rows
  for (const spec::Shard& shard : plan.shards) {
    const double share = share_of_rows(use, shard.rows, table.num_embeddings);
    vectors += (use.pooled ? bags_of(use, share, samples_) : ids * share) *
               static_cast<double>(shard.cols.size()) / dim;
  }
  const double sums = use.pooled ? samples_ * use.present : ids;
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(Part::kExchangeCounts)] +=
        copy_s(cluster_, ids * (kCheckedId + kLine) + vectors * kLine);
    rank.seconds[at(Part::kOutputDist)] +=
        copy_s(cluster_, vectors * (kFloat * dim + kLine) + sums * kFloat * dim);
    rank.seconds[at(Part::kGradDist)] += copy_s(cluster_, vectors * kFloat * dim);
  }
}

/// Ids of a table that is elsewhere are packed, its vectors read and written once.
void Estimator::add_whole_feature(PlanCost& cost,
                                  const FeatureUse& use,
                                  const spec::TablePlan& plan) const {
  const double ids = samples_ * use.length;
  const double vectors = use.pooled ? samples_ * use.present : ids;
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    double columns = 0.0;  // elsewhere
    for (const spec::Shard& shard : plan.shards) {
      columns +=
          shard.rank == static_cast<std::int64_t>(r) ? 0.0 : static_cast<double>(shard.cols.size());
    }
    std::array<double, kParts>& seconds = cost.ranks[r].seconds;
    seconds[at(Part::kExchangeCounts)] += columns > 0.0 ? copy_s(cluster_, ids * kPackedId) : 0.0;
    for (const Part part : {Part::kOutputDist, Part::kGradDist}) {
      seconds[at(part)] += copy_s(cluster_, 2.0 * kFloat * columns * vectors);
    }
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
  add_batch_work(cost, plan);
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
