/// RowTier: the rows of a shard where not all of them lie in slots that kernels reach. It is a
/// Residency (what stages ask) with the memory of its slots and with the rows as state. Rows are
/// numbers in the shard; what a slot holds is nobody's business outside of it.
///
/// Existence   a row that no update and no load has changed does not exist: it takes no space, and
///             reads as its initial value. RowMaker makes that.
/// State       calls below the first line may come from any thread, at the same time and beside
///             fetch() of a batch, but not beside updates of the rows they are about: what they
///             read is the rows after the last release.
/// Determinism which rows lie in slots changes no bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/kernels/rows.h"
#include "weft/storage/residency.h"
#include "weft/storage/row_backing.h"
#include "weft/tensor/device.h"

namespace weft::storage {

/// Writes initial values of rows to slots of a table, as many of each. Lists are on the host; the
/// table is the tier's own, or one in host memory. From any thread.
using RowMaker = std::function<void(Context& ctx,
                                    const kernels::RowTable& table,
                                    std::span<const std::int64_t> rows,
                                    std::span<const std::int64_t> slots)>;

/// What a tier has counted since it was made. Rows are counted once per batch that asks for them,
/// and once more where they have lost their slots to one of make_inserted_batch().
struct TierCounts {
  std::int64_t asked = 0;    ///< distinct rows of batches
  std::int64_t hits = 0;     ///< had a slot
  std::int64_t read = 0;     ///< came from the slower memory
  std::int64_t made = 0;     ///< got their initial value, since nobody held them
  std::int64_t late = 0;     ///< found no slot before fetch_late()
  std::int64_t spilled = 0;  ///< found one outside of their set
  std::int64_t evicted = 0;  ///< left their slot
  std::int64_t written = 0;  ///< of these, changed rows that were written back

  friend bool operator==(const TierCounts&, const TierCounts&) = default;
};

class RowTier : public Residency {
 public:
  /// Where slots are, fixed for the tier's life. Numbers of rows are left to the caller.
  [[nodiscard]] virtual kernels::RowTable view() const = 0;

  /// The rows that may have slots at a time.
  [[nodiscard]] virtual std::int64_t most_rows() const = 0;

  /// Bytes of slots and of what says which row lies where, on this device and on the host.
  [[nodiscard]] virtual std::int64_t bytes() const = 0;

  /// What has been counted so far.
  [[nodiscard]] virtual TierCounts counts() const = 0;

  // ---- rows as state ----

  /// Visits the rows that exist.
  virtual void for_each_row(const RowsVisitor& visit) const = 0;

  /// Visits the rows that exist and are not as its RowBacking, if it has one, holds them.
  virtual void for_each_unwritten_row(const RowsVisitor& visit) const = 0;

  /// Reads rows, all different, to `packed`, in host memory. A row that does not exist is its
  /// initial value, and does not exist afterwards either.
  virtual void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const = 0;

  /// Writes rows, all different, which exist from then on.
  virtual void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) = 0;
};

}  // namespace weft::storage
