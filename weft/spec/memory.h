/// Where the rows of tables lie: all in memory, those that exist in memory, or on disks behind a
/// cache (docs/tiers.md). It decides what takes space and time, and no bit of a result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::spec {

/// Memories of a table's rows. kDense: all rows, each at its place. kLazy: rows that some step has
/// changed. kSsd: these on disks, those in use in a cache.
enum class MemoryTier { kDense, kLazy, kSsd };

/// Which rows leave a cache first. kLru: those not asked for longest. kLfu: those asked for least
/// often, with counts that decay. kAhead: as kLru, but rows of batches that are known stay.
enum class CachePolicy { kLru, kLfu, kAhead };

/// How the shards of a rank divide Tiers::cache_bytes. kCurves: by what each has of more memory,
/// from how often its rows are asked for. kBytes: by the bytes of the shards. kAuto: by curves
/// where they are known, of statistics or generated data, else by bytes.
enum class CacheDivision { kAuto, kCurves, kBytes };

/// Ways in which rows are read from disks (weft/io/block_reads.h).
enum class DiskReads { kAuto, kRing, kThreads };

/// Of one table.
struct TableMemory {
  MemoryTier tier = MemoryTier::kDense;
  std::int64_t cache_bytes = 0;  ///< of rows in the cache, of each shard; 0 = its share of Tiers'
  std::int64_t ways = 32;        ///< slots of a set of the cache: 8 or 32
  CachePolicy policy = CachePolicy::kLfu;

  friend bool operator==(const TableMemory&, const TableMemory&) = default;
};

/// Of all tables of a rank that lie on disks.
struct Tiers {
  std::vector<std::string> directories;  ///< each rank makes one of its own in each
  std::int64_t cache_bytes = 0;  ///< shared by shards without one of their own; 0: the plan's
  CacheDivision division = CacheDivision::kAuto;
  double space_factor = 1.5;  ///< most bytes on disks per byte of rows that are there
  std::int64_t write_buffer_bytes = std::int64_t{64} << 20;  ///< of changed rows on their way
  std::int64_t segment_bytes = std::int64_t{64} << 20;       ///< of a file
  DiskReads reads = DiskReads::kAuto;

  friend bool operator==(const Tiers&, const Tiers&) = default;
};

/// As in YAML: "dense".
std::string_view to_string(MemoryTier tier);

}  // namespace weft::spec
