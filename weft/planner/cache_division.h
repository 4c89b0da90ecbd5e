/// How the shards of a rank whose rows lie on disks divide its memory for caches
/// (spec::shared_cache_bytes()), by what each of them has of more memory (docs/tiers.md).
///
/// Notation: S slots, M(S) the rows of a step that a cache of so many has not (tier_use.h), k the
/// blocks of 4 KiB that one row is read with. All shards of a rank read from the same disks, so the
/// reads of a step take least time where Σ k M(S) is least. M falls ever slower with S, because the
/// rows that a larger cache keeps besides are rarer. So memory goes, stretch by stretch, to the
/// shard for which the next bytes save most blocks each: that greedy choice is the best division
/// there is. Missed rows that lie in one block are read together, which is not counted here: in
/// small tables it would make one cache full at the cost of another, and a missed row takes more
/// than its read, since another one leaves for it and is written.
///
/// First every shard has what it trains with: half as many slots again as the largest batch is
/// predicted to take, since lengths of bags vary; where the memory is too small for that, less of
/// the half, and where it is too small for the largest batches, as much of them as of the others'.
/// What is left when every shard has all its rows that are ever asked for goes by bytes to those of
/// whose rows some have no slot.
///
/// Every rank makes the same division: sizes of stretches are integers, and floating-point numbers
/// only say which of two stretches goes first (equal ones: by table, then by shard). So two
/// machines whose exp() differs in a last bit divide alike unless two shards are as good as equal
/// just where the memory ends. Ranks compare plans before the first step. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/planner/hot_rows.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// So many bytes more of a cache save so many blocks of a step.
struct CacheStretch {
  std::int64_t bytes = 0;
  double saved = 0.0;
};

/// A cache of so many bytes, and the blocks that a step reads with it.
struct CachePoint {
  std::int64_t bytes = 0;
  double blocks = 0.0;
};

/// The stretches between points by ascending bytes, joined so that each saves less per byte than
/// the one before: those of the lower convex hull. Bytes of a cache are rounded to its sets, so
/// not every point is on it. None that saves nothing. O(points).
std::vector<CacheStretch> stretches_of(std::span<const CachePoint> points);

/// Divides `bytes` over caches by their stretches, each of which saves no more per byte than the
/// one before it; the last one that is taken may be taken in part. Returns the bytes of each cache,
/// with which most blocks are saved, together no more than `bytes`. O(stretches log(caches)).
std::vector<std::int64_t> divide_bytes(std::int64_t bytes,
                                       std::span<const std::span<const CacheStretch>> caches);

/// Whether divide_caches() is to say who has what: the job has shards that share
/// Tiers::cache_bytes, and Tiers::division is curves, or auto and it is known how often rows of
/// these tables are asked for, from statistics or because the data are generated. With auto also
/// where the size is left to the planner, which chooses it from the same curves. Not where such
/// tables have different numbers of replica groups.
bool divides_by_curves(const spec::Config& config,
                       const Workload& workload,
                       const spec::Plan& plan);

/// Sets TablePlan::caches of all tables whose shards share Tiers::cache_bytes, for the schedule
/// that the job has under the plan. What the plan had of them before is forgotten. `most`: [ranks]
/// bytes that a rank may have of them at most, or empty.
/// REQUIRES: divides_by_curves(). O(shards log(shards)), and for each of the shards that are not
/// alike some dozens of predictions.
void divide_caches(const spec::Config& config,
                   const Workload& workload,
                   const HotUses& hot_uses,
                   spec::Plan& plan,
                   std::span<const std::int64_t> most = {});

}  // namespace weft::planner
