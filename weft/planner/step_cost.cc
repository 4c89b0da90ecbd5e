#include "weft/planner/step_cost.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/cost/dense.h"
#include "weft/cost/fetch.h"
#include "weft/cost/row_sums.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/mesh_cost.h"
#include "weft/planner/sample_cost.h"
#include "weft/planner/shard_cost.h"
#include "weft/planner/step_exchanges.h"
#include "weft/planner/step_memory.h"
#include "weft/planner/tier_use.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

constexpr double kStages = 12.0;

template <typename Of>
double max_over(const std::vector<RankCost>& ranks, const Of& of) {
  double most = 0.0;
  for (const RankCost& rank : ranks) {
    most = std::max(most, of(rank));
  }
  return most;
}

/// Ranks of one host are taken to share a process.
void add_memory(const StepShape& shape,
                PlanCost& cost,
                const spec::Plan& plan,
                const HotUses& hot_uses) {
  const auto transport = topology::hosts(shape.world) > 1 ? Transport::kReceived : Transport::kLent;
  const std::vector<StepMemory> memory =
      step_memory(shape.config, shape.workload, plan, {.transport = transport}, hot_uses);
  double dense = shape.dense_bytes;
  if (plan.collectives.dense != spec::CollectiveForm::kFlat && shape.has_dense_hierarchy) {
    DenseMemoryShape whole{.parts = shape.parts,
                           .ranks = shape.world_ranks,
                           .rank = 0,
                           .threads = shape.cluster.threads,
                           .crossing = plan.collectives.dense_crossing()};
    for (const std::int64_t rank : shape.everybody) {
      whole.hosts.push_back(topology::host_of(shape.world, rank));
    }
    dense = dense_memory(shape.config, shape.workload, whole).bytes();
  }
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    cost.ranks[r].buffer_bytes = memory[r].buffers() + memory[r].places + memory[r].tables -
                                 static_cast<double>(cost.ranks[r].table_bytes);
    if (shape.mesh != nullptr) {
      cost.ranks[r].buffer_bytes += sync_memory(shape, cost.ranks[r].load);
    }
    cost.ranks[r].sample_bytes = memory[r].matrices + dense;
  }
}

/// Rows that are not all in memory.
void add_fetches(const StepShape& shape,
                 PlanCost& cost,
                 const spec::Plan& plan,
                 const HotUses& hot_uses) {
  for (const ShardTier& tier : shard_tiers(shape.config, shape.workload, plan, hot_uses)) {
    const cost::FetchWork work{.rows = tier.rows,
                               .ids = tier.step_ids,
                               .unique = tier.step_rows,
                               .missed = tier.missed,
                               .blocks = tier.blocks,
                               .row_bytes = static_cast<double>(tier.row_bytes)};
    FetchCost& fetch = cost.ranks[at(tier.rank)].fetch;
    fetch.own_s += cost::fetch_s(shape.cluster, work);
    fetch.disk_s += cost::disk_s(shape.cluster, work);
  }
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kFetch)] += rank.fetch.seconds();
  }
}

/// The dense model, and the sum of its gradients.
void add_dense(const StepShape& shape, PlanCost& cost, const spec::Plan& plan) {
  std::vector<double> lengths;
  for (const FeatureUse& use : shape.workload.features) {
    lengths.push_back(use.length);
  }
  const cost::DenseWork work = cost::dense_work(shape.config, lengths);
  const double own_parts =
      std::ceil(static_cast<double>(shape.parts) / static_cast<double>(shape.world_ranks));
  const cost::DenseBatch batch =
      cost::dense_batch(shape.config.batch_size, shape.parts, own_parts, shape.samples);
  const double model_s = cost::forward_s(shape.cluster, shape.config, work, batch) +
                         cost::backward_s(shape.cluster, shape.config, work, batch);
  const double weights_s = cost::weight_gradients_s(shape.cluster, shape.config, work, batch);
  const double update_s = cost::dense_update_s(shape.cluster, shape.config, work);
  constexpr double kJoinedBytes = 16.0;  // of a parameter: written, and added to the earlier sum
  cost.join_s = topology::copy_s(shape.cluster, kJoinedBytes * work.parameters);
  for (RankCost& rank : cost.ranks) {
    rank.seconds[at(StepPart::kForwardBackward)] += model_s - weights_s;
    rank.seconds[at(StepPart::kWeightGradients)] += weights_s;
    rank.seconds[at(StepPart::kUpdateDense)] += update_s;
  }
  add_reduce(shape, cost, plan.collectives, static_cast<std::int64_t>(work.bucket));
}

/// The parts and the whole step, of what ranks and exchanges take.
void finish(const StepShape& shape, PlanCost& cost) {
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
      max_over(cost.ranks, own({StepPart::kExchangeIds, StepPart::kFetch, StepPart::kLookup})) +
      exchange(StepPart::kOutputDist) +
      max_over(cost.ranks, own({StepPart::kOutputDist, StepPart::kForwardBackward,
                                StepPart::kWeightGradients}));
  const double links = exchange(StepPart::kExchangeReport) + exchange(StepPart::kGradDist) +
                       exchange(StepPart::kUpdateRows) + exchange(StepPart::kSyncReplicas);
  // Row updates of this step, the dense one and the packing of the next: nobody waits in between.
  const double rows =
      links + max_over(cost.ranks, own({StepPart::kCoalesce})) +
      max_over(cost.ranks, own({StepPart::kGradDist, StepPart::kUpdateRows, StepPart::kSyncReplicas,
                                StepPart::kUpdateDense, StepPart::kExchangeCounts}));
  const double reduce = exchange(StepPart::kReduce);
  const double tail = shape.config.train.overlap ? std::max(rows, links + reduce) : rows + reduce;
  const double stages = shape.mesh == nullptr ? kStages : kStages + 1.0;  // sync_replicas
  cost.step_s = begin + tail + stages * shape.cluster.compute.stage.value;
  for (const StepPart part : kPredictedParts) {
    const auto p = static_cast<std::size_t>(part);
    cost.parts[p] = max_over(cost.ranks, own({part})) + cost.exchanges[p];
    for (RankCost& rank : cost.ranks) {
      rank.seconds[p] += cost.exchanges[p];
    }
  }
}

/// Tables of which all ranks hold rows.
std::int64_t count_copies(const spec::Plan& plan) {
  return std::count_if(plan.tables.begin(), plan.tables.end(), [](const spec::TablePlan& table) {
    return table.sharding == spec::Sharding::kDataParallel || !table.hot.empty();
  });
}

}  // namespace

PlanCost step_cost(const StepShape& shape,
                   const HotUses& hot_uses,
                   const spec::Plan& plan,
                   ShardLoads& loads) {
  WEFT_CHECK(plan.ranks == shape.ranks, "a plan for {} ranks on a cluster of {}", plan.ranks,
             shape.ranks);
  PlanCost cost;
  cost.ranks.resize(at(shape.ranks));
  ShardLoad replicas;
  cost::RowSumBytes row_sums(shape.world_ranks, count_copies(plan), std::ssize(shape.subtrees));
  const auto add_copies = [&](std::size_t t, std::int64_t rows, const ShardLoad& load) {
    replicas += load;
    row_sums.add({.rows = rows,
                  .cols = shape.config.tables[t].embedding_dim,
                  .partials = load.partials,
                  .touched = load.unique});
  };
  std::vector<double> bytes;  // of row statistics
  std::vector<spec::Shard> beside;
  RowStatistics statistics;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == spec::Sharding::kDataParallel) {
      add_copies(t, shape.config.tables[t].num_embeddings,
                 loads.replica(static_cast<std::int64_t>(t)));
      continue;
    }
    const spec::PooledAt pooled_at =
        is_fetched(table) ? spec::PooledAt::kSample : spec::PooledAt::kOwner;
    const auto hot_use = hot_uses.of(static_cast<std::int64_t>(t), table.hot);
    if (hot_use) {
      add_copies(t, hot_use->rows->size(),
                 hot_rows_cost(shape, static_cast<std::int64_t>(t), *hot_use, pooled_at));
    }
    for (std::size_t i = 0; i < table.shards.size();) {
      std::size_t end = i;  // after the shards of the same rows, which lie side by side
      while (end < table.shards.size() && table.shards[end].rows == table.shards[i].rows) {
        ++end;
      }
      beside.clear();
      for (; i < end; ++i) {
        beside.push_back(table.shards[i]);
      }
      bytes.clear();
      const auto count = static_cast<std::int64_t>(beside.size());
      for (const spec::Shard& one : beside) {
        TableBlock block = block_of(static_cast<std::int64_t>(t), one, pooled_at, hot_use.get());
        block.column_shards = count;
        const ShardLoad& load = loads.of(block);
        bytes.push_back(load.statistic_bytes / std::max(1.0, static_cast<double>(count - 1)));
        cost.ranks[at(one.rank)].load += load;
      }
      add_pairs(statistics, shape.config.tables[t], beside, bytes);
    }
  }
  replicas.statistic_bytes = 0.0;  // in row_sums, and not exchanged between shards
  add_batch_work(shape, cost, plan, hot_uses);
  for (RankCost& rank : cost.ranks) {
    rank.load += replicas;
    rank.table_bytes = rank.load.bytes;
    rank.seconds[at(StepPart::kLookup)] += rank.load.lookup_s;
    rank.seconds[at(StepPart::kOutputDist)] += rank.load.encode_s;
    rank.seconds[at(StepPart::kCoalesce)] += rank.load.coalesce_s;
    rank.seconds[at(StepPart::kGradDist)] += rank.load.decode_s;
    rank.seconds[at(StepPart::kUpdateRows)] += rank.load.update_s;
  }
  add_fetches(shape, cost, plan, hot_uses);
  add_memory(shape, cost, plan, hot_uses);
  add_dense(shape, cost, plan);
  add_exchanges(shape, cost, plan, statistics, row_sums);
  if (shape.mesh != nullptr) {
    add_mesh_exchanges(shape, cost, plan);
  }
  finish(shape, cost);
  return cost;
}

}  // namespace weft::planner
