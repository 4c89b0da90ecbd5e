// What replica groups add to a step (docs/2d.md): the sync of a shard's replicas, by its form, and
// the control blocks that groups exchange. Bytes are those of weft/cost/replicas.h.
//
// Notation: M groups, τ steps from sync to sync, R rows of a shard, n ids of a group in a step, x
// bytes of a row with its state, D columns. Rows touched since the last sync: by one group
// U = unique_rows(τ n), by any V = unique_rows(τ M n). A sync averages R or V rows in two even
// exchanges among the M replicas of every shard, as many times as it has 64 MiB. Its own work:
//
//   dense      copy(2 R x): its share of every replica is read and of the average written, and what
//              the others have averaged
//   touched    V update(x) + copy(V x): the same at random places; sorting lists is not counted
//              With codecs.sync x of what travels is that of the codes, and values, copies and
//              residuals of every row are copied besides
//   gradients  every step: own partial rows are written, those of all groups sorted and added up
//              before one update, as those of a replica
#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/at.h"
#include "weft/cost/memory.h"
#include "weft/cost/replicas.h"
#include "weft/cost/tables.h"
#include "weft/planner/estimate.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using topology::copy_s;

constexpr double kRoundBytes = 64.0 * 1024.0 * 1024.0;  // weft/sharding/replica_average.h
constexpr double kCountBytes = 8.0;                     // of a shard
constexpr double kPartialRow = 12.0;                    // row, part and place of a partial row
constexpr double kEntry = 28.0;                         // as in step_memory.h
constexpr double kSegment = 20.0;
constexpr double kReceivedRow = 16.0;
constexpr double kPlace = 5.0;  // of a touched row's code, cost::coded_sync_buffers

}  // namespace

void Estimator::add_sync(ShardLoad& load, const GroupWork& work) const {
  if (shape_.mesh == nullptr) {
    return;
  }
  if (!shape_.mesh->averages()) {
    add_group_gradients(load, work);
    return;
  }
  const spec::Table& table = shape_.config.tables[at(work.table)];
  const spec::Codecs& codecs = shape_.config.codecs;
  const double held_bytes = cost::replica_row_bytes(table, work.cols);
  const double row_bytes = cost::sync_row_bytes(table, work.cols, codecs);
  const auto all = static_cast<double>(work.rows);
  load.sync_memory = cost::coded_sync_memory(table, all, work.cols, codecs);
  // Of encoding, per row: values, copies and residuals are read and written.
  const double coded_s = codecs.sync == CodecFormat::kFp32
                             ? 0.0
                             : copy_s(shape_.cluster, 4.0 * held_bytes + 2.0 * row_bytes);
  if (shape_.mesh->sync == spec::SyncForm::kDense) {
    load.synced_bytes = all * row_bytes;
    load.average_s = copy_s(shape_.cluster, 2.0 * load.synced_bytes) + all * coded_s;
    return;
  }
  const auto groups = static_cast<double>(shape_.mesh->groups);
  const double since = static_cast<double>(shape_.mesh->sync_every) * work.ids;  // the last sync
  const double own = std::min(all, unique_rows(work.held, since));
  const double any = std::min(all, unique_rows(work.held, groups * since));
  load.synced_bytes = any * row_bytes;
  load.list_bytes = cost::touched_list_bytes(2, 1.0, own);
  load.average_s = any * topology::row_s(shape_.cluster, topology::RowAccess::kUpdate, held_bytes) +
                   copy_s(shape_.cluster, load.synced_bytes) + any * coded_s;
  // Own list while it grows, rows of one step, lists of the others.
  load.sync_memory += 8.0 * own + 4.0 * load.unique + 4.0 * (groups - 1.0) * own;
  load.sync_memory += codecs.sync == CodecFormat::kFp32 ? 0.0 : kPlace * any;
}

/// In place of the update of the group's own rows.
void Estimator::add_group_gradients(ShardLoad& load, const GroupWork& work) const {
  const spec::Table& table = shape_.config.tables[at(work.table)];
  const auto groups = static_cast<double>(shape_.mesh->groups);
  const auto all = static_cast<double>(work.rows);
  const double width = cost::kFloatBytes * static_cast<double>(work.cols);
  double partials = 0.0;  // of (row, whole subtree of the group's parts)
  for (const double share : shape_.group_subtrees) {
    partials += std::min(all, unique_rows(work.held, work.ids * share));
  }
  load.partial_bytes = cost::group_gradient_bytes(2, work.cols, partials);
  load.unique = std::min(all, unique_rows(work.held, groups * work.ids));
  const double merged_rows = groups * partials;
  const cost::ShardWork merged{.rows = all,
                               .ids = merged_rows,
                               .unique = load.unique,
                               .bags = merged_rows,
                               .cold = 1.0,
                               .pooled = true,
                               .mixed = true};
  const cost::ShardWork& own = work.update;
  load.update_s += cost::gradients_s(shape_.cluster, work.cols, own) +
                   std::max(0.0, own.ids - own.unique) * shape_.cluster.compute.repeat.value -
                   cost::update_s(shape_.cluster, table, work.cols, own) +
                   copy_s(shape_.cluster, partials * (kPartialRow + width)) +
                   cost::coalesce_s(shape_.cluster, work.rows, merged) +
                   cost::update_s(shape_.cluster, table, work.cols, merged);
  const bool received = topology::hosts(shape_.world) > 1;
  load.sync_memory = partials * (kSegment + width) +
                     std::max(0.0, merged_rows - load.ids) * kEntry +
                     (received ? (groups - 1.0) * partials * (kReceivedRow + width) : 0.0);
}

/// Of a rank: rows of the others come in rounds, unless they are read where they are.
double Estimator::sync_memory(const ShardLoad& load) const {
  const double others = 1.0 - 1.0 / static_cast<double>(shape_.mesh->groups);
  const bool received = topology::hosts(shape_.world) > 1;
  if (shape_.config.codecs.sync != CodecFormat::kFp32) {
    return load.sync_memory + cost::coded_sync_buffers(shape_.mesh->groups, load.synced_bytes, 0.0,
                                                       received, shape_.config.codecs);
  }
  return load.sync_memory + (received ? others * std::min(load.synced_bytes, kRoundBytes) : 0.0);
}

/// Per step, with the averages' work.
double Estimator::sync_link_s(const ShardLoad& load) const {
  const double syncs = 1.0 / static_cast<double>(shape_.mesh->sync_every);
  const auto others = static_cast<double>(shape_.mesh->groups - 1);
  const double to_each =
      syncs *
          (2.0 * load.synced_bytes / static_cast<double>(shape_.mesh->groups) + load.list_bytes) +
      load.partial_bytes;
  const double near = shape_.mesh->near.front();
  return syncs * load.average_s +
         (near > 0.0 ? near * to_each / shape_.world.links.host.rank.achieved() : 0.0) +
         (near < others ? (others - near) * to_each / shape_.world.links.network.rank.achieved()
                        : 0.0);
}

/// `times` such exchanges one after the other. What ranks at one place of their groups send is, on
/// average, what is said of the place.
void Estimator::add_world_stage(PlanCost& cost,
                                StepPart part,
                                const cost::Exchange& exchange,
                                double times) const {
  if (shape_.mesh == nullptr) {
    add_stage(cost, part, exchange);
    return;
  }
  cost.exchanges[at(part)] += times * cost::exchange_s(shape_.world, exchange);
  const double share = times / static_cast<double>(shape_.mesh->groups);
  for (std::size_t p = 0; p < shape_.everybody.size(); ++p) {
    const cost::RankTraffic& rank = exchange.ranks[at(shape_.everybody[p])];
    for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
      cost.ranks[p % cost.ranks.size()].sent[c] += share * rank.sent[c];
    }
  }
}

void Estimator::add_mesh_exchanges(PlanCost& cost, const spec::Plan& plan) const {
  // The control block of a group, from each of its ranks to the same places of the others.
  const std::vector<double> control(at(shape_.ranks), control_bytes());
  add_world_stage(cost, StepPart::kExchangeCounts, replica_exchange(*shape_.mesh, control));
  std::vector<double> counts(at(shape_.ranks), 0.0);
  double shards = 0.0;
  for (const spec::TablePlan& table : plan.tables) {
    if (table.sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    for (const spec::Shard& shard : table.shards) {
      counts[at(shard.rank)] += kCountBytes;
      shards += 1.0;
    }
  }
  if (shards == 0.0) {
    return;
  }
  shape_.mesh->averages() ? add_averages(cost, counts) : add_group_sums(cost, counts);
}

/// `counts`: bytes of the number of rows of every shard, by rank.
void Estimator::add_group_sums(PlanCost& cost, std::span<const double> counts) const {
  std::vector<double> rows;
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    const double partials = cost.ranks[r].load.partial_bytes;
    rows.push_back(partials - counts[r]);
    cost.ranks[r].sync_bytes = static_cast<double>(shape_.mesh->groups - 1) * partials;
  }
  const double before = cost.exchanges[at(StepPart::kUpdateRows)];
  add_world_stage(cost, StepPart::kUpdateRows, replica_exchange(*shape_.mesh, counts));
  add_world_stage(cost, StepPart::kUpdateRows, replica_exchange(*shape_.mesh, rows));
  cost.sync_s = cost.exchanges[at(StepPart::kUpdateRows)] - before;
}

/// A sync's seconds and bytes count by the step.
void Estimator::add_averages(PlanCost& cost, std::span<const double> counts) const {
  const auto groups = static_cast<double>(shape_.mesh->groups);
  const double syncs = 1.0 / static_cast<double>(shape_.mesh->sync_every);  // of a step
  double most = 0.0;
  double work = 0.0;
  for (RankCost& rank : cost.ranks) {
    most = std::max(most, rank.load.synced_bytes);
    work = std::max(work, rank.load.average_s);
    rank.seconds[at(StepPart::kSyncReplicas)] += syncs * rank.load.average_s;
    rank.sync_bytes = cost::replica_average_bytes(shape_.mesh->groups, rank.load.synced_bytes) +
                      (groups - 1.0) * rank.load.list_bytes;
  }
  const double before = cost.exchanges[at(StepPart::kSyncReplicas)];
  if (shape_.mesh->sync == spec::SyncForm::kTouched) {
    std::vector<double> lists;
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      lists.push_back(cost.ranks[r].load.list_bytes - counts[r]);
    }
    add_world_stage(cost, StepPart::kSyncReplicas, replica_exchange(*shape_.mesh, counts), syncs);
    add_world_stage(cost, StepPart::kSyncReplicas, replica_exchange(*shape_.mesh, lists), syncs);
  }
  const double rounds = std::max(1.0, std::ceil(most / kRoundBytes));
  std::vector<double> rows;
  for (const RankCost& rank : cost.ranks) {
    rows.push_back(rank.load.synced_bytes / (groups * rounds));
  }
  // To the owners, and their averages back.
  add_world_stage(cost, StepPart::kSyncReplicas, replica_exchange(*shape_.mesh, rows),
                  2.0 * rounds * syncs);
  cost.sync_s = (cost.exchanges[at(StepPart::kSyncReplicas)] - before) / syncs + work;
}

}  // namespace weft::planner
