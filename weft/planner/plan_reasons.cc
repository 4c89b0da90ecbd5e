// Why a plan holds a table as it does, for reports.
#include <algorithm>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/text.h"
#include "weft/planner/plan_report.h"

namespace weft::planner {
namespace {

using spec::Sharding;

/// Bytes that a rank and the others exchange of a table in a step, on average, as `pooled_at` has
/// it.
double exchanged(const Estimator& estimator,
                 std::int64_t t,
                 const spec::TablePlan& table,
                 spec::PooledAt pooled_at) {
  double bytes = 0.0;
  const auto hot_use = estimator.hot_use_of(t, table.hot);
  for (const spec::Shard& shard : table.shards) {
    const ShardLoad load = estimator.shard(block_of(t, shard, pooled_at, hot_use.get()));
    bytes += load.ids_bytes + load.vector_bytes + load.gradient_bytes;
  }
  return bytes;
}

/// But for its hot rows.
std::string why_so(const PlanReport& report, const Estimator& estimator, std::int64_t table) {
  const spec::Table& asked = report.config.tables[at(table)];
  const Proposal& best = report.result.best();
  const spec::TablePlan& held = best.plan.tables[at(table)];
  const bool is_asked = asked.sharding != Sharding::kAuto || asked.rank >= 0 || asked.host >= 0;
  if (is_fetched(held) && asked.pooled_at == spec::PooledAt::kAuto) {
    return fmt::format(
        "{}rows once a rank: {} a step, not {}", is_asked ? "asked for; " : "",
        format_estimated_bytes(exchanged(estimator, table, held, spec::PooledAt::kSample)),
        format_estimated_bytes(exchanged(estimator, table, held, spec::PooledAt::kOwner)));
  }
  if (is_asked) {
    return "asked for";
  }
  const ShardLoad whole = estimator.shard(
      {.table = table, .rows = {0, asked.num_embeddings}, .cols = {0, asked.embedding_dim}});
  const double seconds = estimator.scalar_s(whole);
  if (held.sharding == Sharding::kDataParallel) {
    const ShardLoad replica = estimator.replica(table);
    return fmt::format("{:.3f} ms, on each {:.3f}", to_ms(seconds),
                       to_ms(estimator.scalar_s(replica)));
  }
  if (held.shards.size() == 1) {
    return "fits in one piece";
  }
  if (whole.bytes + estimator.buffer_bytes(whole) > report.result.capacity) {
    return "larger than a rank";
  }
  double mean = 0.0;
  for (const RankCost& rank : best.cost.ranks) {
    mean += estimator.scalar_s(rank.load) / static_cast<double>(best.cost.ranks.size());
  }
  return fmt::format("{:.2f} of a mean rank's work", seconds / std::max(mean, 1e-12));
}

}  // namespace

Estimator estimator_of(const PlanReport& report) {
  return {report.config, *report.result.mesh, report.workload, report.result.best().plan.parts};
}

std::string why(const PlanReport& report, std::int64_t table) {
  const Proposal& best = report.result.best();
  const Estimator estimator = estimator_of(report);
  const auto hot_use = estimator.hot_use_of(table, best.plan.tables[at(table)].hot);
  return (hot_use ? fmt::format("{:.0f} % of its ids on hot rows; ", 100.0 * hot_use->share) : "") +
         why_so(report, estimator, table);
}

}  // namespace weft::planner
