/// Reads a sealed segment, checking all that it takes from the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/io/file_system.h"
#include "weft/rowfile/layout.h"

namespace weft::rowfile {

/// A group as the footer lists it.
struct GroupIds {
  std::size_t stream = 0;
  std::uint32_t block = 0;     ///< the first of its blocks
  std::span<const RowId> ids;  ///< of its rows; row i has the place {block, i}
};

/// A group with its rows.
struct GroupRows {
  GroupIds group;
  std::span<const std::byte> rows;  ///< back to back, in the order of the ids
};

/// A group to be read, as the footer lists it.
struct GroupPlace {
  std::size_t stream = 0;
  std::uint32_t block = 0;  ///< the first of its blocks
  std::int64_t rows = 0;
};

/// Called with one group after the other; what it gets is valid during the call.
using GroupVisitor = std::function<void(const GroupIds&)>;
using RowVisitor = std::function<void(const GroupRows&)>;

/// Called with some tombstones of a stream after the other.
using TombstoneVisitor =
    std::function<void(std::size_t stream, std::span<const Tombstone> tombstones)>;

/// A sealed segment (docs/rowfile_format.md).
///
/// A damaged, cut or foreign file is input: whatever its bytes are, it is refused with an error,
/// and no memory is taken that its size does not justify. Opening reads header, trailer and all of
/// the footer, and no row. What is read later is checked when it is read, the footer too.
///
/// Errors: `code` with the path, the offset in bytes, and what to do. Const functions may be called
/// by several threads at once. Memory: 16 bytes a stream and 8 per MiB of footer; a walk takes up
/// to 2 MiB, or as much as a longer row.
class SegmentReader {
 public:
  /// Opens a sealed file and checks header, trailer and footer. `code` is that of all errors.
  /// Cost: one pass over the footer, 8 bytes a row.
  SegmentReader(io::FileSystem& files, std::string path, ErrorCode code = ErrorCode::kIo);

  /// The streams, in the order of the header.
  [[nodiscard]] const std::vector<Stream>& streams() const { return streams_; }

  /// Bytes of the file.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  /// Rows of all streams; an id that comes twice counts twice.
  [[nodiscard]] std::int64_t rows() const { return rows_; }

  /// Tombstones of all streams.
  [[nodiscard]] std::int64_t tombstones() const { return tombstones_; }

  /// Walks the groups of all streams in the order of the file, with the ids of their rows. Reads
  /// the footer and no row.
  void for_each_group(const GroupVisitor& visit) const;

  /// Walks the tombstones, stream by stream, in the order in which they were appended.
  void for_each_tombstone(const TombstoneVisitor& visit) const;

  /// Walks all rows in the order of the file, checking each group; reads 1 MiB at a time.
  void for_each_row(const RowVisitor& visit) const;

  /// Reads the group of `stream` that begins at `block` into `out`, which has group_bytes() of the
  /// stream's rows, and checks it; rows lie at offset_in_group(). Returns how many there are.
  std::int64_t read_group(std::size_t stream, std::uint32_t block, std::span<std::byte> out) const;

  /// Reads groups that lie one behind the other in the file into `out`, which has their bytes, and
  /// checks each: also that it has as many rows as its place says.
  void read_groups(std::span<const GroupPlace> groups, std::span<std::byte> out) const;

  /// Checks every group. Throws at the first that is damaged, naming file, block and offset.
  void verify() const;

 private:
  class FooterWords;

  [[noreturn]] void fail_damaged(std::int64_t offset, const std::string& fault) const;
  void read(std::int64_t offset, std::span<std::byte> out) const;
  void open(io::FileSystem& files);
  void read_trailer();
  void read_header();
  void walk_footer(const GroupVisitor& on_group, const TombstoneVisitor& on_tombstones) const;
  void walk_groups(FooterWords& words, const GroupVisitor& visit) const;
  void walk_tombstones(FooterWords& words, const TombstoneVisitor& visit) const;
  [[nodiscard]] std::int64_t check_group(std::span<const std::byte> group,
                                         std::size_t stream,
                                         std::uint32_t block) const;
  void check_listed_group(std::span<const std::byte> bytes, const GroupPlace& group) const;

  std::string path_;
  ErrorCode code_;
  std::unique_ptr<io::File> file_;
  std::vector<Stream> streams_;
  std::int64_t bytes_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t tombstones_ = 0;
  std::int64_t footer_offset_ = 0;
  std::int64_t footer_bytes_ = 0;
  std::vector<std::uint64_t> footer_checksums_;  ///< of each chunk
};

}  // namespace weft::rowfile
