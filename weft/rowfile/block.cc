#include "weft/rowfile/block.h"

#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::rowfile {

BlockHeader block_header(std::span<const std::byte> group) {
  BlockHeader header;
  WEFT_CHECK(group.size() >= sizeof header);
  std::memcpy(&header, group.data(), sizeof header);
  return header;
}

std::uint64_t block_checksum(std::span<const std::byte> group, std::int64_t block) {
  const std::uint64_t bytes = hash_bytes(group.subspan(sizeof(BlockHeader::checksum)));
  return hash_combine(bytes, static_cast<std::uint64_t>(block));
}

void seal_group(std::span<std::byte> group,
                std::int64_t block,
                std::uint32_t stream,
                std::uint32_t rows) {
  WEFT_CHECK(group.size() >= sizeof(BlockHeader));
  BlockHeader header{0, stream, rows};
  std::memcpy(group.data(), &header, sizeof header);
  header.checksum = block_checksum(group, block);
  std::memcpy(group.data(), &header, sizeof header);
}

std::string find_group_fault(std::span<const std::byte> group,
                             std::int64_t block,
                             std::int64_t stream,
                             std::int64_t row_bytes) {
  if (std::cmp_not_equal(group.size(), group_bytes(row_bytes))) {
    return fmt::format("{} bytes are not a group of rows of {} bytes", group.size(), row_bytes);
  }
  const BlockHeader header = block_header(group);
  if (const std::uint64_t found = block_checksum(group, block); found != header.checksum) {
    return fmt::format("its checksum is {:016x}, and its bytes have {:016x}", header.checksum,
                       found);
  }
  if (std::cmp_not_equal(header.stream, stream)) {
    return fmt::format("it has rows of stream {}, and stream {} was expected", header.stream,
                       stream);
  }
  if (header.rows == 0 || std::cmp_greater(header.rows, rows_per_group(row_bytes))) {
    return fmt::format("it has {} rows, and 1 to {} are possible", header.rows,
                       rows_per_group(row_bytes));
  }
  return "";
}

}  // namespace weft::rowfile
