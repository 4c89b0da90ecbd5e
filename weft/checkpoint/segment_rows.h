/// Private to checkpoint/: rows of a table out of segments, ascending, whoever wrote them and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/checkpoint/item_source.h"
#include "weft/checkpoint/segments.h"
#include "weft/rowfile/layout.h"
#include "weft/tensor/packed_items.h"

namespace weft::checkpoint {

/// What SegmentRows reads.
struct SegmentSource {
  io::FileSystem& files;
  const Manifest& manifest;
  std::string directory;  ///< of segments
  std::function<void(std::int64_t bytes)> on_read;
};

/// Which rows of a table, and what of each.
struct TableRows {
  std::size_t table = 0;           ///< index into Manifest::tables
  std::vector<std::size_t> items;  ///< of the table; a row of the stream has one after the other
  Range rows;
};

/// How many different rows of a table are stored: in some segment, with no later tombstone. Reads
/// the footers of its segments and no row. Memory: 8 bytes per stored row and segment.
std::int64_t count_stored_rows(const SegmentSource& source, std::size_t table);

/// The stored rows of a table, of each the latest. The constructor reads the footers of all
/// segments that may have rows of the range and keeps 24 bytes for each row that it finds there;
/// next() reads the groups that it needs, each checked as a whole, a window of rows at a time.
/// Memory besides: 8 MiB of rows or one row, 16 bytes for each of these, 64 open segments.
///
/// Where rows lie in their segments in the order of their numbers every group is read once or
/// twice. Where they do not, as a table with a cache may write them, it is read once for each
/// window that has one of its rows: at worst a group of 4 KiB for each row.
class SegmentRows final : public ItemRows {
 public:
  /// Throws Error(kCheckpoint), also where a table that has all rows lacks one, and where some
  /// columns alone of a row are stored.
  SegmentRows(const SegmentSource& source, TableRows wanted);

  bool next(StoredRows& out) override;

 private:
  /// Where a row lies. Sorted by row and, of one row, in the order in which they were written.
  struct Entry {
    std::int64_t id = 0;
    std::uint32_t segment = 0;  ///< its order in the manifest
    std::uint32_t stream = 0;   ///< of the table
    rowfile::Place place;
  };

  /// Where an item's columns lie in a packed row, and where in a row of this stream.
  struct Part {
    PackedItem item;
    std::int64_t offset = 0;
  };

  /// An open segment.
  struct Opened {
    std::unique_ptr<rowfile::SegmentReader> reader;
    std::vector<std::size_t> stream_of;  ///< in the segment, by stream of the table
    std::int64_t used = 0;
  };

  void find_entries();
  void keep_latest();
  void check_columns(std::size_t begin, std::size_t end);
  void check_all_there() const;
  void plan_parts();
  void read_entries(std::size_t begin, std::size_t end);
  const Opened& open(std::size_t order);

  Segments segments_;
  const StoredTable& table_;
  TableRows wanted_;
  std::function<void(std::int64_t)> on_read_;
  std::string directory_;
  std::vector<ListedSegment> listed_;  ///< all, by order
  std::map<std::size_t, Opened> open_;
  std::int64_t uses_ = 0;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
  std::vector<std::vector<Part>> parts_;  ///< by stream of the table
  std::int64_t row_bytes_ = 0;
  std::vector<std::int64_t> ids_;
  std::vector<std::byte> window_;
  std::vector<std::size_t> order_;
  std::vector<std::byte> group_;
};

}  // namespace weft::checkpoint
