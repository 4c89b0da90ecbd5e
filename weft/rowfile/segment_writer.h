/// Writes a segment: a file of rows that never changes once it is sealed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/file_system.h"
#include "weft/rowfile/layout.h"

namespace weft::rowfile {

/// Rows and tombstones appended to a new file, then sealed (docs/rowfile_format.md).
///
/// Each stream has at most one group with free room. A group's block number is fixed when its first
/// row comes, so append() knows places at once. The writer holds the end of the file in memory and
/// writes 1 MiB when it holds 2 MiB. A group with free room that falls into the MiB to be written
/// is closed as it is, so a stream that gets few rows costs at most a block per MiB.
///
/// **Reading before the seal.** A row's group lies whole in memory (buffered_row()), or is closed
/// and lies whole in the file, where it no longer changes and is read like a sealed one.
///
/// **Crashes.** seal() syncs all but the last block before it writes that, so a file with a valid
/// trailer is whole. An unsealed file stays behind after an error, or without seal(), and readers
/// refuse it; removing it is the caller's.
///
/// Errors: `code` with the path and what to do. After a failed write no other call succeeds. Used
/// by one thread at a time. Memory: 2 MiB, a block per stream at most, 8 bytes a row, 16 a
/// tombstone, 12 a group.
class SegmentWriter {
 public:
  /// Creates the file, which must not exist. `files` must outlive the writer. Streams: 1 to
  /// kMaxStreams, keys unique. `code` is that of the errors.
  SegmentWriter(io::FileSystem& files,
                std::string path,
                std::vector<Stream> streams,
                ErrorCode code = ErrorCode::kIo);

  /// Appends rows of a stream: `rows` has those of `ids` back to back. An id may come again; the
  /// later row or tombstone of an id is the one that holds. `places`, of the length of `ids` or
  /// empty, receives where they lie.
  void append(std::size_t stream,
              std::span<const RowId> ids,
              std::span<const std::byte> rows,
              std::span<Place> places = {});

  /// Appends tombstones: rows of these ids that were appended before, here or in earlier segments,
  /// are no more.
  void remove(std::size_t stream, std::span<const RowId> ids);

  /// The row at a place that append() returned, where it is in memory, valid until the next call
  /// that is not const; empty where its group lies whole in the file.
  [[nodiscard]] std::span<const std::byte> buffered_row(std::size_t stream,
                                                        const Place& place) const;

  /// Writes footer and trailer and returns when all bytes are on the disk. The name is durable with
  /// FileSystem::sync_directory() of the file's directory, which is the caller's to call. Nothing
  /// may be appended afterwards.
  void seal();

  /// Bytes that the file has once it is sealed, if nothing else is appended.
  [[nodiscard]] std::int64_t bytes() const;

  /// Rows appended so far, all streams.
  [[nodiscard]] std::int64_t rows() const { return rows_; }

  /// Tombstones appended so far, all streams.
  [[nodiscard]] std::int64_t tombstones() const { return tombstones_; }

  /// The streams as the constructor got them.
  [[nodiscard]] const std::vector<Stream>& streams() const { return streams_; }

 private:
  struct Group {
    std::uint32_t block;
    std::uint32_t stream;
    std::uint32_t rows;
  };

  /// What is kept of a stream.
  struct Track {
    std::int64_t open = -1;  ///< index of the group with free room; -1 = none
    std::vector<RowId> ids;  ///< of its rows, in order
    std::vector<Tombstone> tombstones;
  };

  class FooterOutput;

  void check_usable() const;
  void open_group(std::size_t stream);
  void close_group(std::size_t stream);
  std::byte* buffer_at(std::int64_t offset);
  [[nodiscard]] std::int64_t footer_bytes() const;
  [[nodiscard]] std::int64_t end() const;
  void write_full();
  void write_to(std::int64_t offset);
  void drop_written();
  void sync();
  void append_footer();
  [[noreturn]] void fail_write(const char* what, const std::error_code& error);

  std::string path_;
  std::vector<Stream> streams_;
  ErrorCode code_;
  std::unique_ptr<io::File> file_;  ///< null once sealed or failed
  bool sealed_ = false;
  std::vector<std::byte> buffer_;  ///< the file's end
  std::int64_t buffer_begin_ = 0;  ///< the offset at which that begins: a group's
  std::int64_t written_ = 0;       ///< bytes in the file
  std::int64_t synced_ = 0;        ///< of these on the disk
  std::vector<Group> groups_;      ///< in the order of the file
  std::vector<Track> tracks_;      ///< of each stream
  std::int64_t next_block_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t tombstones_ = 0;
};

}  // namespace weft::rowfile
