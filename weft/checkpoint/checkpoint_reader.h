/// A checkpoint that is looked at rather than loaded: what is in it, its rows as streams, and
/// whether every byte is still as it was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/item_source.h"
#include "weft/checkpoint/manifest.h"
#include "weft/io/file_system.h"

namespace weft::checkpoint {

/// What was checked.
struct Verified {
  std::int64_t manifest_bytes = 0;
  std::int64_t files = 0;   ///< data files
  std::int64_t chunks = 0;  ///< in them, each with a checksum
  std::int64_t bytes = 0;   ///< in them
  std::int64_t segments = 0;
  std::int64_t segment_rows = 0;  ///< in them; one of several columns or saves counts as often
  std::int64_t segment_bytes = 0;
  std::int64_t blobs = 0;
  std::int64_t blob_bytes = 0;
  std::vector<std::string> strangers =
      {};  ///< names that the manifest does not know: in the directory, and of its sets of segments
};

/// Options of a CheckpointReader.
struct ReaderOptions {
  io::FileSystem* files = nullptr;  ///< null = the operating system's
  /// Hears of every read of a data file, segment or blob, on the thread that reads; of footers of
  /// segments not.
  std::function<void(std::int64_t bytes)> on_read = {};
};

/// A complete checkpoint. All calls throw Error(kCheckpoint) naming file, offset and item where
/// files are missing, cut or changed.
class CheckpointReader final : public ItemSource {
 public:
  /// Opens find_checkpoint(path): reads and validates its manifest, and no other file.
  explicit CheckpointReader(const std::string& path, ReaderOptions options = {});

  [[nodiscard]] const std::string& directory() const { return directory_; }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// The checksum that closes the manifest: what a child calls its parent's id.
  [[nodiscard]] std::uint64_t id() const { return id_; }

  /// The version of the format in which the manifest is written.
  [[nodiscard]] std::int64_t format_version() const { return version_; }

  [[nodiscard]] std::int64_t manifest_bytes() const { return manifest_bytes_; }

  /// Bytes of all data files, segments and blobs, by the manifest.
  [[nodiscard]] std::int64_t stored_bytes() const;

  /// Those that are stored in blocks, then those of tables whose rows are in segments. A table of
  /// which not all rows are stored has its rows counted at the first call, which reads the footers
  /// of its segments; memory: 8 bytes per row in a segment.
  [[nodiscard]] const std::vector<ItemInfo>& items() const override;

  /// How many of the items are stored in blocks: Manifest::items.
  [[nodiscard]] std::size_t block_items() const { return manifest_.items.size(); }

  /// Of an item in segments: the latest of each row. The call reads the footers of the segments
  /// that may have some and keeps 24 bytes for each row that it finds there, so a large table is
  /// better read in ranges; besides up to 8 MiB of rows or one row, and 64 open segments. A group
  /// of rows is checked before any of it is handed out.
  ///
  /// Of an item in blocks, memory of the stream: up to 8 MiB of rows or one row, the same again for
  /// their numbers, 1 MiB, and 600 bytes per block in hand. It has up to 128 files open.
  [[nodiscard]] std::unique_ptr<ItemRows> open_rows(std::size_t item,
                                                    const Range& rows) const override;

  /// Calls visit(bytes) for one blob of manifest().blobs, 1 MiB at a time. As with rows, all is
  /// checked when it returns, and not before.
  void for_each_blob_bytes(
      std::size_t blob, const std::function<void(std::span<const std::byte> bytes)>& visit) const;

  /// Rows of table `table` of the manifest, all items one after the other in the order of the
  /// table, all columns: packed rows of a stream of all columns in the item's own dtype. As
  /// open_rows() reads them.
  [[nodiscard]] std::unique_ptr<ItemRows> open_table(std::size_t table, const Range& rows) const;

  /// Reads every data file, segment and blob and checks sizes and checksums; the manifest has been
  /// when it was opened. Throws Error(kCheckpoint) at the first damage, in the order of files and
  /// offsets. Memory: 1 MiB.
  [[nodiscard]] Verified verify() const;

 private:
  struct Place {
    std::size_t table = 0;  ///< index into Manifest::tables
    std::size_t item = 0;   ///< of the table
  };

  [[nodiscard]] Place place_in_segments(std::size_t item) const;
  void verify_segments(Verified& out) const;
  void count_rows() const;

  io::FileSystem& files_;
  std::function<void(std::int64_t)> on_read_;
  std::string directory_;
  Manifest manifest_;
  std::uint64_t id_ = 0;
  std::int64_t version_ = 0;
  std::int64_t manifest_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable bool has_counted_ = false;  ///< stored rows of items_
  mutable std::vector<ItemInfo> items_;
};

}  // namespace weft::checkpoint
