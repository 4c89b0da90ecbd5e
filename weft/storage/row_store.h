/// A store of rows in a device's memory: weights and optimizer state, which never part. It owns the
/// memory and says where a row lies; it computes nothing. Who reads or writes rows asks for their
/// slots, resolve(), and gives these to a kernel with view(): base and strides as a value, which
/// kernels alone index. In this store a row's slot is its number, so resolving costs nothing; a
/// store that keeps some of its rows elsewhere would bring them here.
///
/// Memory: one buffer of layout::shard_bytes(), from 2 MiB on with huge pages; not
/// initialised. A store that grows has addresses for all its rows, and memory for those before
/// capacity(). Threads: rows may be used from any thread, each by one at a time. Errors:
/// Error(kResource) naming the table where the memory is not to be had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/layout/tables.h"
#include "weft/spec/config.h"
#include "weft/storage/residency.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/reserved_buffer.h"

namespace weft::storage {

/// Returns the element type of rows of a configured type.
DType row_dtype(spec::RowDType dtype);

/// When a store takes memory: for all rows at once, or as it grows.
enum class StoreMemory : std::uint8_t { kWhole, kGrowing };

/// Rows 0 to `rows` - 1 of `cols` columns each, with the optimizer state of the table.
class RowStore {
 public:
  RowStore(Device& device,
           const spec::Table& table,
           std::int64_t rows,
           std::int64_t cols,
           StoreMemory memory = StoreMemory::kWhole);

  /// Rows that have memory: all, or those that grow() was asked for and some more.
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }

  /// Gives the first `rows` rows memory, at most all, where the store grows. Rows that had some
  /// stay where they are, and may be used meanwhile. Throws Error(kResource) naming the table.
  void grow(std::int64_t rows);

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] std::int64_t cols() const { return cols_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] std::int64_t state_floats() const { return state_floats_; }

  [[nodiscard]] std::int64_t row_bytes() const { return geometry_.row_bytes; }

  /// Of the memory that it has.
  [[nodiscard]] std::int64_t bytes() const;

  [[nodiscard]] std::int64_t weight_stride() const { return geometry_.weight_stride; }  ///< bytes

  [[nodiscard]] std::int64_t rest_stride() const { return geometry_.rest_stride; }  ///< bytes

  /// Where rows are, by slots. The numbers of rows in the whole table are left to the caller.
  [[nodiscard]] kernels::RowTable view() const {
    return {.weights = weights(),
            .weight_stride = geometry_.weight_stride,
            .state = state(),
            .state_stride = state() == nullptr ? 0 : geometry_.rest_stride,
            .low = low(),
            .low_stride = low() == nullptr ? 0 : geometry_.rest_stride,
            .dtype = dtype_,
            .cols = cols_,
            .dim = cols_};
  }

  /// The slots of rows, as many: the rows themselves, the same memory. Valid as long as it.
  [[nodiscard]] std::span<const std::int64_t> resolve(std::span<const std::int64_t> rows) const {
    return rows;
  }

  /// The same of rows in fewer bytes.
  [[nodiscard]] std::span<const std::int32_t> resolve(std::span<const std::int32_t> rows) const {
    return rows;
  }

  /// Bags of slots instead of rows, to be looked up; the same memory.
  [[nodiscard]] kernels::Bags resolve(const kernels::Bags& bags) const { return bags; }

  /// The slots of a range of rows.
  [[nodiscard]] Range resolve(Range rows) const { return rows; }

  /// Who gives rows their slots; null where all have one, as in this store.
  [[nodiscard]] Residency* residency() const { return residency_; }

  /// Lets `residency` see what batches ask of these rows, from the first fetch() of a batch on; it
  /// outlives all batches in flight. For tests, until a store has one of its own.
  void set_residency(Residency* residency) { residency_ = residency; }

  /// Of row 0; of split_bf16 rows the high halves.
  [[nodiscard]] std::byte* weights() const { return weights_; }

  /// Of row 0; null where there is no state.
  [[nodiscard]] std::byte* state() const { return state_; }

  /// Low halves of row 0; null but for split_bf16.
  [[nodiscard]] std::byte* low() const { return low_; }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  DType dtype_;
  std::int64_t state_floats_;
  layout::RowGeometry geometry_;
  std::string table_;
  Buffer memory_;                                                   // of kWhole
  std::unique_ptr<ReservedBuffer> growing_weights_, growing_rest_;  // of kGrowing; one, interleaved
  std::int64_t capacity_ = 0;
  std::byte* weights_ = nullptr;
  std::byte* state_ = nullptr;
  std::byte* low_ = nullptr;
  Residency* residency_ = nullptr;
};

}  // namespace weft::storage
