#include "weft/planner/mesh_cost.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/cost/replicas.h"
#include "weft/cost/row_sums.h"
#include "weft/layout/replicas.h"
#include "weft/layout/row_gradients.h"
#include "weft/planner/owner_cost.h"
#include "weft/planner/step_exchanges.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using layout::Expected;
using topology::copy_s;

constexpr auto kRoundBytes = static_cast<double>(layout::kRoundBytes);
constexpr double kCountBytes = 8.0;  // of a shard

/// Of a shard, in both exchanges of counts together where its rows have owners among the groups.
double owner_count_bytes(const StepShape& shape, std::int64_t rows) {
  const std::int64_t owned = (rows + shape.mesh->groups - 1) / shape.mesh->groups;
  const auto nodes = std::ssize(shape.group_subtrees);
  return static_cast<double>(layout::count_bits(nodes * owned) + layout::count_bits(owned)) / 8.0;
}

/// The more syncs in which a row that no update touches is sent until nothing of it is lost: the
/// fewer digits a code has, the more. Measured with Adam, whose rows take longest.
double syncs_of_loss(CodecFormat format) {
  switch (format) {
    case CodecFormat::kFp32:
      return 0.0;
    case CodecFormat::kFp16:
    case CodecFormat::kBf16:
      return 2.0;
    case CodecFormat::kInt4:
      return 10.0;
    default:
      return 6.0;
  }
}

/// Whether rows are averaged that some group has touched, and not all: of tables whose rows are not
/// all in memory whatever the form.
bool averages_touched(const StepShape& shape, const spec::Table& table) {
  return shape.mesh->sync == spec::SyncForm::kTouched ||
         table.memory.tier != spec::MemoryTier::kDense;
}

/// What a codec of syncs keeps: copies of all rows, or where not all are in memory of those that
/// any group has touched since the last sync, or of which something is still lost.
double kept_memory(const StepShape& shape, const GroupWork& work) {
  const spec::Table& table = shape.config.tables[at(work.table)];
  const bool has_feedback = shape.config.codecs.error_feedback;
  const layout::SyncRow row = layout::sync_row(table, work.cols);
  const std::int64_t lost = has_feedback ? row.floats(work.cols) : 0;
  const auto all = static_cast<double>(work.rows);
  if (table.memory.tier == spec::MemoryTier::kDense) {
    return layout::total_bytes(layout::sync_copy_lengths(Expected{all}, row, lost)).value;
  }
  const double syncs = 1.0 + (has_feedback ? syncs_of_loss(shape.config.codecs.sync) : 0.0);
  const double ids =
      syncs * static_cast<double>(shape.mesh->groups * shape.mesh->sync_every) * work.ids;
  const double kept = std::min(all, unique_rows(work.held, ids));
  const layout::KeptCounts counts{.rows = work.rows,
                                  .slots = static_cast<std::int64_t>(std::ceil(kept))};
  return static_cast<double>(layout::kept_row_bytes(counts, row, lost) +
                             layout::kept_place_bytes(counts));
}

/// In place of the update of the group's own rows.
void add_group_gradients(const StepShape& shape, ShardLoad& load, const GroupWork& work) {
  const spec::Table& table = shape.config.tables[at(work.table)];
  const auto groups = static_cast<double>(shape.mesh->groups);
  const auto all = static_cast<double>(work.rows);
  double partials = 0.0;  // of (row, whole subtree of the group's parts)
  for (const double share : shape.group_subtrees) {
    partials += std::min(all, unique_rows(work.held, work.ids * share));
  }
  load.unique = std::min(all, unique_rows(work.held, groups * work.ids));
  const cost::SummedTable sums{
      .rows = work.rows, .cols = work.cols, .partials = partials, .touched = load.unique};
  const bool owned = layout::row_sums(shape.mesh->groups) == layout::RowSums::kOwned;
  load.partial_bytes = (owned ? owner_count_bytes(shape, work.rows) : cost::kRowCountBytes) +
                       cost::row_sum_bytes(shape.mesh->groups, sums);
  // Everybody sorts all partial sums; with owners these do, a share each, and everybody the sums.
  const double merged_rows = owned ? load.unique : groups * partials;
  const auto travels = layout::partial_row_lengths(Expected{partials}, work.cols);
  const cost::ShardWork merged{.rows = all,
                               .ids = merged_rows,
                               .unique = load.unique,
                               .bags = merged_rows,
                               .cold = 1.0,
                               .pooled = true,
                               .mixed = true};
  const cost::ShardWork& own = work.update;
  load.update_s += cost::gradients_s(shape.cluster, work.cols, own) +
                   std::max(0.0, own.ids - own.unique) * shape.cluster.compute.repeat.value -
                   cost::update_s(shape.cluster, table, work.cols, own) +
                   copy_s(shape.cluster, layout::total_bytes(travels).value) +
                   cost::coalesce_s(shape.cluster, work.rows, merged) +
                   cost::update_s(shape.cluster, table, work.cols, merged) +
                   (owned ? owner_s(shape, sums, groups) : 0.0);
  const bool received = topology::hosts(shape.world) > 1;
  const Expected more{std::max(0.0, merged_rows - load.ids)};
  load.sync_memory =
      layout::total_bytes(layout::partial_cut_lengths(Expected{partials})).value +
      travels.vectors.bytes().value +
      layout::total_bytes(layout::run_lengths(more, Expected{})).value +
      (received && !owned ? (groups - 1.0) * layout::total_bytes(travels).value : 0.0);
  if (owned) {
    load.sync_memory +=
        owner_memory(sums, groups, received ? Transport::kReceived : Transport::kLent);
  }
}

/// `counts`: bytes of the number of rows of every shard, by rank. With owners partial sums go to
/// them and sums come back, which are taken as as long, and so are their counts.
void add_group_sums(const StepShape& shape, PlanCost& cost, std::span<const double> counts) {
  const bool owned = layout::row_sums(shape.mesh->groups) == layout::RowSums::kOwned;
  const double times = owned ? 2.0 : 1.0;
  std::vector<double> rows;
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    const double partials = cost.ranks[r].load.partial_bytes;
    rows.push_back((partials - times * counts[r]) / times);
    cost.ranks[r].sync_bytes = static_cast<double>(shape.mesh->groups - 1) * partials;
  }
  const double before = cost.exchanges[at(StepPart::kUpdateRows)];
  for (const auto& bytes : {counts, std::span<const double>(rows)}) {
    add_world_stage(shape, cost, StepPart::kUpdateRows, replica_exchange(*shape.mesh, bytes),
                    times);
  }
  cost.sync_s = cost.exchanges[at(StepPart::kUpdateRows)] - before;
}

/// A sync's seconds and bytes count by the step. `counts`: of the shards with lists of rows.
void add_averages(const StepShape& shape, PlanCost& cost, std::span<const double> counts) {
  const auto groups = static_cast<double>(shape.mesh->groups);
  const double syncs = 1.0 / static_cast<double>(shape.mesh->sync_every);  // of a step
  double most = 0.0;
  double work = 0.0;
  for (RankCost& rank : cost.ranks) {
    most = std::max(most, rank.load.synced_bytes);
    work = std::max(work, rank.load.average_s);
    rank.seconds[at(StepPart::kSyncReplicas)] += syncs * rank.load.average_s;
    rank.sync_bytes = cost::replica_average_bytes(shape.mesh->groups, rank.load.synced_bytes) +
                      (groups - 1.0) * rank.load.list_bytes;
  }
  const double before = cost.exchanges[at(StepPart::kSyncReplicas)];
  if (*std::max_element(counts.begin(), counts.end()) > 0.0) {
    std::vector<double> lists;
    for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
      lists.push_back(cost.ranks[r].load.list_bytes - counts[r]);
    }
    add_world_stage(shape, cost, StepPart::kSyncReplicas, replica_exchange(*shape.mesh, counts),
                    syncs);
    add_world_stage(shape, cost, StepPart::kSyncReplicas, replica_exchange(*shape.mesh, lists),
                    syncs);
  }
  const double rounds = std::max(1.0, std::ceil(most / kRoundBytes));
  std::vector<double> rows;
  for (const RankCost& rank : cost.ranks) {
    rows.push_back(rank.load.synced_bytes / (groups * rounds));
  }
  // To the owners, and their averages back.
  add_world_stage(shape, cost, StepPart::kSyncReplicas, replica_exchange(*shape.mesh, rows),
                  2.0 * rounds * syncs);
  cost.sync_s = (cost.exchanges[at(StepPart::kSyncReplicas)] - before) / syncs + work;
}

}  // namespace

void add_sync(const StepShape& shape, ShardLoad& load, const GroupWork& work) {
  if (shape.mesh == nullptr) {
    return;
  }
  if (!shape.mesh->averages()) {
    add_group_gradients(shape, load, work);
    return;
  }
  const spec::Table& table = shape.config.tables[at(work.table)];
  const spec::Codecs& codecs = shape.config.codecs;
  const bool is_coded = codecs.sync != CodecFormat::kFp32;
  const double held_bytes = cost::replica_row_bytes(table, work.cols);
  const double row_bytes = cost::sync_row_bytes(table, work.cols, codecs);
  const auto all = static_cast<double>(work.rows);
  if (is_coded) {
    load.sync_memory = kept_memory(shape, work);
  }
  // Of encoding, per row: values, copies and residuals are read and written.
  const double coded_s = is_coded ? copy_s(shape.cluster, 4.0 * held_bytes + 2.0 * row_bytes) : 0.0;
  if (!averages_touched(shape, table)) {
    load.synced_bytes = all * row_bytes;
    load.average_s = copy_s(shape.cluster, 2.0 * load.synced_bytes) + all * coded_s;
    return;
  }
  const auto groups = static_cast<double>(shape.mesh->groups);
  const double since = static_cast<double>(shape.mesh->sync_every) * work.ids;  // the last sync
  const double own = std::min(all, unique_rows(work.held, since));
  const double any = std::min(all, unique_rows(work.held, groups * since));
  load.synced_bytes = any * row_bytes;
  load.list_bytes = cost::touched_list_bytes(2, 1.0, own);
  load.average_s = any * topology::row_s(shape.cluster, topology::RowAccess::kUpdate, held_bytes) +
                   copy_s(shape.cluster, load.synced_bytes) + any * coded_s;
  const auto lists =
      layout::touched_lengths(Expected{own}, Expected{load.unique},
                              is_coded ? Expected{any} : Expected{}, shape.mesh->groups);
  load.sync_memory += layout::total_bytes(lists).value;
}

/// Of a rank: rows of the others come in rounds, unless they are read where they are.
double sync_memory(const StepShape& shape, const ShardLoad& load) {
  const double bytes = std::min(load.synced_bytes, kRoundBytes);
  const Expected own{bytes / static_cast<double>(shape.mesh->groups)};
  const layout::SyncRound<Expected> round{.own = own,
                                          .away = {bytes - own.value},
                                          .groups = shape.mesh->groups,
                                          .lent = topology::hosts(shape.world) == 1};
  if (shape.config.codecs.sync == CodecFormat::kFp32) {
    return load.sync_memory + (round.lent ? 0.0 : round.away.value);
  }
  return load.sync_memory + layout::total_bytes(layout::sync_round_lengths(round)).value;
}

double sync_link_s(const StepShape& shape, const ShardLoad& load) {
  const double syncs = 1.0 / static_cast<double>(shape.mesh->sync_every);
  const auto others = static_cast<double>(shape.mesh->groups - 1);
  const double to_each =
      syncs *
          (2.0 * load.synced_bytes / static_cast<double>(shape.mesh->groups) + load.list_bytes) +
      load.partial_bytes;
  const double near = shape.mesh->near.front();
  return syncs * load.average_s +
         (near > 0.0 ? near * to_each / shape.world.links.host.rank.achieved() : 0.0) +
         (near < others ? (others - near) * to_each / shape.world.links.network.rank.achieved()
                        : 0.0);
}

void add_mesh_exchanges(const StepShape& shape, PlanCost& cost, const spec::Plan& plan) {
  // The control block of a group, from each of its ranks to the same places of the others.
  const std::vector<double> control(at(shape.ranks), control_bytes(shape, shape.mesh->groups));
  add_world_stage(shape, cost, StepPart::kExchangeCounts, replica_exchange(*shape.mesh, control));
  std::vector<double> counts(at(shape.ranks), 0.0);
  const bool owned =
      !shape.mesh->averages() && layout::row_sums(shape.mesh->groups) == layout::RowSums::kOwned;
  double shards = 0.0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    const bool is_counted =
        !shape.mesh->averages() || averages_touched(shape, shape.config.tables[t]);
    for (const spec::Shard& shard : table.shards) {
      if (is_counted) {
        counts[at(shard.rank)] +=
            owned ? owner_count_bytes(shape, shard.rows.size()) / 2.0 : kCountBytes;
      }
      shards += 1.0;
    }
  }
  if (shards == 0.0) {
    return;
  }
  shape.mesh->averages() ? add_averages(shape, cost, counts) : add_group_sums(shape, cost, counts);
}

}  // namespace weft::planner
