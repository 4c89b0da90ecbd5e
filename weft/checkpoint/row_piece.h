/// Private to checkpoint/: rows of a segment on their way to the targets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/checkpoint/row_batch.h"
#include "weft/checkpoint/segments.h"
#include "weft/rowfile/segment_reader.h"

namespace weft::checkpoint {

/// The tombstones of rows that are wanted. Constant calls may come from several threads. Memory: 64
/// bytes for each.
class Tombstones {
 public:
  explicit Tombstones(const Manifest& manifest) : manifest_(manifest) {}

  /// Notes one of the segment that is `segment` in the order of the manifest.
  void add(const StreamPlace& place, const rowfile::Tombstone& tombstone, std::size_t segment);

  /// Whether a later one removes the row at a place of a segment.
  [[nodiscard]] bool removes(const StreamPlace& place,
                             rowfile::RowId id,
                             std::size_t segment,
                             const rowfile::Place& at_place) const;

 private:
  /// Where a tombstone stands in the order of all rows.
  struct Removal {
    std::size_t segment = 0;
    rowfile::Place before;
    Range cols;
  };

  [[nodiscard]] Range cols_of(const StreamPlace& place) const {
    return manifest_.tables[place.table].streams[place.stream].cols;
  }

  const Manifest& manifest_;
  std::map<std::pair<std::size_t, rowfile::RowId>, std::vector<Removal>> removals_;
};

/// A stream of an open segment, and which of its rows go where.
struct WantedStream {
  StreamPlace place;
  std::vector<RowSelection> selections;  ///< one per target of its table

  /// Whether any target holds one of the rows.
  [[nodiscard]] bool wants_any(std::span<const rowfile::RowId> ids) const {
    return std::any_of(ids.begin(), ids.end(), [this](rowfile::RowId id) {
      return std::any_of(selections.begin(), selections.end(),
                         [id](const RowSelection& selection) { return selection.wants(id); });
    });
  }
};

struct OpenSegment {
  std::size_t order = 0;  ///< in the manifest
  std::string path;
  rowfile::SegmentReader reader;
  std::vector<WantedStream> streams;  ///< by the segment's streams
};

/// What all pieces of a load need; outlives them.
struct RowPieceContext {
  const Segments& segments;
  const Tombstones& tombstones;
  WorkProgress& progress;
};

/// Groups of one stream, read and given to the targets: a piece of a ReadAhead. Memory: 1 MiB or
/// one group, their ids, and once or twice as much for each target that takes all rows.
class RowPiece {
 public:
  /// Begins anew, without groups.
  void begin(const RowPieceContext& context,
             std::shared_ptr<const OpenSegment> segment,
             std::size_t stream);

  /// Whether a group belongs to these and has room beside them.
  [[nodiscard]] bool takes(const rowfile::GroupIds& group) const;

  void add(const rowfile::GroupIds& group);

  [[nodiscard]] std::int64_t bytes() const { return std::ssize(groups_) * group_bytes(); }

  [[nodiscard]] const std::string& path() const { return segment_->path; }

  /// Reads and checks the groups, and picks out the rows that hold and are wanted.
  void read();

  /// Gives the rows to the sinks, and the segment up.
  void hand_over();

 private:
  [[nodiscard]] std::int64_t row_bytes() const {
    return segment_->reader.streams()[stream_].row_bytes;
  }

  [[nodiscard]] std::int64_t group_bytes() const { return rowfile::group_bytes(row_bytes()); }

  void read_groups();
  void select(const rowfile::GroupPlace& group, const rowfile::RowId* ids, const std::byte* rows);

  const RowPieceContext* context_ = nullptr;
  std::shared_ptr<const OpenSegment> segment_;
  std::size_t stream_ = 0;
  std::vector<rowfile::GroupPlace> groups_;
  std::vector<rowfile::RowId> ids_;
  std::vector<std::byte> bytes_;
  std::vector<RowBatch> batches_;  ///< one per selection of the stream
};

}  // namespace weft::checkpoint
