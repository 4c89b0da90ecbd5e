/// MemoryBacking: rows in host memory, below a cache in a faster memory. Rows that it does not hold
/// take no space: rows lie in pages of 64 neighbours, and a page has room for those that exist, or
/// up to seven more.
///
/// Reads and writes are copies and done when they return, so nothing is ever on its way. Callers
/// that touch pages of different stripes do not wait for each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "weft/storage/row_backing.h"

namespace weft::storage {

class MemoryBacking final : public RowBacking {
 public:
  /// Of rows of so many bytes each.
  explicit MemoryBacking(std::int64_t row_bytes) : row_bytes_(row_bytes) {}

  [[nodiscard]] std::int64_t row_bytes() const override { return row_bytes_; }

  std::unique_ptr<RowReads> make_reads() override;

  void write(std::span<const std::int64_t> rows, const std::byte* packed) override;

  void drain() override {}

  [[nodiscard]] std::int64_t rows_held() const override;

  /// In ascending order.
  void for_each_row(const RowsVisitor& visit) const override;

  /// Copies a row to `packed`, if it is held; returns whether it is.
  bool read(std::int64_t row, std::byte* packed) const;

  /// Bytes of rows and of the room beside them, without what finds a page.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  class Reads;

  static constexpr std::int64_t kPageRows = 64;
  static constexpr std::int64_t kRoom = 8;  // rows that a page grows by
  static constexpr std::size_t kStripes = 64;

  /// The rows of a page that exist lie behind each other in their order.
  struct Page {
    std::uint64_t exist = 0;  ///< bit r: row 64 · page + r
    std::unique_ptr<std::byte[]> rows;
  };

  struct Stripe {
    mutable std::mutex mutex;
    std::unordered_map<std::int64_t, Page> pages;
  };

  [[nodiscard]] const Stripe& stripe_of(std::int64_t page) const;
  std::byte* place(Page& page, std::int64_t number) const;

  std::int64_t row_bytes_;
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace weft::storage
