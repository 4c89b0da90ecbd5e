#include "weft/tensor/row_streams.h"

#include "weft/base/hash.h"

namespace weft {
namespace {

std::uint64_t add(std::uint64_t hash, std::int64_t value) {
  return hash_combine(hash, static_cast<std::uint64_t>(value));
}

std::uint64_t add(std::uint64_t hash, std::string_view text) {
  return hash_combine(hash, hash_string(text));
}

}  // namespace

std::uint64_t row_items_key(std::string_view parameter, std::span<const RowItem> items) {
  std::uint64_t hash = hash_string(parameter);
  for (const RowItem& item : items) {
    hash = add(add(add(hash, item.kind), to_string(item.dtype)), item.cols);
  }
  return hash;
}

std::uint64_t row_stream_key(std::string_view parameter,
                             std::span<const RowItem> items,
                             const RowStream& stream) {
  const std::uint64_t hash = add(row_items_key(parameter, items), to_string(stream.dtype));
  return add(add(hash, stream.cols.begin), stream.cols.end);
}

}  // namespace weft
