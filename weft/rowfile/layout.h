/// The layout of rows in a segment: pure functions of row lengths, for whoever reads or writes
/// blocks.
///
/// A segment is a file of blocks of 4 KiB: its header, blocks of rows, a footer with the ids of all
/// rows, and a trailer. docs/rowfile_format.md has it byte by byte. A block has rows of one stream.
/// Rows of up to 4080 bytes share blocks; a longer one takes whole blocks of its own. The blocks
/// that begin with one block header are a group: one block, or all those of a long row.
///
/// Lengths and offsets are in bytes, blocks are counted from the beginning of the file.
#pragma once

#include <bit>
#include <compare>
#include <cstdint>

namespace weft::rowfile {

static_assert(std::endian::native == std::endian::little, "segments are little-endian");

/// The name of a row within its stream: its number in the whole table, or a raw id. All 64 bits
/// count.
using RowId = std::uint64_t;

/// Bytes of a block, and the multiple at which groups begin.
inline constexpr std::int64_t kBlockBytes = 4096;

/// Bytes of a group before its first row: checksum, stream, number of rows.
inline constexpr std::int64_t kBlockHeaderBytes = 16;

/// Bytes of the longest row.
inline constexpr std::int64_t kMaxRowBytes = std::int64_t{1} << 26;

/// The most streams that a segment may have.
inline constexpr std::int64_t kMaxStreams = std::int64_t{1} << 16;

/// Rows of one kind, for instance those of a table. Within a segment a stream is named by its index
/// in the header's list.
struct Stream {
  std::uint64_t key = 0;       ///< its meaning is the writer's; unique within a segment
  std::int64_t row_bytes = 0;  ///< of every row, 1 to kMaxRowBytes

  friend bool operator==(const Stream&, const Stream&) = default;
};

/// Where a row lies in its segment. Of two rows of one stream the one with the greater place is the
/// later one.
struct Place {
  std::uint32_t block = 0;  ///< the first of the row's group
  std::uint32_t row = 0;    ///< within the group

  friend auto operator<=>(const Place&, const Place&) = default;
};

/// Rows of `id` in earlier segments, and those in this one at a place before `before`, are no more.
struct Tombstone {
  RowId id = 0;
  Place before = {};

  friend bool operator==(const Tombstone&, const Tombstone&) = default;
};

/// The number of rows for which a group has room.
constexpr std::int64_t rows_per_group(std::int64_t row_bytes) {
  const std::int64_t rows = (kBlockBytes - kBlockHeaderBytes) / row_bytes;
  return rows > 0 ? rows : 1;
}

/// The number of blocks of a group.
constexpr std::int64_t blocks_per_group(std::int64_t row_bytes) {
  return rows_per_group(row_bytes) > 1 ? 1 : (kBlockHeaderBytes + row_bytes - 1) / kBlockBytes + 1;
}

/// Bytes of a group, a multiple of kBlockBytes.
constexpr std::int64_t group_bytes(std::int64_t row_bytes) {
  return blocks_per_group(row_bytes) * kBlockBytes;
}

/// The offset of a row from the beginning of its group.
constexpr std::int64_t offset_in_group(std::int64_t row, std::int64_t row_bytes) {
  return kBlockHeaderBytes + row * row_bytes;
}

/// The offset of a row from the beginning of the file.
constexpr std::int64_t offset_of(const Place& place, std::int64_t row_bytes) {
  return place.block * kBlockBytes + offset_in_group(place.row, row_bytes);
}

}  // namespace weft::rowfile
