/// How much memory the caches of a rank have where the configuration leaves it open
/// (Tiers::cache_bytes 0): the least with which a step does not wait for its disks, as far as the
/// rank's memory goes.
///
/// Notation: X bytes of a rank for all its caches, D(X) seconds in which the disk of the rank that
/// reads most reads what a step misses (cost/fetch.h, at the cluster's disk.read_blocks), R seconds
/// of the rest of a step under its schedule, with X as large as it may be and disks that take no
/// time. Wanted is the least X with D(X) <= share R. Where a schedule has the next batch ahead, its
/// reads run beside the rest: they are hidden as long as they are shorter, and kHiddenShare keeps
/// them away from the knee, since batches differ. Where it has not, as sync, a step is longer by
/// what its disk takes, and kExposedShare says how much longer it may be.
///
///   at least  what every shard trains with, half as much again where memory has it
///             (cache_needs(), tier_use.h)
///   at most   what memory leaves on a rank beside all that is predicted for it
///             (topology::table_capacity()), and what all rows take
///
/// X is one number for all ranks, Plan::cache_bytes. A rank whose memory leaves less has less,
/// where caches are divided by curves (cache_division.h): then the plan says what each shard has.
/// By bytes every rank has X, so the one with least memory decides for all.
///
/// The plan is configuration: nothing that is measured while a job runs changes the size. It is
/// found by halving, to a 64th of itself, and follows from its arguments alone. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/planner/estimate.h"
#include "weft/spec/config.h"
#include "weft/spec/pipeline.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Of the rest of a step, that reads may take: beside it, and before it.
inline constexpr double kHiddenShare = 0.7;
inline constexpr double kExposedShare = 0.1;

/// What decided. kSmallest: reads are short enough with the smallest caches that train. kReads:
/// they are with these, and no longer with less. kAllRows: more would hold no row more, and reads
/// of other caches take longer than is wanted. kMemory: with more they would be shorter, and there
/// is no more.
enum class CacheBound : std::uint8_t { kSmallest, kReads, kAllRows, kMemory };

/// "smallest", "reads", "all_rows", "memory".
std::string_view to_string(CacheBound bound);

/// The same as a sentence without its stop.
std::string_view describe(CacheBound bound);

/// The memory for caches that was chosen, and why. Bytes are of one rank, the largest of all ranks.
struct CacheSize {
  std::int64_t bytes = 0;  ///< X
  CacheBound bound = CacheBound::kSmallest;
  std::int64_t smallest = 0;         ///< with which every shard trains, longer bags included
  std::int64_t all = 0;              ///< with which all rows have a slot
  std::int64_t rank = 0;             ///< whose memory leaves least beyond its fewest bytes
  std::int64_t left = 0;             ///< there, for caches
  std::int64_t missing = 0;          ///< there, for its fewest bytes; 0: they fit
  std::vector<std::int64_t> fewest;  ///< [ranks] with which its shards are predicted to train
  double read_s = 0.0;               ///< D(X)
  double rest_s = 0.0;               ///< R
  double share = 0.0;                ///< of R that D(X) is to take at most
  double step_rows = 0.0;            ///< of a step, of all shards on disks: different rows
  double missed = 0.0;               ///< and those without a slot

  [[nodiscard]] double hit_rate() const { return step_rows > 0.0 ? 1.0 - missed / step_rows : 1.0; }
};

/// Whether the job has shards that share the memory of caches, and the configuration does not say
/// how much that is.
bool leaves_cache_size_open(const spec::Config& config);

/// Chooses the size for a plan under a schedule, and sets Plan::cache_bytes and the caches of
/// tables. `rank_bytes`: [ranks] what pipeline_choice.h's function of that name predicts under the
/// schedule before a size is chosen, so with the smallest caches. Where not even the fewest bytes
/// fit, the plan has these, and the size says what is missing.
/// REQUIRES: leaves_cache_size_open(); a plan without sizes, with this schedule. Cost: a
/// PlanCost, and some twenty divisions and predictions of all tiers.
CacheSize choose_cache_size(const Estimator& estimator,
                            const std::vector<double>& rank_bytes,
                            const spec::Pipeline& pipeline,
                            spec::Plan& plan);

}  // namespace weft::planner
