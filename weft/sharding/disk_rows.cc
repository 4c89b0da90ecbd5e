#include "weft/sharding/disk_rows.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/hash.h"
#include "weft/layout/tables.h"

namespace weft::sharding {
namespace {

io::ReadMethod method_of(spec::DiskReads reads) {
  switch (reads) {
    case spec::DiskReads::kRing:
      return io::ReadMethod::kRing;
    case spec::DiskReads::kThreads:
      return io::ReadMethod::kThreads;
    case spec::DiskReads::kAuto:
      break;
  }
  return io::ReadMethod::kAuto;
}

storage::SegmentStoreOptions store_options(const spec::Config& config, std::int64_t rank) {
  const spec::Tiers& tiers = config.tiers;
  storage::SegmentStoreOptions options;
  for (const std::string& directory : tiers.directories) {
    options.directories.push_back(io::join(directory, fmt::format("rank-{:04}", rank)));
  }
  options.label = fmt::format("rows of rank {} of a job", rank);
  options.lock_timeout_s = config.train.timeout_s;
  options.segment_bytes = tiers.segment_bytes;
  options.write_buffer_bytes = tiers.write_buffer_bytes;
  options.space_factor = tiers.space_factor;
  options.reads.method = method_of(tiers.reads);
  return options;
}

}  // namespace

DiskRows::DiskRows(const spec::Config& config,
                   const spec::Plan& plan,
                   std::int64_t rank,
                   io::FileSystem& files)
    : caches_(config, plan), store_(files, store_options(config, rank)) {
}

bool DiskRows::any(const spec::Config& config, const spec::Plan& plan, std::int64_t rank) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const spec::Shards& shards = plan.tables[t].shards;
    if (config.tables[t].memory.tier == spec::MemoryTier::kSsd &&
        std::any_of(shards.begin(), shards.end(), [&](const spec::Shard& shard) {
          return shard.rank == rank % plan.ranks_of(plan.tables[t]);
        })) {
      return true;
    }
  }
  return false;
}

storage::RowBacking& DiskRows::add_shard(const spec::Table& table, const RowSet& rows, Range cols) {
  const std::uint64_t place = hash_combine(
      hash_combine(static_cast<std::uint64_t>(rows.begin), static_cast<std::uint64_t>(rows.step)),
      static_cast<std::uint64_t>(cols.begin));
  return store_.add_shard({.key = hash_combine(hash_string(table.name), place),
                           .rows = rows,
                           .row_bytes = layout::packed_row(table, cols.size()).bytes(),
                           .table = table.name});
}

}  // namespace weft::sharding
