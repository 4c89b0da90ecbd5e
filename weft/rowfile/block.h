/// One group of blocks in memory: sealing it for a file, and checking what was read from one.
///
/// For whoever reads blocks without a SegmentReader, for instance past the page cache. Pure
/// functions: they own nothing, allocate nothing but the text of a fault, and may be called by any
/// thread. Cost: one pass of XXH3 over the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/rowfile/layout.h"

namespace weft::rowfile {

/// The first bytes of a group.
struct BlockHeader {
  std::uint64_t checksum = 0;  ///< block_checksum() of the group
  std::uint32_t stream = 0;    ///< index into the segment's streams
  std::uint32_t rows = 0;      ///< at least 1

  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};

static_assert(sizeof(BlockHeader) == kBlockHeaderBytes);

/// The header of a group, unchecked. `group` has at least kBlockHeaderBytes.
BlockHeader block_header(std::span<const std::byte> group);

/// The checksum of a group that begins at `block`: XXH3-64 of all its bytes after the checksum,
/// combined with `block`, so that a group at another place than its own is found too.
std::uint64_t block_checksum(std::span<const std::byte> group, std::int64_t block);

/// Writes the header of a group whose rows are in place and whose other bytes are zero. `block` is
/// the one at which the group begins in its file.
void seal_group(std::span<std::byte> group,
                std::int64_t block,
                std::uint32_t stream,
                std::uint32_t rows);

/// What is wrong with a group that was read from `block` and should have rows of stream `stream`,
/// of `row_bytes` each: empty if nothing, then the rows lie at offset_in_group(). Safe for any
/// bytes.
std::string find_group_fault(std::span<const std::byte> group,
                             std::int64_t block,
                             std::int64_t stream,
                             std::int64_t row_bytes);

}  // namespace weft::rowfile
