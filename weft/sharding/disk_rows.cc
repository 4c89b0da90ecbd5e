#include "weft/sharding/disk_rows.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/embedding/table_shard.h"
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

constexpr std::string_view kRankPrefix = "rank-";
constexpr std::size_t kRankDigits = 4;

std::string rank_folder(std::int64_t rank) {
  return fmt::format("{}{:0{}}", kRankPrefix, rank, kRankDigits);
}

bool is_rank_folder(std::string_view name) {
  if (!name.starts_with(kRankPrefix)) {
    return false;
  }
  name.remove_prefix(kRankPrefix.size());
  return name.size() >= kRankDigits &&
         name.find_first_not_of("0123456789") == std::string_view::npos;
}

storage::SegmentStoreOptions store_options(const spec::Config& config, std::int64_t rank) {
  const spec::Tiers& tiers = config.tiers;
  storage::SegmentStoreOptions options;
  for (const std::string& directory : tiers.directories) {
    options.directories.push_back(io::join(directory, rank_folder(rank)));
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
    : caches_(config, plan),
      segment_bytes_(config.tiers.segment_bytes),
      place_(at(rank % plan.ranks)),
      store_(files, store_options(config, rank)) {
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

void DiskRows::remove_dead(const spec::Config& config, io::FileSystem& files) {
  for (const std::string& directory : config.tiers.directories) {
    for (const std::string& name : files.list(directory).names) {
      const std::string folder = io::join(directory, name);
      if (!is_rank_folder(name) || files.status(folder).kind != io::Kind::kDirectory) {
        continue;
      }
      try {
        if (storage::remove_dead_store(files, folder)) {
          log_info("removed '{}', which an earlier job has left", folder);
        }
      } catch (const Error& error) {
        log_warning("{}", error.what());
      }
    }
  }
}

storage::RowBacking& DiskRows::add_shard(const spec::Table& table, const RowSet& rows, Range cols) {
  // Of several shards of the same columns, which checkpoints call by one name, but one can have it.
  std::uint64_t key = embedding::TableShard::stream_key(table, cols);
  while (!keys_.insert(key).second) {
    key = mix64(key);
  }
  storage::RowBacking& shard =
      store_.add_shard({.key = key,
                        .rows = rows,
                        .row_bytes = layout::packed_row(table, cols.size()).bytes(),
                        .table = table.name});
  claim_files(table);
  return shard;
}

void DiskRows::claim_files(const spec::Table& last) {
  const std::int64_t files = store_.most_files();
  if (const std::int64_t needed = open_files_.set(files)) {
    fail(ErrorCode::kResource,
         "with table '{}' the rows of this rank on disks may take {} segments of {}, each of them "
         "an "
         "open file; this process then needs {} open files and may have {} (ulimit -Hn): take a "
         "larger tiers.segment_bytes, raise that limit, or take more ranks",
         last.name, files, format_bytes(at(segment_bytes_)), needed, io::open_file_limits().hard);
  }
}

}  // namespace weft::sharding
