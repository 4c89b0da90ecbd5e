/// Private to checkpoint/: what must hold inside a manifest.
#pragma once

#include <cstdint>
#include <string>

#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {

/// What is wrong with the values of a manifest, empty where nothing is.
std::string find_fault(const Manifest& manifest);

/// The fields of a sealed manifest, each of its type and in its range, with no look at how blocks
/// fit together: a rank's table of its own blocks is such a text too. Throws Error(kCheckpoint).
Manifest decode_manifest(const std::string& text, const std::string& file);

inline std::int64_t block_row_bytes(const StoredItem& item, const StoredBlock& block) {
  return (block.col_end - block.col_begin) * size_of(item.dtype);
}

inline std::int64_t block_bytes(const StoredItem& item, const StoredBlock& block) {
  return block.rows().size() * block_row_bytes(item, block);
}

}  // namespace weft::checkpoint
