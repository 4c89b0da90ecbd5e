#include "weft/spec/memory.h"

#include <array>

#include "weft/spec/walk.h"

namespace weft::spec {
namespace {

// Spellings, in the order of the enumerators.
constexpr std::array<std::string_view, 3> kMemoryTiers = {"dense", "lazy", "ssd"};
constexpr std::array<std::string_view, 3> kCachePolicies = {"lru", "lfu", "ahead"};
constexpr std::array<std::string_view, 3> kCacheDivisions = {"auto", "curves", "bytes"};
constexpr std::array<std::string_view, 3> kDiskReads = {"auto", "ring", "threads"};

}  // namespace

std::string_view to_string(MemoryTier tier) {
  return kMemoryTiers[static_cast<std::size_t>(tier)];
}

void walk(Visitor& v, TableMemory& c) {
  v.value({.name = "tier",
           .meaning = "dense: all rows are in memory; lazy: those that a step has changed, all "
                      "others take no space; ssd: those on disks (tiers.directories), behind a "
                      "cache in memory.",
           .decides_weights = false},
          choice(c.tier, kMemoryTiers));
  v.value({.name = "cache_bytes",
           .meaning = "ssd: of each shard's rows in the cache, with their optimizer state; 0 = a "
                      "share of tiers.cache_bytes, by tiers.division.",
           .unit = "bytes",
           .bounds = at_least(0, 0x1.0p50),
           .decides_weights = false},
          &c.cache_bytes);
  v.value({.name = "ways",
           .meaning = "ssd: slots of the cache in which a row may lie: 8 or 32.",
           .unit = "slots",
           .bounds = at_least(8, 32),
           .decides_weights = false},
          &c.ways);
  v.value({.name = "policy",
           .meaning = "ssd: which rows leave the cache first. lru: not asked for longest; lfu: "
                      "asked for least often, lately; ahead: as lru, but what batches that have "
                      "been read ahead ask for stays.",
           .decides_weights = false},
          choice(c.policy, kCachePolicies));
}

void walk(Visitor& v, Tiers& c) {
  v.value({.name = "directories",
           .meaning = "Folders on disks for rows of tables with memory.tier ssd; each rank makes "
                      "its own in each. What is there belongs to a running job, and goes with it.",
           .default_text = "none",
           .decides_weights = false},
          &c.directories);
  v.value({.name = "cache_bytes",
           .meaning = "Of each rank's rows in the caches of all its shards without a cache_bytes "
                      "of their own; 0 = chosen by a plan for a cluster, from its memory and the "
                      "rate of its disks.",
           .unit = "bytes",
           .bounds = at_least(0, 0x1.0p50),
           .decides_weights = false},
          &c.cache_bytes);
  v.value({.name = "division",
           .meaning = "How the shards of a rank share cache_bytes. curves: so that fewest blocks "
                      "are read, by how often their rows are asked for; bytes: by the bytes of the "
                      "shards; auto: by curves where weft data stats or the generator says how "
                      "often, else by bytes. A plan that is given has its own, or none: by bytes.",
           .decides_weights = false},
          choice(c.division, kCacheDivisions));
  v.value({.name = "space_factor",
           .meaning = "Bytes on the disks, at most, for each byte of rows that are there: less "
                      "space costs more writing.",
           .bounds = at_least(1.1, 10),
           .decides_weights = false},
          &c.space_factor);
  v.value({.name = "write_buffer_bytes",
           .meaning = "Of changed rows on their way to the disks, on each rank.",
           .unit = "bytes",
           .bounds = at_least(0x1.0p16, 0x1.0p40),
           .decides_weights = false},
          &c.write_buffer_bytes);
  v.value({.name = "segment_bytes",
           .meaning = "Of the files that rows are appended to.",
           .unit = "bytes",
           .bounds = at_least(0x1.0p16, 0x1.0p40),
           .decides_weights = false},
          &c.segment_bytes);
  v.value({.name = "reads",
           .meaning = "How many reads are in flight: ring = io_uring, threads = a thread each; "
                      "auto = ring where the system allows it.",
           .decides_weights = false},
          choice(c.reads, kDiskReads));
}

}  // namespace weft::spec
