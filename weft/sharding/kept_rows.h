/// KeptRows: what a codec of syncs keeps of a shard whose rows are not all in memory (memory.tier
/// lazy or ssd; coded_average.h), by row, wherever the row lies:
///
///   its value at the last sync, from before the first update behind that sync to the next one
///   what encoding has lost of it, as long as that is not 0
///
/// Of all other rows nothing is kept: their value at the last sync is what they are, and nothing of
/// them is lost. So a row that no update has touched takes no space here, and one that leaves a
/// cache leaves nothing behind.
///
/// Memory     layout::kept_row_bytes() on the device and kept_place_bytes() on the host, of the
///            most rows of which anything was ever kept at once.
/// Threads    one caller at a time, inside a stage; const calls from any thread.
/// Limits     fewer than 2^31 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/embedding/row_marks.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/rows.h"
#include "weft/layout/replicas.h"
#include "weft/sharding/row_index.h"
#include "weft/tensor/device.h"
#include "weft/tensor/reserved_buffer.h"

namespace weft::sharding {

/// What is left out, for negative controls of tests.
enum class KeptLeftOut : std::uint8_t {
  kNothing,
  kFirstValue,  ///< every update keeps the value before it, not the first behind a sync alone
  kLost,        ///< what was lost is forgotten at the end of its sync
};

class KeptRows {
 public:
  /// Keeps nothing yet. `floats`: numbers of a row of which losses are kept; 0 without error
  /// feedback. Device and shard outlive it. Throws Error(kResource) naming the table where there
  /// are no addresses, and so does keep() where there is no memory.
  KeptRows(Device& device, const embedding::TableShard& shard, std::int64_t floats);

  /// Keeps values of rows, counted within the shard and all different, from now on. Afterwards
  /// copies()[i] is the slot of rows[i], and fresh() are the places in `rows` of those whose value
  /// was not kept before: it is to be taken now.
  void keep(Context& ctx, std::span<const std::int32_t> rows);

  /// Valid until the next keep().
  [[nodiscard]] std::span<const std::int32_t> copies() const { return copies_; }

  [[nodiscard]] std::span<const std::int32_t> fresh() const { return fresh_; }

  /// After a sync of rows: their values are kept no longer, and what was lost of rows[i] where
  /// lost[i] says that anything was.
  void settle(std::span<const std::int32_t> rows, std::span<const std::uint8_t> lost);

  /// Of slot 0: [slots][cols] values of weights at the last sync, in halves for fp16 and bf16 rows
  /// and else in fp32; [slots][state floats]; and [slots][floats()] losses, null without feedback.
  [[nodiscard]] void* weights() const { return weights_.as<void>(); }

  [[nodiscard]] float* state() const { return state_.as<float>(); }

  [[nodiscard]] float* lost() const { return floats_ == 0 ? nullptr : lost_.as<float>(); }

  [[nodiscard]] std::int64_t floats() const { return floats_; }

  /// Appends the rows of which anything is lost, ascending, counted within the shard.
  void list_lost(std::vector<std::int32_t>& out) const;

  /// Copies what is lost of rows, counted within the shard, to `out` [rows][floats()] in host
  /// memory.
  void read_lost(std::span<const std::int64_t> rows, float* out) const;

  /// Writes it, of rows that are all different.
  void write_lost(std::span<const std::int64_t> rows, const float* in);

  /// The rows of which other numbers are lost than at the last mark_changes(); null before the
  /// first.
  [[nodiscard]] const embedding::RowMarks* changed() const {
    return changed_ ? &*changed_ : nullptr;
  }

  void mark_changes() { changed_.emplace(rows_); }

  /// Bytes of memory of the device and of the host.
  [[nodiscard]] std::int64_t bytes() const;

  /// For negative controls.
  void leave_out(KeptLeftOut what) { left_out_ = what; }

 private:
  static constexpr std::uint8_t kValue = 1;  ///< in marks_: the value of the last sync is kept
  static constexpr std::uint8_t kLost = 2;   ///< something is lost

  std::int32_t slot_of(std::int32_t row);
  void grow(Context& ctx);
  void set_lost(std::int32_t row, std::int32_t slot, bool is_lost);
  [[nodiscard]] kernels::RowTable lost_table() const;

  Device& device_;
  std::int64_t rows_;
  layout::SyncRow row_;
  std::int64_t floats_;
  std::string table_;
  ReservedBuffer weights_, state_, lost_;  // lost numbers of free slots are 0
  RowIndex index_;
  std::vector<std::uint8_t> marks_;   // [slots in use or free]
  std::vector<std::int32_t> free_;    // slots
  std::vector<std::int32_t> copies_;  // of the last keep()
  std::vector<std::int32_t> fresh_;
  std::optional<embedding::RowMarks> changed_;
  KeptLeftOut left_out_ = KeptLeftOut::kNothing;
};

}  // namespace weft::sharding
