#include "weft/checkpoint/save_plan.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/linked_rows.h"
#include "weft/checkpoint/rank_table.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kIdBytes = 8;

std::uint64_t hash_of(const StoredTable& table) {
  return mix64(table_key(table));
}

/// Bytes of the chain that hangs on its first set.
std::int64_t bytes_of_increments(const Manifest& parent) {
  std::int64_t bytes = 0;
  for (std::size_t i = 1; i < parent.segments.size(); ++i) {
    bytes += parent.segments[i].bytes();
  }
  return bytes;
}

}  // namespace

SaveSources::SaveSources(std::span<const StateSource* const> sources)
    : all(sources), shards(row_shards(sources)) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].shape.first_holder && shards[i].shape.rows.size() > 0) {
      first.push_back(i);
    }
  }
}

bool SaveSources::is_of_rows(const RowShard* shard, std::size_t item) {
  return shard != nullptr && std::cmp_greater_equal(item, shard->shape.first_item) &&
         std::cmp_less(item, shard->shape.first_item + shard->shape.items);
}

std::int64_t bytes_of_blocks(const SaveSources& sources) {
  std::int64_t bytes = 0;
  sources.for_each_block([&](const StateSource&, std::size_t, const StateItem& item) {
    bytes += item.held().size() * (item.col_end - item.col_begin) * size_of(item.dtype);
  });
  return bytes;
}

RankOffer offer_of(const SaveSources& sources,
                   const LinkedRows& links,
                   const Increments* increments) {
  RankOffer offer;
  offer.shards = static_cast<std::int64_t>(sources.first.size());
  offer.base = increments != nullptr ? increments->base : 0;
  offer.block_bytes = bytes_of_blocks(sources);
  offer.changed_bytes = links.new_bytes();
  for (const std::size_t i : sources.first) {
    const RowShard& shard = sources.shards[i];
    if (shard.shape.rows.contains(0) && shard.shape.cols.begin == 0) {
      offer.tables += hash_of(shard.table);
    }
    if (increments == nullptr) {
      continue;
    }
    WEFT_CHECK(std::find(increments->rows.begin(), increments->rows.end(), shard.state) !=
                   increments->rows.end(),
               "changes of {} do not count, but are to be saved", shard.shape.parameter);
    if (offer.base != 0) {
      offer.changed_bytes += count_rows(*shard.state, rows_to_write(shard, StateRows::kChanged)) *
                             (shard.row_bytes() + kIdBytes);
    }
  }
  return offer;
}

std::string SavePlan::encode() const {
  ByteWriter out;
  out.put(unfinished);
  out.put(prefix);
  out.put(parent.has_value());
  out.put(copies_blocks);
  return out.bytes();
}

void SavePlan::decode(const std::string& bytes) {
  ByteReader in(bytes);
  unfinished = in.take<std::string>();
  prefix = in.take<std::string>();
  has_parent = in.take<bool>();
  copies_blocks = in.take<bool>();
}

std::optional<Manifest> parent_to_extend(const SaveOptions& options,
                                         const Folder& folder,
                                         std::span<const RankOffer> offers) {
  const std::uint64_t base = folder.lineage().parent_id;
  std::int64_t changed = 0;
  std::uint64_t tables = 0;
  for (const RankOffer& offer : offers) {
    if (offer.base == 0 || offer.base != base) {
      return std::nullopt;
    }
    changed += offer.changed_bytes;
    tables += offer.tables;
  }
  auto parent = folder.parent();
  if (!parent || parent->segments.empty() ||
      std::cmp_greater(parent->segments.size(), options.increment_count)) {
    return std::nullopt;
  }
  for (const StoredTable& table : parent->tables) {
    tables -= hash_of(table);
  }
  const double limit =
      options.increment_share * static_cast<double>(parent->segments.front().bytes());
  if (tables != 0 || static_cast<double>(bytes_of_increments(*parent) + changed) > limit) {
    return std::nullopt;
  }
  return parent;
}

}  // namespace weft::checkpoint
