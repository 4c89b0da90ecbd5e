#include "weft/checkpoint/stored_rows.h"

#include <bit>

#include <fmt/core.h>

#include "weft/base/hash.h"
#include "weft/rowfile/name_stream.h"

namespace weft::checkpoint {
namespace {

std::uint64_t add(std::uint64_t hash, std::int64_t value) {
  return hash_combine(hash, static_cast<std::uint64_t>(value));
}

}  // namespace

std::int64_t SegmentSet::bytes() const {
  std::int64_t sum = 0;
  for (const SegmentFile& file : files) {
    sum += file.bytes;
  }
  return sum;
}

std::string segment_name(const std::string& prefix, const SegmentFile& file) {
  return fmt::format("{}-{}-{}.rows", prefix, file.rank, file.number);
}

Range item_cols(const StoredTable& table, const RowStream& stream, std::size_t index) {
  const RowItem& item = table.items[index];
  return item.cols == table.items.front().cols ? stream.cols : Range{0, item.cols};
}

std::int64_t packed_bytes(const StoredTable& table, const RowStream& stream) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < table.items.size(); ++i) {
    const std::int64_t size = size_of(i == 0 ? stream.dtype : table.items[i].dtype);
    bytes += item_cols(table, stream, i).size() * size;
  }
  return bytes;
}

std::uint64_t stream_key(const StoredTable& table, const RowStream& stream) {
  return row_stream_key(table.parameter, table.items, stream);
}

std::uint64_t name_key(std::string_view name) {
  return rowfile::name_stream(name).key;
}

std::uint64_t table_key(const StoredTable& table) {
  std::uint64_t hash = add(add(row_items_key(table.parameter, table.items), table.rows),
                           static_cast<std::int64_t>(table.ids));
  hash = hash_combine(hash_combine(hash, hash_string(table.initial.rule)), table.initial.key);
  hash = add(hash, std::int64_t{std::bit_cast<std::int32_t>(table.initial.scale)});
  return add(hash, std::int64_t{std::bit_cast<std::int32_t>(table.initial.accumulator)});
}

}  // namespace weft::checkpoint
