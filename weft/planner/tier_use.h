/// Rows that are not all in memory: how many of a shard's a step asks for, how many come to exist,
/// which of them a cache has, and the bytes of rows, of their places, and of files.
///
/// Notation: p_i the share of the shard's ids that fall on row i, n its ids of a step, S slots.
///   of a step   U = Σ q_i, q_i = 1 - (1 - p_i)^n: different rows. Hardly a batch has more than
///               U + 4 sqrt(Σ q_i (1 - q_i)): rows come as good as independently of each other.
///               That lengths of bags vary is not in it.
///   existing    the same with all the ids that the job is known to draw (train.steps, or epochs of
///               generated samples); else all rows that statistics know of; without them those of
///               one step
///   misses      a row stays for the T ids among which S different rows come (Che, Tung, Wang
///   2002),
///               so Σ q_i (1 - p_i)^T, and none where all rows fit. That is lru; what lfu keeps
///               longer, and ahead by knowing the next batch, is not counted.
///               A miss is a read from the disk once its row exists, as is taken here; before, the
///               row is made.
///   blocks      M misses over rows that lie in B groups of blocks: B (1 - (1 - 1/B)^M)
/// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/layout/cache_shares.h"
#include "weft/layout/lengths.h"
#include "weft/layout/tiers.h"
#include "weft/planner/hot_rows.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// What is asked of the rows of a shard.
struct RowsAsked {
  FeatureUse among = unread();  ///< popularity among them
  double draws = 0.0;           ///< n
  double all_draws = 0.0;       ///< of all steps
};

/// Of a shard that holds these rows of a table, in steps of `batch` samples.
RowsAsked rows_asked(const spec::Config& config,
                     const JointUse& use,
                     std::int64_t table,
                     const RowSet& rows,
                     double batch);

/// Rows that exist in the end.
double existing_rows(const RowsAsked& asked);

/// U, and what hardly a batch exceeds.
double step_rows(const RowsAsked& asked);
double most_step_rows(const RowsAsked& asked);

/// Rows of a step that a cache of `slots` slots has not.
double missed_rows(const RowsAsked& asked, double slots);

/// The same of ever larger caches. With every slot it falls, and ever slower (it is convex): one
/// more slot spares the mean of q_i over the rows that have none, and these are the rarer the more
/// slots there are.
class MissCurve {
 public:
  explicit MissCurve(const RowsAsked& asked);

  /// REQUIRES: no fewer slots than in the call before. O(segments), times some steps of Newton's.
  double missed(double slots);

  /// Rows that are ever asked for: with as many slots none is missed.
  [[nodiscard]] double all_rows() const { return all_rows_; }

 private:
  struct Segment {
    double log_missed = 0.0;  ///< log(1 - p) of a row
    double rows = 0.0;
    double asked = 0.0;  ///< Σ q of a step
  };

  void fill(double slots);

  std::vector<Segment> segments_;
  double step_rows_ = 0.0;
  double all_rows_ = 0.0;
  double stay_ = 0.0;  // T of the last call
};

/// Pages of `page_rows` neighbours among `rows` rows in which one lies that any of all draws of a
/// job asks for.
double pages_of(const RowsAsked& asked, std::int64_t rows, std::int64_t page_rows);

/// Bytes on disks for each row that is there, in segments whose rows all hold: its share of a
/// group's blocks and of the footer, with its id. What is written takes up to Tiers::space_factor
/// times as many, and two segments.
double stored_row_bytes(std::int64_t row_bytes);

/// Of those the share of the footer: the row's id, and of the group's entry.
double stored_id_bytes(std::int64_t row_bytes);

/// A shard with memory.tier lazy or ssd.
struct ShardTier {
  std::int64_t table = 0;
  std::int64_t shard = 0;  ///< among the table's
  std::int64_t rank = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  spec::MemoryTier tier = spec::MemoryTier::kLazy;
  std::int64_t row_bytes = 0;   ///< packed: weights and state
  double step_ids = 0.0;        ///< of a step
  double step_rows = 0.0;       ///< different ones of these
  double most_step_rows = 0.0;  ///< and hardly one more than so many
  double existing = 0.0;        ///< rows, when the job ends
  double slot_bytes = 0.0;      ///< of memory for rows in slots; lazy: when the job ends
  double place_bytes =
      0.0;  ///< of what says where rows lie: lazy in which slot, ssd where on disks
  // ssd
  /// For the cache. Where its size is left open and not chosen yet: those of CacheNeeds::fewest.
  std::int64_t given_bytes = 0;
  layout::CacheShape cache = {};
  std::int64_t fewest_slots = 0;  ///< with which it trains, and evaluates
  std::int64_t fewest_bytes = 0;
  double missed = 0.0;      ///< rows of a step
  double blocks = 0.0;      ///< read for them, of 4 KiB
  double disk_bytes = 0.0;  ///< of the rows that exist, all of which hold

  /// The share of a step's rows that have a slot.
  [[nodiscard]] double hit_rate() const { return step_rows > 0.0 ? 1.0 - missed / step_rows : 1.0; }
};

/// What a shard's tier follows from, beside its place.
struct TierJob {
  const spec::Config& config;
  const spec::Plan& plan;
  double batch = 0.0;  ///< samples of a step, of the group
  const layout::CacheShares& caches;
  spec::Pipeline pipeline;  ///< of the job
};

/// Of a shard, by its table and its place among the table's. REQUIRES: not all its rows are in
/// memory.
ShardTier shard_tier(const TierJob& job, std::size_t table, std::size_t shard, const JointUse& use);

/// What a device has of a shard's rows, as it counts blocks.
double device_bytes(const ShardTier& tier, const spec::Table& table);

/// Slots of a shard's cache. REQUIRES: its rows are on disks.
struct CacheNeeds {
  std::int64_t fewest = 0;  ///< with which it is predicted to train
  std::int64_t safe = 0;    ///< half as many again, since lengths of bags vary, or all
  std::int64_t all = 0;     ///< one for each of its rows
};

/// Of the shard, for batches in flight and evaluations as ShardTier::fewest_slots has them.
CacheNeeds cache_needs(const ShardTier& tier, const spec::Table& table);

/// Bytes of a cache of so many slots for `cols` columns of a table.
std::int64_t cache_bytes_of(const spec::Table& table, std::int64_t cols, std::int64_t slots);

/// What is asked of a shard at a time.
struct BatchAsked {
  layout::Expected ids;
  double rows = 0.0;   ///< different ones
  double moved = 0.0;  ///< of these without a slot, where most are
};

/// What a batch in flight holds of a shard on the device.
double batch_bytes(const ShardTier& tier, const BatchAsked& batch, double growth);

/// Lists of rows that are made, of a shard, on the device.
double made_list_bytes(const ShardTier& tier, double growth);

/// How a table is read by those that have its shards: without its hot rows. Valid as long as the
/// workload and the uses.
JointUse use_by_shards(const Workload& workload,
                       const spec::Plan& plan,
                       const HotUses& hot_uses,
                       std::size_t table);

/// Of all shards of a plan that are not all in memory, by table and place.
std::vector<ShardTier> shard_tiers(const spec::Config& config,
                                   const Workload& workload,
                                   const spec::Plan& plan,
                                   const HotUses& hot_uses);

}  // namespace weft::planner
