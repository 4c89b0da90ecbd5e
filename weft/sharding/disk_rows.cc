#include "weft/sharding/disk_rows.h"

#include <string>

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

/// Calls visit(table, shard) for the shards on disks that a rank has.
template <typename Visit>
void for_each_shard(const spec::Config& config,
                    const spec::Plan& plan,
                    std::int64_t rank,
                    const Visit& visit) {
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (config.tables[t].memory.tier != spec::MemoryTier::kSsd) {
      continue;
    }
    for (const spec::Shard& shard : plan.tables[t].shards) {
      if (shard.rank == rank % plan.ranks_of(plan.tables[t])) {
        visit(config.tables[t], shard);
      }
    }
  }
}

}  // namespace

DiskRows::DiskRows(const spec::Config& config,
                   const spec::Plan& plan,
                   std::int64_t rank,
                   io::FileSystem& files)
    : tiers_(config.tiers), store_(files, store_options(config, rank)) {
  for_each_shard(config, plan, rank, [this](const spec::Table& table, const spec::Shard& shard) {
    if (layout::shares_cache(table)) {
      sharing_ += layout::shard_bytes(table, shard.rows.size(), shard.cols.size());
    }
  });
}

bool DiskRows::any(const spec::Config& config, const spec::Plan& plan, std::int64_t rank) {
  bool found = false;
  for_each_shard(config, plan, rank,
                 [&](const spec::Table& /*table*/, const spec::Shard& /*shard*/) { found = true; });
  return found;
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

std::int64_t DiskRows::cache_bytes(const spec::Table& table, const RowSet& rows, Range cols) const {
  return layout::shares_cache(table)
             ? layout::cache_share(tiers_, layout::shard_bytes(table, rows.size(), cols.size()),
                                   sharing_)
             : table.memory.cache_bytes;
}

}  // namespace weft::sharding
