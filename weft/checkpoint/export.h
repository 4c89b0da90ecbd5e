/// Weights as safetensors files, for other programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "weft/checkpoint/item_source.h"
#include "weft/io/file_system.h"

namespace weft::checkpoint {

/// Which items are exported: all, or those of kind "weight".
enum class ExportItems { kAll, kWeights };

/// Options of export_safetensors().
struct ExportOptions {
  std::string directory;  ///< the new folder: missing, or empty
  ExportItems items = ExportItems::kAll;
  /// Tensors go into a file as long as it then has no more bytes of them; one that is larger has a
  /// file of its own.
  std::int64_t shard_bytes = std::int64_t{4} << 30;
  /// What the files and the index say about themselves.
  std::map<std::string, std::string> metadata = {};
  io::FileSystem* files = nullptr;  ///< null = the operating system's
};

/// What was written.
struct Exported {
  std::int64_t files = 0;  ///< besides the index
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of tensors
};

/// Writes model-00001-of-<n>.safetensors, ... and model.safetensors.index.json
/// (docs/checkpoint_format.md has names and shapes). They are written beside, as
/// <directory>.<random>.tmp, synced, and get their name when they are complete. Memory: a stream of
/// rows. Items whose rows are listed are read twice.
///
/// Errors: Error(kUsage) where the folder has anything in it, Error(kIo) where a file cannot be
/// written, Error(kCheckpoint) where the source is damaged or two tensors would have one name. What
/// was written is then removed.
Exported export_safetensors(const ItemSource& source, const ExportOptions& options);

}  // namespace weft::checkpoint
