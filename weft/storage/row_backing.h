/// RowBacking: the slower of two memories, as a cache of rows sees it. It holds packed rows
/// (weft/layout/packed_rows.h) of one shard by their numbers in the shard; a row that it does not
/// hold has its initial value, which it does not know.
///
/// Order      a row that is read after write() has returned is the row that was written, whether or
///            not the write has landed.
/// Threads    all calls may come from any thread at the same time; a RowReads is used by one at a
///            time. Two writes of the same row do not come at the same time.
/// Errors     Error(kIo) naming table, file and what to do. After a write that has failed every
///            later call throws the same error: nothing is lost silently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "weft/tensor/row_files.h"

namespace weft::storage {

/// Called with numbers of rows, each once over all calls, in any order.
using RowsVisitor = std::function<void(std::span<const std::int64_t> rows)>;

/// Reads of one caller that are in flight together. Reused; allocates only to grow.
class RowReads {
 public:
  /// Waits for what is in flight.
  virtual ~RowReads() = default;

  /// Begins to read `rows`, all different, to `packed` [rows · row_bytes()], which is host memory
  /// and stays until wait(). Returns while reads are in flight, so that those of several tables
  /// overlap. `rows` stay as they are until wait().
  virtual void begin(std::span<const std::int64_t> rows, std::byte* packed) = 0;

  /// Returns when all rows are there. found[i] is 1 where the backing holds rows[i], else 0, and
  /// then nothing was written for it.
  virtual void wait(std::span<std::uint8_t> found) = 0;
};

class RowBacking {
 public:
  virtual ~RowBacking() = default;

  /// Bytes of a packed row.
  [[nodiscard]] virtual std::int64_t row_bytes() const = 0;

  /// Returns memory for one caller.
  virtual std::unique_ptr<RowReads> make_reads() = 0;

  /// Takes packed rows, all different, in place of what it held of them. They are copied before it
  /// returns, and land later; it blocks while there is no room for them.
  virtual void write(std::span<const std::int64_t> rows, const std::byte* packed) = 0;

  /// Returns when all rows that were written have landed.
  virtual void drain() = 0;

  /// Rows that it holds.
  [[nodiscard]] virtual std::int64_t rows_held() const = 0;

  /// Visits the rows that it holds, in an order in which reading them is fast. Nobody writes
  /// meanwhile.
  virtual void for_each_row(const RowsVisitor& visit) const = 0;

  /// The files in which they lie, if they do: checkpoints may link them.
  [[nodiscard]] virtual RowFiles* files() const { return nullptr; }
};

}  // namespace weft::storage
