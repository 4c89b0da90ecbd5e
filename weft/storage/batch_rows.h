/// BatchRows: the distinct rows that a batch reads or updates, and their slots: what a tier keeps
/// of a batch in flight (ResidentRows).
///
/// Rows of a list of bags are ids of [0, rows); their slots are given by the tier. Once all rows
/// have one, bags of slots can be had for lookups, and slots of rows for updates. Memory: buffers
/// grow to the longest batch, and are reused. Threads: one caller at a time. Cost: per id a sort
/// (kernels/distinct_rows.h) and 8 bytes written; per distinct row 16 bytes copied between host and
/// device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/distinct_rows.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::storage {

class BatchRows {
 public:
  explicit BatchRows(Device& device)
      : buffers_(device), slots_(device), ids_(device), some_(device) {}

  /// Finds the distinct rows of lists of ids in [0, rows). None has a slot then.
  void find(Context& ctx, std::span<const kernels::Bags> lists, std::int64_t rows);

  /// [U] ascending, on the host. Valid until the next find().
  [[nodiscard]] std::span<const std::int64_t> rows() const { return host_rows_; }

  /// [U] to be filled, on the host; -1 = none.
  [[nodiscard]] std::span<std::int64_t> slots() { return host_slots_; }

  /// Takes slots() as they are, all given, to the device, and finds those of all ids.
  void place(Context& ctx);

  /// As ResidentRows, after place().
  [[nodiscard]] kernels::Bags resolve(std::size_t list, const kernels::Bags& bags) const;
  [[nodiscard]] std::span<const std::int64_t> resolve(Context& ctx,
                                                      std::span<const std::int64_t> rows);

 private:
  kernels::DistinctBuffers buffers_;
  kernels::DistinctRows distinct_;
  std::vector<std::int64_t> host_rows_, host_slots_;
  Buffer slots_;  ///< [U] on the device
  Buffer ids_;    ///< [ids] the slot of each
  Buffer some_;   ///< of resolve()
};

}  // namespace weft::storage
