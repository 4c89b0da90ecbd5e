/// Private to checkpoint/: the hash of rows that come by list (weft/checkpoint/state_hash.h has the
/// formula). All others have their initial values, which count zero.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/tensor/device.h"
#include "weft/tensor/packed_items.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// This stands in place of the number of a sum where an item belongs to none.
inline constexpr std::size_t kNoSum = static_cast<std::size_t>(-1);

/// A source says which rows are hashed by list: all that exist, where others take no space, or
/// those that somebody has written. The rest has its initial values.
enum class ListOf : std::uint8_t { kExisting, kWritten };

/// Rows of one source, hashed a batch at a time, by tasks. Refers to what it is made of.
class ListedRows {
 public:
  /// A thread's memory, which it keeps from task to task and from source to source: memory that is
  /// taken anew is often made of fresh pages, which cost more than hashing.
  struct Scratch {
    std::vector<std::byte> packed;
    std::vector<std::byte> initial;
    std::vector<std::byte> values;  ///< of an item in halves
    std::vector<std::byte> start;
  };

  /// `slots`: of each item the sum that it belongs to, or kNoSum.
  ListedRows(Context& ctx,
             const RowState& rows,
             ListOf list,
             const std::vector<StateItem>& items,
             const std::vector<std::size_t>& slots);

  /// Adds the words of all rows; a thread for each of `scratch`.
  void add_to(std::span<std::uint64_t> sums,
              std::span<Scratch> scratch,
              WorkProgress& progress) const;

 private:
  void hash(std::span<const std::int64_t> rows,
            std::span<std::uint64_t> sums,
            std::span<Scratch> scratch,
            WorkProgress& progress) const;

  void hash_some(std::span<const std::int64_t> rows,
                 Scratch& scratch,
                 std::vector<std::atomic<std::uint64_t>>& sums) const;

  RowsInPlace place_of(std::size_t i,
                       std::int64_t rows,
                       const std::vector<std::byte>& packed,
                       std::vector<std::byte>& copy) const;

  Context& ctx_;
  const RowState& rows_;
  ListOf list_;
  std::span<const StateItem> items_;
  std::vector<std::size_t> slots_;  ///< of these
  std::vector<PackedItem> places_;
  std::int64_t row_bytes_;
  std::int64_t task_rows_;
};

/// Adds the words of rows by list, source after source, by the threads of ctx.pool.
void add_listed(Context& ctx,
                std::span<const ListedRows> listed,
                std::span<std::uint64_t> sums,
                WorkProgress& progress);

}  // namespace weft::checkpoint
