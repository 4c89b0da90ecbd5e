// Private to storage/: where the rows of a shard lie, by their numbers in the shard.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/at.h"
#include "weft/layout/tiers.h"
#include "weft/rowfile/layout.h"

namespace weft::storage {

/// Where one row lies, in 64 bits: nowhere; in a segment, at a place; or in the write buffer. Codes
/// of rows in segments sort by segment, then by place.
class PlaceCode {
 public:
  constexpr PlaceCode() = default;

  static constexpr PlaceCode in_segment(std::uint32_t segment, const rowfile::Place& place) {
    return PlaceCode(std::uint64_t{segment + 1} << 40 | std::uint64_t{place.block} << 12 |
                     place.row);
  }

  static constexpr PlaceCode in_buffer(std::uint32_t chunk, std::uint32_t row) {
    return PlaceCode(kBuffer << 40 | std::uint64_t{chunk} << 20 | row);
  }

  [[nodiscard]] constexpr bool is_nowhere() const { return bits_ == 0; }

  [[nodiscard]] constexpr bool is_buffered() const { return bits_ >> 40 == kBuffer; }

  [[nodiscard]] constexpr std::uint32_t segment() const {
    return static_cast<std::uint32_t>(bits_ >> 40) - 1;
  }

  [[nodiscard]] constexpr rowfile::Place place() const {
    return {static_cast<std::uint32_t>(bits_ >> 12) & (kMaxBlocks - 1),
            static_cast<std::uint32_t>(bits_) & (kMaxRowsOfGroup - 1)};
  }

  [[nodiscard]] constexpr std::uint32_t chunk() const {
    return static_cast<std::uint32_t>(bits_ >> 20) & (kMaxChunks - 1);
  }

  [[nodiscard]] constexpr std::uint32_t row() const {
    return static_cast<std::uint32_t>(bits_) & (kMaxRowsOfChunk - 1);
  }

  /// Whether two rows lie in the same group of a segment.
  [[nodiscard]] constexpr bool shares_group(const PlaceCode& other) const {
    return bits_ >> 12 == other.bits_ >> 12;
  }

  friend constexpr auto operator<=>(const PlaceCode&, const PlaceCode&) = default;

  static constexpr std::uint32_t kMaxSegments = (1U << 24) - 2;
  static constexpr std::uint32_t kMaxBlocks = 1U << 28;
  static constexpr std::uint32_t kMaxRowsOfGroup = 1U << 12;
  static constexpr std::uint32_t kMaxChunks = 1U << 20;
  static constexpr std::uint32_t kMaxRowsOfChunk = 1U << 20;

 private:
  static constexpr std::uint64_t kBuffer = (1U << 24) - 1;

  explicit constexpr PlaceCode(std::uint64_t bits) : bits_(bits) {}

  std::uint64_t bits_ = 0;
};

static_assert(rowfile::kBlockBytes < PlaceCode::kMaxRowsOfGroup + rowfile::kBlockHeaderBytes + 1);

/// Codes of rows 0 to rows - 1, at first nowhere. Takes memory for 32 rows when the first of them
/// gets a place: 8 bytes a row, and 4 for 32 of them. Not thread-safe.
class PlaceIndex {
 public:
  explicit PlaceIndex(std::int64_t rows);

  [[nodiscard]] PlaceCode get(std::int64_t row) const {
    const std::uint32_t page = page_of(row);
    return page == 0 ? PlaceCode() : (*slabs_[(page - 1) / kSlabPages])[entry_of(page, row)];
  }

  void set(std::int64_t row, PlaceCode code);

  /// Bytes of memory that it takes.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  static constexpr std::int64_t kPageRows = layout::kIndexPageRows;
  static constexpr std::uint32_t kSlabPages = layout::kIndexSlabPages;
  static constexpr std::int64_t kNodePages = layout::kIndexNodePages;

  using Slab = std::array<PlaceCode, kPageRows * kSlabPages>;

  [[nodiscard]] std::uint32_t page_of(std::int64_t row) const {
    const std::int64_t page = row / kPageRows;
    const auto& node = nodes_[at(page / kNodePages)];
    return node == nullptr ? 0 : node[at(page % kNodePages)];
  }

  static std::size_t entry_of(std::uint32_t page, std::int64_t row) {
    return (page - 1) % kSlabPages * at(kPageRows) + at(row % kPageRows);
  }

  std::int64_t rows_;
  std::vector<std::unique_ptr<std::uint32_t[]>> nodes_;  ///< numbers of pages from 1 on, 0: none
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::uint32_t pages_ = 0;
  std::int64_t node_bytes_ = 0;
};

}  // namespace weft::storage
