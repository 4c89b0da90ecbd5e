// Exchanges of a step under a plan: who sends how much to whom, and how long that takes.
#include <algorithm>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/run_sums.h"
#include "weft/cost/hierarchical.h"
#include "weft/planner/estimate.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using cost::Exchange;

constexpr double kHeaderBytes = 32.0;
constexpr double kSlotBytes = 16.0;
constexpr double kControlBytes = 24.0;  // stop request, run of parts
constexpr double kReportBytes = 160.0;  // the fixed part of a step's report, run of parts
constexpr double kWeightBytes = 8.0;    // of a subtree of parts and task
constexpr double kMetricBytes = 40.0;   // of a subtree of parts and task
constexpr double kReplicaCount = 8.0;   // of a table

/// What a rank sends to itself never leaves its memory.
Exchange away(Exchange exchange) {
  for (cost::RankTraffic& rank : exchange.ranks) {
    rank.sent[0] = rank.received[0] = 0.0;
  }
  return exchange;
}

bool is_anything(const Exchange& exchange) {
  return std::any_of(
      exchange.ranks.begin(), exchange.ranks.end(),
      [](const cost::RankTraffic& rank) { return rank.sent[1] + rank.sent[2] > 0.0; });
}

}  // namespace

double Estimator::control_bytes() const {
  return kControlBytes + kWeightBytes * subtree_sums();
}

/// Of a step's report.
double Estimator::report_bytes() const {
  return kReportBytes + kMetricBytes * subtree_sums();
}

/// Sums that a block has, whatever its run of parts (weft/base/run_sums.h).
double Estimator::subtree_sums() const {
  return static_cast<double>(most_subtrees(shape_.parts)) *
         static_cast<double>(shape_.config.tasks.size());
}

/// A slot's counts go to the rank that serves it; headers and control blocks go to everybody: what
/// each rank sends to each.
std::vector<double> Estimator::count_bytes(const spec::Plan& plan) const {
  std::vector<double> bytes(at(shape_.ranks), kHeaderBytes + control_bytes());
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    const auto features = static_cast<double>(shape_.by_table[t].size());
    const double slots = is_fetched(table) ? std::min(1.0, features) : features;
    for (const spec::Shard& shard : table.shards) {
      bytes[at(shard.rank)] += kSlotBytes * slots;
    }
  }
  return bytes;
}

/// Row statistics of shards of the same rows go from each to each.
void Estimator::add_pairs(Exchange& statistics,
                          std::span<const spec::Shard> beside,
                          std::span<const double> bytes) const {
  for (std::size_t a = 0; a < beside.size(); ++a) {
    for (std::size_t b = 0; b < beside.size() && bytes[a] > 0.0; ++b) {
      if (beside[a].rank != beside[b].rank) {
        const auto link = static_cast<std::size_t>(
            topology::link_class(shape_.cluster, beside[a].rank, beside[b].rank));
        statistics.ranks[at(beside[a].rank)].sent[link] += bytes[a];
        statistics.ranks[at(beside[b].rank)].received[link] += bytes[a];
      }
    }
  }
}

void Estimator::add_exchanges(PlanCost& cost,
                              const spec::Plan& plan,
                              const Exchange& statistics,
                              double replica_bytes) const {
  if (shape_.world_ranks == 1) {
    return;
  }
  std::vector<double> ids;
  std::vector<double> vectors;
  std::vector<double> gradients;
  for (const RankCost& rank : cost.ranks) {
    ids.push_back(rank.load.ids_bytes);
    vectors.push_back(rank.load.vector_bytes);
    gradients.push_back(rank.load.gradient_bytes);
  }
  const auto each = [&](double bytes) {
    return std::vector<double>(shape_.everybody.size(), bytes);
  };
  const std::vector<double> ones(cost.ranks.size(), 1.0);
  const spec::CollectiveForms& forms = plan.collectives;
  if (shape_.ranks > 1) {
    add_exchange(cost, StepPart::kExchangeCounts, forms.ids,
                 {.from = ones, .to = count_bytes(plan)});
    add_exchange(cost, StepPart::kExchangeIds, forms.ids, {.from = ones, .to = ids});
    add_exchange(cost, StepPart::kOutputDist, forms.vectors, {.from = vectors, .to = ones});
    add_exchange(cost, StepPart::kGradDist, forms.vectors, {.from = ones, .to = gradients});
  }
  add_world_stage(cost, StepPart::kExchangeFlags,
                  away(cost::all_gather(shape_.world, shape_.everybody, each(report_bytes()))));
  if (is_anything(statistics)) {  // with a max_norm twice, which is not told apart
    add_statistics(cost, forms.vectors, statistics);
  }
  const auto replicas = static_cast<double>(
      std::count_if(plan.tables.begin(), plan.tables.end(), [](const spec::TablePlan& table) {
        return table.sharding == spec::Sharding::kDataParallel || !table.hot.empty();
      }));
  for (const double bytes : {kReplicaCount * replicas, replica_bytes}) {
    if (replicas > 0.0) {
      add_gather(cost, forms.vectors, each(bytes));
    }
  }
}

void Estimator::add_stage(PlanCost& cost, StepPart part, const Exchange& exchange) const {
  cost.exchanges[at(part)] += cost::exchange_s(shape_.cluster, exchange);
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
      cost.ranks[r].sent[c] += exchange.ranks[r].sent[c];
    }
  }
}

void Estimator::add_exchange(PlanCost& cost,
                             StepPart part,
                             spec::CollectiveForm form,
                             const Outer& bytes) const {
  const topology::Group all = topology::all_ranks(shape_.cluster);
  if (is_hierarchical(form)) {
    for (const Exchange& stage : cost::relayed(shape_.cluster, all, bytes.from, bytes.to).stages) {
      add_stage(cost, part, stage);
    }
    return;
  }
  add_stage(cost, part, away(cost::all_to_all_outer(shape_.cluster, all, bytes.from, bytes.to)));
}

/// Between hosts as in the flat form: relays take fewer messages for the same bytes, and which rank
/// relays them is not told apart.
void Estimator::add_statistics(PlanCost& cost,
                               spec::CollectiveForm form,
                               const Exchange& statistics) const {
  const topology::Group all = topology::all_ranks(shape_.cluster);
  if (is_hierarchical(form)) {
    const std::vector<double> nothing(all.size(), 0.0);
    cost::Staged staged = cost::relayed(shape_.cluster, all, nothing, nothing);
    cost::add(staged.stages[2], statistics);
    for (const Exchange& stage : staged.stages) {
      add_stage(cost, StepPart::kUpdateRows, stage);
    }
    return;
  }
  Exchange exchange = cost::barrier(shape_.cluster, all);  // its messages
  cost::add(exchange, statistics);
  add_stage(cost, StepPart::kUpdateRows, exchange);
}

/// Over all groups it is flat, on a communicator of its own.
void Estimator::add_gather(PlanCost& cost,
                           spec::CollectiveForm form,
                           std::span<const double> bytes) const {
  if (is_hierarchical(form) && shape_.mesh == nullptr) {
    for (const Exchange& stage :
         cost::relayed_all_gather(shape_.cluster, shape_.everybody, bytes).stages) {
      add_stage(cost, StepPart::kUpdateRows, stage);
    }
    return;
  }
  add_world_stage(cost, StepPart::kUpdateRows,
                  away(cost::all_gather(shape_.world, shape_.everybody, bytes)));
}

/// The sum of dense gradients.
void Estimator::add_reduce(PlanCost& cost, spec::CollectiveForm form, std::int64_t count) const {
  if (shape_.world_ranks == 1) {
    return;
  }
  const cost::ReduceWire wire{.format = shape_.config.codecs.dense,
                              .group = shape_.config.codecs.group_size,
                              .error_feedback = shape_.config.codecs.error_feedback};
  if (form == spec::CollectiveForm::kHierarchical && shape_.has_dense_hierarchy) {
    const auto reduce =
        cost::hierarchical_all_reduce(shape_.world, shape_.everybody, shape_.parts, count, wire);
    for (const Exchange& stage : reduce.exchanges.stages) {
      add_world_stage(cost, StepPart::kReduce, stage);
    }
    cost.exchanges[at(StepPart::kReduce)] +=
        topology::copy_s(shape_.cluster, reduce.added_bytes + reduce.coded_bytes);
    return;
  }
  const auto reduce =
      cost::ordered_all_reduce(shape_.world, shape_.everybody, shape_.parts, count, wire);
  add_world_stage(cost, StepPart::kReduce, reduce.partials);
  add_world_stage(cost, StepPart::kReduce, reduce.sums);
  cost.exchanges[at(StepPart::kReduce)] +=
      topology::copy_s(shape_.cluster, reduce.added_bytes + reduce.coded_bytes);
}

bool Estimator::is_hierarchical(spec::CollectiveForm form) const {
  return form == spec::CollectiveForm::kHierarchical && shape_.has_hierarchy;
}

}  // namespace weft::planner
