/// Private to checkpoint/: rows of an item out of the blocks of format versions 1 to 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/base/hash_stream.h"
#include "weft/checkpoint/file.h"
#include "weft/checkpoint/item_source.h"
#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {

/// Bytes that are read at once.
inline constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

using OnRead = std::function<void(std::int64_t bytes)>;

/// Data files of a checkpoint, opened when they are needed, and closed where many are.
class OpenFiles {
 public:
  OpenFiles(io::FileSystem& files, const Manifest& manifest, std::string directory);

  /// File `index` of the manifest, which has the bytes that were written. Valid until the next
  /// call.
  const InputFile& at(std::int64_t index);

 private:
  struct Opened {
    std::unique_ptr<InputFile> file;
    std::int64_t used = 0;
  };

  io::FileSystem& files_;
  const Manifest& manifest_;
  std::string directory_;
  std::unordered_map<std::int64_t, Opened> open_;
  std::int64_t uses_ = 0;
};

/// Where bytes of a block lie, for messages.
struct ChunkPlace {
  const InputFile& file;
  const StoredItem& item;
  const StoredBlock& block;
  std::int64_t chunk = 0;
};

/// Throws Error(kCheckpoint) where a chunk's bytes have another checksum than was written.
void check_chunk(const ChunkPlace& place, std::uint64_t checksum);

/// Rows of a block in chunk `chunk`.
std::int64_t rows_of_chunk(const StoredBlock& block, std::int64_t chunk);

/// What a stream of blocks reads from.
struct BlockSource {
  io::FileSystem& files;
  const Manifest& manifest;
  std::string directory;
  OnRead on_read;
};

/// Joins the blocks of an item. Every block is read once, from front to back, as its rows are met;
/// so the checksum of a chunk is computed as it goes by, and no chunk is ever held.
class BlockRows final : public ItemRows {
 public:
  BlockRows(const BlockSource& source, const StoredItem& item, const Range& rows);

  bool next(StoredRows& out) override;

 private:
  /// How far a block has been read.
  struct Cursor {
    const StoredBlock* block = nullptr;
    std::int64_t first = 0;  ///< its rows [first, end) lie in the range, as it counts them
    std::int64_t end = 0;
    std::int64_t next = 0;                ///< the next one to be read; begins with a chunk
    std::optional<HashStream> hash = {};  ///< of the chunk in hand
  };

  void fill_from(Cursor& cursor, std::int64_t rows);
  void read(Cursor& cursor, std::int64_t end);
  void read_piece(Cursor& cursor, std::int64_t count);
  std::byte* place_in_window(const Cursor& cursor);
  void scatter(const Cursor& cursor, std::int64_t count);

  const StoredItem& item_;
  OnRead on_read_;
  OpenFiles files_;
  Range rows_;
  std::int64_t row_bytes_ = 0;
  std::int64_t window_rows_ = 0;
  std::vector<Cursor> cursors_;  ///< by first row; those before `done_` have been read
  std::size_t done_ = 0;
  std::int64_t at_ = 0;  ///< the window's first row
  std::vector<std::int64_t> ids_;
  std::vector<std::byte> window_;
  std::vector<std::byte> piece_;
};

}  // namespace weft::checkpoint
