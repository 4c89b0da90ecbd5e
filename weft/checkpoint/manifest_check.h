/// Private to checkpoint/: what must hold inside a manifest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {

/// What is wrong with the values of a manifest, empty where nothing is.
std::string find_fault(const Manifest& manifest);

/// What is wrong with its tables, layouts and segments.
std::string find_row_fault(const Manifest& manifest);

/// The fields of a sealed manifest, each of its type and in its range, with no look at how blocks
/// fit together. Throws Error(kCheckpoint).
Manifest decode_manifest(const std::string& text, const std::string& file);

inline std::int64_t block_row_bytes(const StoredItem& item, const StoredBlock& block) {
  return (block.col_end - block.col_begin) * size_of(item.dtype);
}

/// The rows of a chunk of a block, as a save cuts it.
inline std::int64_t usual_chunk_rows(const StoredItem& item, const StoredBlock& block) {
  const std::int64_t row_bytes = std::max<std::int64_t>(block_row_bytes(item, block), 1);
  const std::int64_t rows = std::max<std::int64_t>(block.rows().size(), 1);
  return std::clamp<std::int64_t>(kChunkBytes / row_bytes, 1, rows);
}

inline std::int64_t block_bytes(const StoredItem& item, const StoredBlock& block) {
  return block.rows().size() * block_row_bytes(item, block);
}

}  // namespace weft::checkpoint
