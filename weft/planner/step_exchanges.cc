#include "weft/planner/step_exchanges.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/run_sums.h"
#include "weft/base/sparse_optimizer.h"
#include "weft/cost/hierarchical.h"
#include "weft/layout/id_lanes.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using cost::EmptyLanes;
using cost::Exchange;

constexpr double kHeaderBytes = 40.0;
constexpr double kSlotBytes = 16.0;
constexpr double kControlBytes = 24.0;  // stop request, run of parts
constexpr double kReportBytes = 160.0;  // the fixed part of a step's report, run of parts
constexpr double kWeightBytes = 8.0;    // of a subtree of parts and task
constexpr double kMetricBytes = 40.0;   // of a subtree of parts and task
constexpr double kSentLane =
    1e-9;  // of ids: of few ranks a lane of slots is sent, even of no bytes

/// Rank i sends from[i] · to[j] bytes to rank j.
struct Outer {
  std::vector<double> from;  ///< [ranks]
  std::vector<double> to;    ///< [ranks]
};

/// What a rank sends to itself never leaves its memory.
Exchange away(Exchange exchange) {
  for (cost::RankTraffic& rank : exchange.ranks) {
    rank.sent[0] = rank.received[0] = 0.0;
  }
  return exchange;
}

/// Of the rank with most, `times` such an exchange.
void add_most(PlanCost& cost, StepPart part, const Exchange& exchange, double times = 1.0) {
  double messages = 0.0;
  double sent = 0.0;
  for (const cost::RankTraffic& rank : exchange.ranks) {
    messages = std::max(messages, rank.messages[1] + rank.messages[2]);
    sent = std::max(sent, rank.sent[1] + rank.sent[2]);
  }
  cost.messages[at(part)] += times * messages;
  cost.sent[at(part)] += times * sent;
}

bool is_hierarchical(const StepShape& shape, spec::CollectiveForm form) {
  return form == spec::CollectiveForm::kHierarchical && shape.has_hierarchy;
}

/// Sums of blocks with so many subtrees of parts (weft/base/run_sums.h).
double subtree_sums(const StepShape& shape, std::int64_t subtrees) {
  return static_cast<double>(subtrees) * static_cast<double>(shape.config.tasks.size());
}

/// Of a step's report.
double report_bytes(const StepShape& shape) {
  return kReportBytes + kMetricBytes * subtree_sums(shape, most_subtrees(shape.parts));
}

/// [ranks] slots that each serves for samples of other ranks.
std::vector<double> served_slots(const StepShape& shape, const spec::Plan& plan) {
  std::vector<double> served(at(shape.ranks), 0.0);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::TablePlan& table = plan.tables[t];
    if (table.sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    const auto features = static_cast<double>(shape.by_table[t].size());
    const double slots = is_fetched(table) ? std::min(1.0, features) : features;
    for (const spec::Shard& shard : table.shards) {
      served[at(shard.rank)] += slots;
    }
  }
  return served;
}

/// Headers and control blocks go to everybody, and of few ranks a slot's counts to the rank that
/// serves it: what each rank sends to each.
std::vector<double> count_bytes(const StepShape& shape, std::span<const double> slots) {
  const double each = layout::packs_id_lanes(shape.ranks) ? 0.0 : kSlotBytes;
  const double block = kHeaderBytes + control_bytes(shape, shape.world_ranks);
  std::vector<double> bytes;
  for (const double of_rank : slots) {
    bytes.push_back(block + each * of_rank);
  }
  return bytes;
}

/// The marks in the lane from one rank to one that serves `slots` slots, for which the lane is
/// expected to have `ids` ids in all; slots are taken to be alike. The counts of each slot are
/// among its shard's ids (shard_cost.cc).
double lane_marks_bytes(const StepShape& shape, double slots, double ids) {
  if (!layout::packs_id_lanes(shape.ranks) || ids <= 0.0) {
    return 0.0;
  }
  const double share = layout::share_with_ids(ids);
  const double marked = slots * layout::share_with_ids(ids / slots) / share;
  return share * static_cast<double>(layout::slot_marks_bytes(static_cast<std::int64_t>(slots),
                                                              std::llround(marked)));
}

void add_stage(const StepShape& shape, PlanCost& cost, StepPart part, const Exchange& exchange) {
  cost.exchanges[at(part)] += cost::exchange_s(shape.cluster, exchange);
  cost.starts[at(part)] += cost::start_s(shape.cluster, exchange);
  add_most(cost, part, exchange);
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
      cost.ranks[r].sent[c] += exchange.ranks[r].sent[c];
      cost.ranks[r].messages[c] += exchange.ranks[r].messages[c];
    }
  }
}

void add_exchange(const StepShape& shape,
                  PlanCost& cost,
                  StepPart part,
                  spec::CollectiveForm form,
                  const Outer& bytes) {
  const topology::Group all = topology::all_ranks(shape.cluster);
  if (is_hierarchical(shape, form)) {
    const cost::Staged staged =
        cost::relayed(shape.cluster, all, bytes.from, bytes.to, EmptyLanes::kSilent);
    for (const Exchange& stage : staged.stages) {
      add_stage(shape, cost, part, stage);
    }
    return;
  }
  add_stage(
      shape, cost, part,
      away(cost::all_to_all_outer(shape.cluster, all, bytes.from, bytes.to, EmptyLanes::kSilent)));
}

/// Among many ranks the counts of slots travel with the ids, and messages have one size.
void add_counts(const StepShape& shape,
                PlanCost& cost,
                spec::CollectiveForm form,
                const Outer& bytes) {
  if (!is_hierarchical(shape, form) || !layout::packs_id_lanes(shape.ranks)) {
    add_exchange(shape, cost, StepPart::kExchangeCounts, form, bytes);
    return;
  }
  for (const Exchange& stage :
       cost::relayed_blocks(shape.cluster, topology::all_ranks(shape.cluster), bytes.to.front())) {
    add_stage(shape, cost, StepPart::kExchangeCounts, stage);
  }
}

/// Lanes of one pair of ranks become one.
void join_lanes(std::vector<cost::LaneBytes>& lanes) {
  const auto pair_of = [](const cost::LaneBytes& lane) { return std::pair(lane.from, lane.to); };
  std::ranges::stable_sort(lanes, {}, pair_of);
  std::size_t count = 0;
  for (const cost::LaneBytes& lane : lanes) {
    if (count > 0 && pair_of(lanes[count - 1]) == pair_of(lane)) {
      lanes[count - 1].bytes += lane.bytes;
    } else {
      lanes[count++] = lane;
    }
  }
  lanes.resize(count);
}

/// Squares, and after the update norms: two exchanges, which in the flat form are one here.
void add_statistics(const StepShape& shape,
                    PlanCost& cost,
                    spec::CollectiveForm form,
                    RowStatistics& statistics) {
  const topology::Group all = topology::all_ranks(shape.cluster);
  Exchange flat = cost::no_exchange(shape.cluster);
  for (RowStatistics::Lanes* const one : {&statistics.squares, &statistics.norms}) {
    if (!one->any) {
      continue;
    }
    join_lanes(one->lanes);
    if (is_hierarchical(shape, form)) {
      for (const Exchange& stage : cost::relayed_lanes(shape.cluster, all, one->lanes).stages) {
        add_stage(shape, cost, StepPart::kUpdateRows, stage);
      }
      continue;
    }
    for (const auto& [from, to, bytes] : one->lanes) {
      const auto link = static_cast<std::size_t>(topology::link_class(shape.cluster, from, to));
      flat.ranks[at(from)].messages[link] += 1.0;
      flat.ranks[at(from)].sent[link] += bytes;
      flat.ranks[at(to)].received[link] += bytes;
    }
  }
  if (!is_hierarchical(shape, form)) {
    add_stage(shape, cost, StepPart::kUpdateRows, flat);
  }
}

/// Over all groups it is flat, on a communicator of its own.
void add_gather(const StepShape& shape,
                PlanCost& cost,
                spec::CollectiveForm form,
                std::span<const double> bytes) {
  if (is_hierarchical(shape, form) && shape.mesh == nullptr) {
    for (const Exchange& stage :
         cost::relayed_all_gather(shape.cluster, shape.everybody, bytes, EmptyLanes::kSilent)
             .stages) {
      add_stage(shape, cost, StepPart::kUpdateRows, stage);
    }
    return;
  }
  add_world_stage(shape, cost, StepPart::kUpdateRows,
                  away(cost::all_gather(shape.world, shape.everybody, bytes, EmptyLanes::kSilent)));
}

/// From every rank of the world to each, to[r] bytes to rank r.
void add_world_outer(const StepShape& shape,
                     PlanCost& cost,
                     spec::CollectiveForm form,
                     std::span<const double> to) {
  const std::vector<double> ones(to.size(), 1.0);
  if (is_hierarchical(shape, form) && shape.mesh == nullptr) {
    const cost::Staged staged =
        cost::relayed(shape.cluster, shape.everybody, ones, to, EmptyLanes::kSilent);
    for (const Exchange& stage : staged.stages) {
      add_stage(shape, cost, StepPart::kUpdateRows, stage);
    }
    return;
  }
  add_world_stage(
      shape, cost, StepPart::kUpdateRows,
      away(cost::all_to_all_outer(shape.world, shape.everybody, ones, to, EmptyLanes::kSilent)));
}

void add_row_sums(const StepShape& shape,
                  PlanCost& cost,
                  spec::CollectiveForm form,
                  const cost::RowSumBytes& row_sums) {
  const auto each = [&](double bytes) {
    return std::vector<double>(shape.everybody.size(), bytes);
  };
  if (row_sums.form() == layout::RowSums::kOwned) {
    add_world_outer(shape, cost, form, row_sums.counts_to_owners());
    add_world_outer(shape, cost, form, row_sums.to_owners());
    add_gather(shape, cost, form, row_sums.counts_of_sums());
    add_gather(shape, cost, form, row_sums.sums());
    return;
  }
  add_gather(shape, cost, form, each(row_sums.counts()));
  add_gather(shape, cost, form, each(row_sums.gathered()));
}

}  // namespace

double control_bytes(const StepShape& shape, std::int64_t ranks) {
  return kControlBytes +
         kWeightBytes * subtree_sums(shape, most_subtrees_of_ranks(shape.parts, ranks));
}

void add_pairs(RowStatistics& statistics,
               const spec::Table& table,
               std::span<const spec::Shard> beside,
               std::span<const double> bytes) {
  const bool has_squares = traits(table.optimizer.type).is_row_wise;
  const bool has_norms = table.optimizer.max_norm > 0.0;
  const double share = has_squares && has_norms ? 0.5 : 1.0;
  statistics.squares.any |= has_squares && beside.size() > 1;
  statistics.norms.any |= has_norms && beside.size() > 1;
  for (std::size_t a = 0; a < beside.size(); ++a) {
    for (std::size_t b = 0; b < beside.size() && bytes[a] > 0.0; ++b) {
      if (beside[a].rank == beside[b].rank) {
        continue;
      }
      const cost::LaneBytes lane{beside[a].rank, beside[b].rank, share * bytes[a]};
      if (has_squares) {
        statistics.squares.lanes.push_back(lane);
      }
      if (has_norms) {
        statistics.norms.lanes.push_back(lane);
      }
    }
  }
}

void add_exchanges(const StepShape& shape,
                   PlanCost& cost,
                   const spec::Plan& plan,
                   RowStatistics& statistics,
                   const cost::RowSumBytes& row_sums) {
  if (shape.world_ranks == 1) {
    return;
  }
  std::vector<double> ids;
  std::vector<double> vectors;
  std::vector<double> gradients;
  const std::vector<double> slots = served_slots(shape, plan);
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    const RankCost& rank = cost.ranks[r];
    const double bytes =
        rank.load.ids_bytes + lane_marks_bytes(shape, slots[r], rank.load.asked_ids);
    const bool is_sent = slots[r] > 0.0 && !layout::packs_id_lanes(shape.ranks);
    ids.push_back(is_sent ? std::max(kSentLane, bytes) : bytes);
    vectors.push_back(rank.load.vector_bytes);
    gradients.push_back(rank.load.gradient_bytes);
  }
  const std::vector<double> ones(cost.ranks.size(), 1.0);
  const spec::CollectiveForms& forms = plan.collectives;
  if (shape.ranks > 1) {
    add_counts(shape, cost, forms.ids, {.from = ones, .to = count_bytes(shape, slots)});
    add_exchange(shape, cost, StepPart::kExchangeIds, forms.ids, {.from = ones, .to = ids});
    add_exchange(shape, cost, StepPart::kOutputDist, forms.vectors, {.from = vectors, .to = ones});
    add_exchange(shape, cost, StepPart::kGradDist, forms.vectors, {.from = ones, .to = gradients});
  }
  for (const Exchange& level : cost::merge(shape.world, shape.everybody, report_bytes(shape))) {
    add_world_stage(shape, cost, StepPart::kExchangeReport, away(level));
  }
  if (statistics.squares.any || statistics.norms.any) {
    add_statistics(shape, cost, forms.vectors, statistics);
  }
  if (row_sums.any()) {
    add_row_sums(shape, cost, forms.vectors, row_sums);
  }
}

void add_world_stage(const StepShape& shape,
                     PlanCost& cost,
                     StepPart part,
                     const cost::Exchange& exchange,
                     double times) {
  if (shape.mesh == nullptr) {
    add_stage(shape, cost, part, exchange);
    return;
  }
  cost.exchanges[at(part)] += times * cost::exchange_s(shape.world, exchange);
  cost.starts[at(part)] += times * cost::start_s(shape.world, exchange);
  add_most(cost, part, exchange, times);
  const double share = times / static_cast<double>(shape.mesh->groups);
  for (std::size_t p = 0; p < shape.everybody.size(); ++p) {
    const cost::RankTraffic& rank = exchange.ranks[at(shape.everybody[p])];
    for (std::size_t c = 1; c < topology::kNumLinkClasses; ++c) {
      cost.ranks[p % cost.ranks.size()].sent[c] += share * rank.sent[c];
      cost.ranks[p % cost.ranks.size()].messages[c] += share * rank.messages[c];
    }
  }
}

void add_reduce(const StepShape& shape,
                PlanCost& cost,
                const spec::CollectiveForms& forms,
                std::int64_t count) {
  if (shape.world_ranks == 1) {
    return;
  }
  const cost::ReduceWire wire{.format = shape.config.codecs.dense,
                              .group = shape.config.codecs.group_size,
                              .error_feedback = shape.config.codecs.error_feedback,
                              .crossing = forms.dense_crossing()};
  if (forms.dense != spec::CollectiveForm::kFlat && shape.has_dense_hierarchy) {
    const auto reduce =
        cost::hierarchical_all_reduce(shape.world, shape.everybody, shape.parts, count, wire);
    for (const Exchange& stage : reduce.stages) {
      add_world_stage(shape, cost, StepPart::kReduce, stage);
    }
    cost.exchanges[at(StepPart::kReduce)] +=
        topology::copy_s(shape.cluster, reduce.added_bytes + reduce.coded_bytes);
    return;
  }
  const auto reduce =
      cost::ordered_all_reduce(shape.world, shape.everybody, shape.parts, count, wire);
  add_world_stage(shape, cost, StepPart::kReduce, reduce.partials);
  add_world_stage(shape, cost, StepPart::kReduce, reduce.sums);
  cost.exchanges[at(StepPart::kReduce)] +=
      topology::copy_s(shape.cluster, reduce.added_bytes + reduce.coded_bytes);
}

}  // namespace weft::planner
