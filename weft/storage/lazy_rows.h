/// LazyRows: the rows of a shard that exist, in the memory of its device; all others take no space.
///
/// A row gets a slot when a batch asks for it, and keeps it for good once an update, or a load, has
/// changed it. A slot of a row that no batch has changed is free again when the last batch that
/// asked for it has released it. Slots are numbered as they are needed; a place per row says which
/// it has, in pages that exist where some row of them has a slot.
///
/// Memory: slots (RowStore, which grows where it lies); 1 byte a slot; 16 KiB for each 4,096 rows
/// of which one has a slot, 8 bytes for each 4,096 rows. Threads: as Residency and RowTier; one
/// lock. Cost: of a row that exists, a load from its page per batch; a row that is made is written
/// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "weft/layout/tables.h"
#include "weft/spec/config.h"
#include "weft/storage/row_store.h"
#include "weft/storage/row_tier.h"
#include "weft/tensor/device.h"

namespace weft::storage {

class LazyRows final : public RowTier {
 public:
  /// Rows 0 to `rows` - 1 of `cols` columns; `make` makes their initial values. Takes no memory but
  /// for the list of pages. Throws Error(kResource) naming the table where there are no addresses,
  /// and so do calls that give rows slots where there is no memory.
  LazyRows(Device& device,
           const spec::Table& table,
           std::int64_t rows,
           std::int64_t cols,
           RowMaker make);
  ~LazyRows() override;

  std::unique_ptr<ResidentRows> make_batch() override;

  void drain() override {}

  [[nodiscard]] kernels::RowTable view() const override { return store_.view(); }

  [[nodiscard]] std::int64_t most_rows() const override { return rows_; }

  [[nodiscard]] std::int64_t bytes() const override;
  [[nodiscard]] TierCounts counts() const override;
  void for_each_row(const RowsVisitor& visit) const override;

  void for_each_unwritten_row(const RowsVisitor& visit) const override { for_each_row(visit); }

  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override;

 private:
  class Batch;
  /// The slot of each row of a page, and none: -1.
  using Page = std::vector<std::int32_t>;
  static constexpr std::int64_t kPageRows = layout::kPlacePageRows;
  static constexpr std::uint8_t kExists = 0x80;  ///< in marks_, beside the number of pins

  [[nodiscard]] std::int64_t slot_of(std::int64_t row) const;
  std::int64_t take_slot(std::int64_t row);
  void give_slot(std::int64_t row, std::int64_t slot);
  [[nodiscard]] bool exists(std::int64_t slot) const;

  Device& device_;
  std::int64_t rows_;
  RowMaker make_;
  RowStore store_;
  std::mutex fetching_;                       // a batch finds no row that another is making
  mutable std::mutex mutex_;                  // of all that follows
  std::vector<std::unique_ptr<Page>> pages_;  // null: no row of it has a slot
  std::vector<std::uint8_t> marks_;           // [slots in use or free] kExists, pins of others
  std::vector<std::int64_t> free_;            // slots
  TierCounts counts_;
};

}  // namespace weft::storage
