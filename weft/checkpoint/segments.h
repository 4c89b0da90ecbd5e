/// Private to checkpoint/: the segments of a checkpoint, opened and held against its manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/checkpoint/manifest.h"
#include "weft/io/file_system.h"
#include "weft/rowfile/segment_reader.h"

namespace weft::checkpoint {

/// Which stream of which table.
struct StreamPlace {
  std::size_t table = 0;   ///< index into Manifest::tables
  std::size_t stream = 0;  ///< index into its streams
};

/// A segment and where it comes in the order of all segments of the manifest.
struct ListedSegment {
  const SegmentSet* set = nullptr;
  const SegmentFile* file = nullptr;
  std::size_t order = 0;
};

/// Where the segments of a checkpoint are: the directory "rows" beside it.
std::string rows_directory_of(const std::string& checkpoint);

/// Whether two sets of rows have any in common.
bool meet(const RowSet& a, const RowSet& b);

/// Ranks by layout: list() gives the segments of those that are marked.
using MarkedRanks = std::vector<std::vector<bool>>;

/// Finds and opens the segments that a manifest names. Manifest and file system outlive it.
/// Constant calls may come from several threads.
class Segments {
 public:
  /// `directory` is the one of segments.
  Segments(io::FileSystem& files, const Manifest& manifest, std::string directory);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// The segments of marked ranks, in the order of the manifest.
  [[nodiscard]] std::vector<ListedSegment> list(const MarkedRanks& marked) const;

  /// All of them.
  [[nodiscard]] std::vector<ListedSegment> list() const;

  [[nodiscard]] std::string path_of(const ListedSegment& one) const;

  /// Opens it. Throws Error(kCheckpoint), naming the file, where it is missing, has another size or
  /// name than the manifest says, or rows that the manifest does not know.
  [[nodiscard]] rowfile::SegmentReader open(const ListedSegment& one) const;

  /// Which stream it is that an opened segment has at `stream`, 1 or more.
  [[nodiscard]] StreamPlace place_of(const rowfile::SegmentReader& reader,
                                     std::size_t stream) const {
    return places_.at(reader.streams()[stream].key);
  }

  /// Throws Error(kCheckpoint) where the table has no row of this number.
  void check_id(const StreamPlace& place, rowfile::RowId id) const;

 private:
  [[nodiscard]] std::int64_t row_bytes(const StreamPlace& place) const;

  io::FileSystem& files_;
  const Manifest& manifest_;
  std::string directory_;
  std::map<std::uint64_t, StreamPlace> places_;  ///< by key
};

}  // namespace weft::checkpoint
