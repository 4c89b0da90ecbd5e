// Private to storage/: the segments of a store, with how many of their rows still hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/block_reads.h"

namespace weft::storage {

/// A segment that is open to be read; who reads it holds on to it, whatever becomes of the segment.
class OpenFile {
 public:
  OpenFile(io::BlockReads& reads, std::string path, io::OpenMode mode);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::int32_t number() const { return number_; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  io::BlockReads& reads_;
  const std::string path_;
  const std::int32_t number_;
};

/// Where a segment stands in the order of segments, in which of a row the last entry holds.
///
/// Rows that are written go to segments one after the other: turn 1, 2, ... Cleaning has segments
/// of its own; one that is opened while turn t is open comes before t, and takes rows of segments
/// before itself alone. A row that holds there has no entry in turn t or behind it, for that would
/// be newer; and what is written later comes to turn t or behind it. So entries of a row are in the
/// order in which they were written.
struct SegmentPosition {
  std::int64_t turn = 0;
  bool is_fresh = false;    ///< rows that were written, not moved
  std::int64_t number = 0;  ///< of all segments, as they were opened

  friend auto operator<=>(const SegmentPosition&, const SegmentPosition&) = default;
};

struct StoreSegment {
  std::string path;
  std::uint64_t key = 0;  ///< of its first stream (rowfile::name_stream())
  SegmentPosition position;
  std::shared_ptr<OpenFile> file;
  std::int64_t bytes = 0;       ///< of the file, once it is sealed; before, 0
  std::int64_t rows = 0;        ///< in it
  std::int64_t row_bytes = 0;   ///< of all its rows
  std::int64_t live_bytes = 0;  ///< of those that hold
  std::int64_t live_rows = 0;
  std::vector<std::int64_t> live_of_shard;
  int pins = 0;  ///< of seals

  [[nodiscard]] bool is_sealed() const { return bytes > 0; }

  /// The share of the file that its rows which hold take.
  [[nodiscard]] double live_share() const {
    return static_cast<double>(live_bytes) / static_cast<double>(row_bytes);
  }
};

/// A shard's row, as far as its segment counts it.
struct CountedRow {
  std::uint32_t shard = 0;
  std::int64_t bytes = 0;
};

/// Bounds of what sealed segments may take.
struct SpaceBounds {
  double factor = 0;
  std::int64_t segment_bytes = 0;
};

/// The most sealed segments of a store whose rows that hold take so many bytes, and the open ones.
/// Those that seals keep come on top.
std::int64_t most_segments(double live_bytes, const SpaceBounds& bounds);

/// The segments of a store by numbers, which are given again. Not thread-safe.
class StoreSegments {
 public:
  std::uint32_t add(StoreSegment segment);

  [[nodiscard]] StoreSegment& get(std::uint32_t slot) { return *slots_[slot]; }

  [[nodiscard]] const StoreSegment& get(std::uint32_t slot) const { return *slots_[slot]; }

  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(slots_.size()); }

  [[nodiscard]] bool has(std::uint32_t slot) const {
    return slot < slots_.size() && slots_[slot] != nullptr;
  }

  /// A row has been appended; `holds`: it is the last of its id.
  void append(std::uint32_t slot, const CountedRow& row, bool holds);

  /// A row holds no longer.
  void lose(std::uint32_t slot, const CountedRow& row);

  /// Takes away a sealed segment without pins and without rows that hold; none: nullopt.
  std::optional<StoreSegment> take_dead();

  /// The segment to be cleaned next; none: nullopt.
  [[nodiscard]] std::optional<std::uint32_t> victim(const SpaceBounds& bounds) const;

  /// In their order.
  [[nodiscard]] std::vector<std::uint32_t> in_order() const;

 private:
  std::vector<std::unique_ptr<StoreSegment>> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace weft::storage
