#include "weft/planner/tier_use.h"

#include <algorithm>
#include <cmath>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/tables.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/step_counts.h"
#include "weft/rowfile/layout.h"

namespace weft::planner {
namespace {

using spec::MemoryTier;

constexpr double kDeviations = 4.0;
constexpr double kMany = 1e30;             // steps
constexpr double kNumberBytes = 8.0;       // of an id
constexpr double kGroupEntryBytes = 16.0;  // in a segment's footer

/// log(1 - p) of a row of a segment; of one that every id asks for so low that it is always asked.
double log_missed(const AccessSegment& segment) {
  const double each = segment.share / segment.rows;
  return each >= 1.0 ? -1e30 : std::log1p(-each);
}

double all_rows(const FeatureUse& use) {
  double rows = 0.0;
  for (const AccessSegment& segment : use.segments) {
    rows += segment.rows;
  }
  return rows;
}

/// Of all steps; 0: not known before the data are read.
double steps_of(const spec::Config& config) {
  if (config.train.steps > 0) {
    return static_cast<double>(config.train.steps);
  }
  return config.data.format == spec::DataFormat::kSynthetic
             ? static_cast<double>(config.train.epochs) *
                   static_cast<double>(config.data.synthetic.samples) /
                   static_cast<double>(config.batch_size)
             : 0.0;
}

std::int64_t rounded(double count) {
  return static_cast<std::int64_t>(std::ceil(count));
}

layout::LazyCounts lazy_counts(const ShardTier& tier, const RowsAsked& asked) {
  return {.rows = tier.rows,
          .slots = rounded(tier.existing),
          .pages = rounded(pages_of(asked, tier.rows, layout::kPlacePageRows))};
}

/// Rows that hardly an update exceeds: those of a batch, or where row gradients of all groups are
/// added, of the batches of all.
double most_updated_rows(const TierJob& job, const RowsAsked& asked, std::size_t table) {
  RowsAsked updated = asked;
  if (spec::mesh_of(job.config.mesh, job.plan).sync == spec::SyncForm::kGradients) {
    updated.draws *= static_cast<double>(job.plan.groups_of(job.plan.tables[table]));
  }
  return most_step_rows(updated);
}

/// Whether nobody has said yet what the shards of a table have for their caches.
bool is_open(const TierJob& job, const spec::Table& table, const spec::TablePlan& plan) {
  return layout::shares_cache(table) && plan.caches.empty() &&
         spec::shared_cache_bytes(job.config.tiers, job.plan) == 0;
}

void add_cache(const TierJob& job, ShardTier& tier, const RowsAsked& asked) {
  const spec::Table& table = job.config.tables[at(tier.table)];
  const std::int64_t most = rounded(most_updated_rows(job, asked, at(tier.table)));
  const bool two = batches_in_flight(job.pipeline) > 1 && job.config.train.eval_every > 0;
  tier.fewest_slots = layout::fewest_cache_slots(most, two ? most : 0, table.memory.ways);
  tier.fewest_bytes = cache_bytes_of(table, tier.cols, tier.fewest_slots);
  tier.given_bytes = is_open(job, table, job.plan.tables[at(tier.table)])
                         ? cache_bytes_of(table, tier.cols, cache_needs(tier, table).fewest)
                         : job.caches.bytes(at(tier.table), at(tier.shard));
  tier.cache = layout::cache_shape_of_bytes(table, tier.cols, tier.given_bytes, table.memory.ways,
                                            layout::kSpillShare);
  tier.slot_bytes = static_cast<double>(layout::cache_bytes(table, tier.cols, tier.cache));
  tier.missed = missed_rows(asked, static_cast<double>(tier.cache.slots()));
  const auto group_rows = static_cast<double>(rowfile::rows_per_group(tier.row_bytes));
  const double groups = std::max(1.0, tier.existing / group_rows * job.config.tiers.space_factor);
  tier.blocks = static_cast<double>(rowfile::blocks_per_group(tier.row_bytes)) * groups *
                -std::expm1(groups > 1.0 ? tier.missed * std::log1p(-1.0 / groups) : -tier.missed);
  tier.disk_bytes = tier.existing * stored_row_bytes(tier.row_bytes);
  tier.place_bytes = static_cast<double>(layout::place_index_bytes(
      tier.rows, rounded(pages_of(asked, tier.rows, layout::kIndexPageRows))));
}

}  // namespace

RowsAsked rows_asked(const spec::Config& config,
                     const JointUse& use,
                     std::int64_t table,
                     const RowSet& rows,
                     double batch) {
  RowsAsked asked;
  if (use.features.empty()) {
    return asked;
  }
  const std::int64_t all = config.tables[at(table)].num_embeddings;
  asked.among = use_of_rows(use.joined, rows, all);
  for (const FeatureUse* one : use.features) {
    asked.draws += batch * one->length * share_of_rows(*one, rows, all);
  }
  const double steps = steps_of(config);
  asked.all_draws = asked.draws * (steps > 0.0 ? steps : asked.among.measured ? kMany : 1.0);
  return asked;
}

double existing_rows(const RowsAsked& asked) {
  return asked.draws > 0.0 ? unique_rows(asked.among, asked.all_draws) : 0.0;
}

double step_rows(const RowsAsked& asked) {
  return asked.draws > 0.0 ? unique_rows(asked.among, asked.draws) : 0.0;
}

double most_step_rows(const RowsAsked& asked) {
  double variance = 0.0;
  for (const AccessSegment& segment : asked.among.segments) {
    const double none = std::exp(asked.draws * log_missed(segment));
    variance += segment.rows * none * (1.0 - none);
  }
  return std::min(all_rows(asked.among), step_rows(asked) + kDeviations * std::sqrt(variance));
}

double missed_rows(const RowsAsked& asked, double slots) {
  return MissCurve(asked).missed(slots);
}

MissCurve::MissCurve(const RowsAsked& asked)
    : step_rows_(planner::step_rows(asked)), all_rows_(planner::all_rows(asked.among)) {
  for (const AccessSegment& segment : asked.among.segments) {
    const double log = log_missed(segment);
    segments_.push_back({.log_missed = log,
                         .rows = segment.rows,
                         .asked = segment.rows * -std::expm1(asked.draws * log)});
  }
}

/// Newton's steps from the left: the rows that have come grow ever slower, so none goes too far.
void MissCurve::fill(double slots) {
  constexpr int kMostSteps = 200;
  constexpr double kExact = 1e-12;
  for (int i = 0; i < kMostSteps && stay_ < kMany; ++i) {
    double lacking = slots;
    double growth = 0.0;
    for (const Segment& segment : segments_) {
      const double none = std::exp(stay_ * segment.log_missed);
      lacking -= segment.rows * (1.0 - none);
      growth -= segment.rows * segment.log_missed * none;
    }
    if (lacking <= 0.0 || growth <= 0.0) {
      return;
    }
    const double more = lacking / growth;
    stay_ += more;
    if (more <= kExact * stay_) {
      return;
    }
  }
}

double MissCurve::missed(double slots) {
  if (step_rows_ <= 0.0 || slots >= all_rows_) {
    return 0.0;
  }
  fill(slots);
  double missed = 0.0;
  for (const Segment& segment : segments_) {
    missed += segment.asked * std::exp(stay_ * segment.log_missed);
  }
  return std::min(missed, step_rows_);
}

double pages_of(const RowsAsked& asked, std::int64_t rows, std::int64_t page_rows) {
  const double existing = existing_rows(asked);
  const auto page = static_cast<double>(page_rows);
  const auto all = static_cast<double>(rows);
  if (existing <= 0.0 || rows <= 0) {
    return 0.0;
  }
  if (!asked.among.by_frequency) {  // any row is as good as any
    const double none = existing >= all ? 0.0 : std::exp(page * std::log1p(-existing / all));
    return std::max(1.0, std::ceil(all / page) * (1.0 - none));
  }
  double pages = 0.0;
  double left = page;  // of the page in hand
  double none = 0.0;   // logarithm of the chance that none of it exists so far
  for (const AccessSegment& segment : asked.among.segments) {
    const double row = asked.all_draws * log_missed(segment);
    for (double here = segment.rows; here > 0.0;) {
      if (left == page && here >= page) {
        const double whole = std::floor(here / page);
        pages += whole * -std::expm1(page * row);
        here -= whole * page;
        continue;
      }
      const double some = std::min(left, here);
      none += some * row;
      left -= some;
      here -= some;
      if (left <= 0.0) {
        pages += -std::expm1(none);
        left = page;
        none = 0.0;
      }
    }
  }
  return pages - std::expm1(none);
}

double stored_id_bytes(std::int64_t row_bytes) {
  return kNumberBytes + kGroupEntryBytes / static_cast<double>(rowfile::rows_per_group(row_bytes));
}

double stored_row_bytes(std::int64_t row_bytes) {
  return static_cast<double>(rowfile::group_bytes(row_bytes)) /
             static_cast<double>(rowfile::rows_per_group(row_bytes)) +
         stored_id_bytes(row_bytes);
}

ShardTier shard_tier(const TierJob& job,
                     std::size_t table,
                     std::size_t shard,
                     const JointUse& use) {
  const spec::Table& one = job.config.tables[table];
  const spec::Shard& place = job.plan.tables[table].shards[shard];
  WEFT_CHECK(one.memory.tier != MemoryTier::kDense, "table '{}' is in memory", one.name);
  // A copy has the rows that any rank of any group asks for: an update brings them.
  const bool is_copy = job.plan.tables[table].sharding == spec::Sharding::kDataParallel;
  const double batch = job.batch * static_cast<double>(is_copy ? job.plan.groups : 1);
  const RowsAsked asked =
      rows_asked(job.config, use, static_cast<std::int64_t>(table), place.rows, batch);
  ShardTier tier{
      .table = static_cast<std::int64_t>(table),
      .shard = static_cast<std::int64_t>(shard),
      .rank = place.rank,
      .rows = place.rows.size(),
      .cols = place.cols.size(),
      .tier = one.memory.tier,
      .row_bytes = layout::packed_row(one, place.cols.size()).bytes(),
      .step_ids = asked.draws,
      .step_rows = step_rows(asked),
      .most_step_rows = most_step_rows(asked),
      .existing = std::min(existing_rows(asked), static_cast<double>(place.rows.size()))};
  if (tier.tier == MemoryTier::kSsd) {
    add_cache(job, tier, asked);
    return tier;
  }
  const layout::LazyCounts counts = lazy_counts(tier, asked);
  tier.slot_bytes = static_cast<double>(layout::lazy_slot_bytes(one, tier.cols, counts));
  tier.place_bytes = static_cast<double>(layout::lazy_place_bytes(counts));
  return tier;
}

CacheNeeds cache_needs(const ShardTier& tier, const spec::Table& table) {
  const std::int64_t all = std::max(tier.rows, table.memory.ways);
  const std::int64_t fewest = std::min(tier.fewest_slots, all);
  return {.fewest = fewest, .safe = std::min(fewest + fewest / 2, all), .all = all};
}

std::int64_t cache_bytes_of(const spec::Table& table, std::int64_t cols, std::int64_t slots) {
  return layout::cache_bytes(table, cols,
                             layout::cache_shape(slots, table.memory.ways, layout::kSpillShare));
}

double device_bytes(const ShardTier& tier, const spec::Table& table) {
  if (tier.tier == MemoryTier::kLazy) {
    return tier.slot_bytes;
  }
  const auto blocks = [](const auto&... array) {
    return (0.0 + ... + static_cast<double>(layout::block_bytes(array.bytes())));
  };
  return static_cast<double>(
             layout::block_bytes(layout::shard_bytes(table, tier.cache.slots(), tier.cols))) +
         std::apply(blocks, layout::cache_lengths(tier.cache).all());
}

double batch_bytes(const ShardTier& tier, const BatchAsked& batch, double growth) {
  using layout::Expected;
  using layout::held_bytes;
  const auto slots = layout::batch_slot_lengths(batch.ids, Expected{batch.rows, true});
  double bytes = held_bytes(layout::distinct_lengths(batch.ids), growth) +
                 held_bytes(slots.slots, growth) + held_bytes(slots.ids, growth);
  if (tier.tier == MemoryTier::kLazy) {
    return bytes + held_bytes(slots.selected, growth);
  }
  // Of the first batch nothing has a slot, and never again so much is moved.
  const auto chunk = static_cast<double>(layout::rows_read_at_once(tier.row_bytes));
  bytes += held_bytes(layout::moved_row_lengths(Expected{batch.moved}), growth);
  return bytes +
         2.0 * held_bytes(layout::row_numbers(Expected{std::min(chunk, batch.moved)}), growth);
}

double made_list_bytes(const ShardTier& tier, double growth) {
  const auto chunk = static_cast<double>(layout::rows_read_at_once(tier.row_bytes));
  const double rows =
      tier.tier == MemoryTier::kLazy ? tier.step_rows : std::min(chunk, tier.step_rows);
  return 2.0 * layout::held_bytes(layout::row_numbers(layout::Expected{rows}), growth);
}

JointUse use_by_shards(const Workload& workload,
                       const spec::Plan& plan,
                       const HotUses& hot_uses,
                       std::size_t table) {
  if (const auto hot_use = hot_uses.of(static_cast<std::int64_t>(table), plan.tables[table].hot)) {
    return hot_use->tail;
  }
  JointUse whole;
  for (const FeatureUse& use : workload.features) {
    if (at(use.table) == table) {
      whole.features.push_back(&use);
    }
  }
  whole.joined = whole.features.empty() ? unread() : joined(whole.features);
  return whole;
}

std::vector<ShardTier> shard_tiers(const spec::Config& config,
                                   const Workload& workload,
                                   const spec::Plan& plan,
                                   const HotUses& hot_uses) {
  const layout::CacheShares caches(config, plan);
  const spec::Pipeline pipeline = spec::pipeline_of(config.pipeline, plan);
  const TierJob job{.config = config,
                    .plan = plan,
                    .batch = rank_kinds(config, plan, pipeline.cuts()).batch,
                    .caches = caches,
                    .pipeline = pipeline};
  std::vector<ShardTier> tiers;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (config.tables[t].memory.tier == MemoryTier::kDense) {
      continue;
    }
    const JointUse use = use_by_shards(workload, plan, hot_uses, t);
    for (std::size_t i = 0; i < plan.tables[t].shards.size(); ++i) {
      tiers.push_back(shard_tier(job, t, i, use));
    }
  }
  return tiers;
}

}  // namespace weft::planner
