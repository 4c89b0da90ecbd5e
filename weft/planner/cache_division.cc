#include "weft/planner/cache_division.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <queue>
#include <span>
#include <utility>

#include "weft/base/at.h"
#include "weft/layout/cache_shares.h"
#include "weft/layout/tables.h"
#include "weft/layout/tiers.h"
#include "weft/planner/step_counts.h"
#include "weft/planner/tier_use.h"
#include "weft/rowfile/layout.h"

namespace weft::planner {
namespace {

/// Whether `a` saves more per byte than `b`.
bool saves_more(const CacheStretch& a, const CacheStretch& b) {
  return a.saved * static_cast<double>(b.bytes) > b.saved * static_cast<double>(a.bytes);
}

CacheStretch between(const CachePoint& first, const CachePoint& last) {
  return {.bytes = last.bytes - first.bytes, .saved = first.blocks - last.blocks};
}

/// What `part` of `whole` gets of `bytes`.
std::int64_t part_of(std::int64_t bytes, std::int64_t part, std::int64_t whole) {
  const double share = whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  return static_cast<std::int64_t>(static_cast<double>(bytes) * share);
}

/// What a shard's cache is worth, by its size.
struct CacheCurve {
  std::int64_t fewest_bytes = 0;        ///< with which it is predicted to train
  std::int64_t safe_bytes = 0;          ///< with half as much again, or all rows
  std::int64_t all_bytes = 0;           ///< with all rows
  std::vector<CacheStretch> stretches;  ///< from safe_bytes on
};

class Division {
 public:
  Division(const spec::Config& config,
           const Workload& workload,
           const HotUses& hot_uses,
           spec::Plan& plan,
           std::span<const std::int64_t> most)
      : config_(config),
        workload_(workload),
        hot_uses_(hot_uses),
        plan_(plan),
        most_(most),
        shared_(spec::shared_cache_bytes(config.tiers, plan)),
        pipeline_(spec::pipeline_of(config.pipeline, plan)),
        batch_(rank_kinds(config, plan, pipeline_.cuts()).batch),
        shares_(at(plan.most_ranks())) {}

  void run() {
    spec::drop_caches(plan_);
    const layout::CacheShares by_bytes(config_, plan_);
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      if (layout::shares_cache(config_.tables[t])) {
        add_table(by_bytes, t);
      }
    }
    for (std::size_t rank = 0; rank < shares_.size(); ++rank) {
      divide(most_.empty() ? shared_ : std::min(shared_, most_[rank]), shares_[rank]);
    }
  }

 private:
  /// A shard of a rank.
  struct Share {
    const CacheCurve* curve = nullptr;
    std::int64_t* bytes = nullptr;  ///< in the plan
  };

  /// Shards of a table with the same curve.
  struct Known {
    RowSet rows;
    std::int64_t cols = 0;
    const CacheCurve* curve = nullptr;
  };

  void add_table(const layout::CacheShares& by_bytes, std::size_t t) {
    spec::TablePlan& table = plan_.tables[t];
    const JointUse use = use_by_shards(workload_, plan_, hot_uses_, t);
    const bool scattered = !use.joined.by_frequency && !use.joined.hot;
    const TierJob job{.config = config_,
                      .plan = plan_,
                      .batch = batch_,
                      .caches = by_bytes,
                      .pipeline = pipeline_};
    std::vector<Known> known;
    table.caches.resize(table.shards.size());
    for (std::size_t i = 0; i < table.shards.size(); ++i) {
      const spec::Shard& shard = table.shards[i];
      const Known key{.rows = scattered ? RowSet(0, shard.rows.size()) : shard.rows,
                      .cols = shard.cols.size()};
      auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) {
        return one.rows == key.rows && one.cols == key.cols;
      });
      if (found == known.end()) {
        if (known.size() == kMostKnown) {
          known.clear();
        }
        curves_.push_back(
            curve_of(shard_tier(job, t, i, use),
                     rows_asked(config_, use, static_cast<std::int64_t>(t), shard.rows, batch_)));
        known.push_back({.rows = key.rows, .cols = key.cols, .curve = &curves_.back()});
        found = known.end() - 1;
      }
      shares_[at(shard.rank)].push_back({.curve = found->curve, .bytes = &table.caches[i]});
    }
  }

  [[nodiscard]] std::int64_t bytes_of(const ShardTier& tier, std::int64_t slots) const {
    return cache_bytes_of(config_.tables[at(tier.table)], tier.cols, slots);
  }

  [[nodiscard]] CacheCurve curve_of(const ShardTier& tier, const RowsAsked& asked) const {
    const std::int64_t least = config_.tables[at(tier.table)].memory.ways;
    const auto [fewest, safe, all] = cache_needs(tier, config_.tables[at(tier.table)]);
    CacheCurve curve{.fewest_bytes = bytes_of(tier, fewest),
                     .safe_bytes = bytes_of(tier, safe),
                     .all_bytes = bytes_of(tier, all),
                     .stretches = {}};
    MissCurve missed(asked);
    const auto known = static_cast<std::int64_t>(std::ceil(missed.all_rows()));
    const std::int64_t last = std::clamp(known, safe, all);
    const auto row_blocks = static_cast<double>(rowfile::blocks_per_group(tier.row_bytes));
    std::vector<CachePoint> points;
    for (std::int64_t slots = safe;; slots = std::min(slots + std::max(slots / 4, least), last)) {
      points.push_back({.bytes = bytes_of(tier, slots),
                        .blocks = row_blocks * missed.missed(static_cast<double>(slots))});
      if (slots == last || points.back().bytes > curve.safe_bytes + shared_) {
        break;
      }
    }
    curve.stretches = stretches_of(points);
    return curve;
  }

  static void divide(std::int64_t bytes, std::vector<Share>& shares) {
    std::int64_t fewest = 0;
    std::int64_t safe = 0;
    for (const Share& share : shares) {
      fewest += share.curve->fewest_bytes;
      safe += share.curve->safe_bytes;
    }
    for (const Share& share : shares) {
      const CacheCurve& curve = *share.curve;
      if (bytes >= safe) {
        *share.bytes = curve.safe_bytes;
      } else if (bytes >= fewest) {
        *share.bytes =
            curve.fewest_bytes +
            part_of(bytes - fewest, curve.safe_bytes - curve.fewest_bytes, safe - fewest);
      } else {
        *share.bytes = std::max<std::int64_t>(part_of(bytes, curve.fewest_bytes, fewest), 1);
      }
    }
    if (bytes > safe) {
      add_stretches(shares, bytes - safe);
    }
  }

  static void add_stretches(std::vector<Share>& shares, std::int64_t bytes) {
    std::vector<std::span<const CacheStretch>> curves;
    for (const Share& share : shares) {
      curves.emplace_back(share.curve->stretches);
    }
    const std::vector<std::int64_t> more = divide_bytes(bytes, curves);
    std::int64_t lacking = 0;  // for all rows
    for (std::size_t i = 0; i < shares.size(); ++i) {
      *shares[i].bytes += more[i];
      bytes -= more[i];
      lacking += std::max<std::int64_t>(shares[i].curve->all_bytes - *shares[i].bytes, 0);
    }
    for (const Share& share : shares) {
      const std::int64_t own = std::max<std::int64_t>(share.curve->all_bytes - *share.bytes, 0);
      *share.bytes += std::min(own, part_of(bytes, own, lacking));
    }
  }

  static constexpr std::size_t kMostKnown = 8;  // pieces of a table come in a few sizes

  const spec::Config& config_;
  const Workload& workload_;
  const HotUses& hot_uses_;
  spec::Plan& plan_;
  const std::span<const std::int64_t> most_;  // [ranks], or empty
  const std::int64_t shared_;
  const spec::Pipeline pipeline_;
  const double batch_;
  std::deque<CacheCurve> curves_;
  std::vector<std::vector<Share>> shares_;  // [ranks]
};

/// Whether anything says how often rows of the tables are asked for that share a rank's caches.
bool knows_curves(const spec::Config& config, const Workload& workload) {
  return config.data.format == spec::DataFormat::kSynthetic ||
         std::all_of(workload.features.begin(), workload.features.end(),
                     [&](const FeatureUse& use) {
                       return use.measured || !layout::shares_cache(config.tables[at(use.table)]);
                     });
}

}  // namespace

std::vector<CacheStretch> stretches_of(std::span<const CachePoint> points) {
  std::vector<CachePoint> hull;
  for (const CachePoint& point : points) {
    if (!hull.empty() && (point.bytes <= hull.back().bytes || point.blocks >= hull.back().blocks)) {
      continue;
    }
    while (hull.size() > 1 &&
           !saves_more(between(hull[hull.size() - 2], hull.back()), between(hull.back(), point))) {
      hull.pop_back();
    }
    hull.push_back(point);
  }
  std::vector<CacheStretch> stretches;
  for (std::size_t i = 1; i < hull.size(); ++i) {
    stretches.push_back(between(hull[i - 1], hull[i]));
  }
  return stretches;
}

std::vector<std::int64_t> divide_bytes(std::int64_t bytes,
                                       std::span<const std::span<const CacheStretch>> caches) {
  std::vector<std::size_t> next(caches.size());
  const auto comes_later = [&](std::size_t a, std::size_t b) {
    const CacheStretch& one = caches[a][next[a]];
    const CacheStretch& other = caches[b][next[b]];
    return saves_more(other, one) || (!saves_more(one, other) && a > b);
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(comes_later)> open(
      comes_later);
  for (std::size_t i = 0; i < caches.size(); ++i) {
    if (!caches[i].empty()) {
      open.push(i);
    }
  }
  std::vector<std::int64_t> divided(caches.size());
  while (!open.empty() && bytes > 0) {
    const std::size_t i = open.top();
    open.pop();
    const std::int64_t taken = std::min(bytes, caches[i][next[i]].bytes);
    divided[i] += taken;
    bytes -= taken;
    if (++next[i] < caches[i].size()) {
      open.push(i);
    }
  }
  return divided;
}

bool divides_by_curves(const spec::Config& config,
                       const Workload& workload,
                       const spec::Plan& plan) {
  std::int64_t ranks = 0;  // of a group of the tables that share
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (layout::shares_cache(config.tables[t])) {
      const std::int64_t own = plan.ranks_of(plan.tables[t]);
      if (ranks > 0 && own != ranks) {
        return false;
      }
      ranks = own;
    }
  }
  switch (config.tiers.division) {
    case spec::CacheDivision::kBytes:
      return false;
    case spec::CacheDivision::kCurves:
      return ranks > 0;
    case spec::CacheDivision::kAuto:
      break;
  }
  return ranks > 0 && (config.tiers.cache_bytes == 0 || knows_curves(config, workload));
}

void divide_caches(const spec::Config& config,
                   const Workload& workload,
                   const HotUses& hot_uses,
                   spec::Plan& plan,
                   std::span<const std::int64_t> most) {
  Division(config, workload, hot_uses, plan, most).run();
}

}  // namespace weft::planner
