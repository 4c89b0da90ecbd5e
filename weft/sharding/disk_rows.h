/// DiskRows: where the rows of a rank's shards lie that are on disks (memory.tier ssd): its store
/// of segments, and what each shard has of the caches' memory.
///
/// Every rank has folders of its own, `rank-0003` in each of tiers.directories, which are locked as
/// long as it lives and empty afterwards. With replica groups they are numbered by position, and
/// the caches of a table may differ from group to group: they are shares of what a rank has.
/// Rows have the keys by which checkpoints know them, so that these can link its files; where a
/// rank has several shards of the same columns of a table, only one has, and its rows are copied.
/// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "weft/base/parts.h"
#include "weft/io/file_system.h"
#include "weft/io/process.h"
#include "weft/layout/cache_shares.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/storage/row_backing.h"
#include "weft/storage/segment_store.h"

namespace weft::sharding {

class DiskRows {
 public:
  /// Of the shards that `rank` has in `plan`, a position of the mesh (weft/spec/mesh.h), in its
  /// group of each table. `files` outlives it. Throws Error(kIo) naming the folder: another job has
  /// it, or it cannot be made.
  DiskRows(const spec::Config& config,
           const spec::Plan& plan,
           std::int64_t rank,
           io::FileSystem& files = io::real_file_system());

  /// Whether a rank has shards on disks.
  [[nodiscard]] static bool any(const spec::Config& config,
                                const spec::Plan& plan,
                                std::int64_t rank);

  /// Removes the folders `rank-*` in tiers.directories that no rank of a living job has: those that
  /// ranks have left which this job does not have, or has on another host. One rank of each host
  /// calls it when all have made theirs. What cannot be removed is a warning.
  static void remove_dead(const spec::Config& config,
                          io::FileSystem& files = io::real_file_system());

  /// The place of a shard's rows, which lives as long as this. Raises the process's limit on open
  /// files as far as the segments of all shards may need; throws Error(kResource), naming limit,
  /// need and what to do, where it cannot be raised so far.
  storage::RowBacking& add_shard(const spec::Table& table, const RowSet& rows, Range cols);

  /// Bytes of the cache of a shard, by its table and its place among the table's.
  [[nodiscard]] std::int64_t cache_bytes(std::size_t table, std::size_t shard) const {
    return caches_.bytes(table, shard);
  }

  /// The same of this rank's copy of a data_parallel table.
  [[nodiscard]] std::int64_t copy_cache_bytes(std::size_t table) const {
    return caches_.bytes(table, place_);
  }

  /// What the store has counted.
  [[nodiscard]] storage::StoreCounts counts() const { return store_.counts(); }

 private:
  void claim_files(const spec::Table& last);

  layout::CacheShares caches_;
  std::int64_t segment_bytes_;
  io::OpenFileClaim open_files_;
  std::size_t place_;  // of the rank in its group, and of its copies among a table's shards
  storage::SegmentStore store_;
  std::set<std::uint64_t> keys_;  ///< of shards
};

}  // namespace weft::sharding
