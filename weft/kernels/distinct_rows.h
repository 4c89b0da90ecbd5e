/// The distinct rows of a batch, and what follows from their slots: where each id lies.
///
/// Ownership: ids, rows, places and slots are in memory of the context's device; lists of bags,
/// counts and shifts are on the host. Results are views into a job's buffers and stay valid until
/// these are used again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/rows.h"
#include "weft/layout/tiers.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// The U distinct rows of lists of ids. Places of a list lie behind those of the list before it.
struct DistinctRows {
  std::int64_t num_rows = 0;                  ///< U
  std::int64_t num_ids = 0;                   ///< of all lists
  const std::int64_t* rows = nullptr;         ///< [U] ascending
  const std::int32_t* places = nullptr;       ///< [num_ids] where in `rows` each id is
  std::span<const std::int64_t> shifts = {};  ///< id i of list l has place number i + shifts[l]
};

/// The memory of a list's distinct rows, kept from batch to batch.
class DistinctBuffers {
 public:
  explicit DistinctBuffers(Device& device) : rows_(device), places_(device) {}

  /// Where results of `ids` ids are written.
  struct Arrays {
    std::int64_t* rows = nullptr;
    std::int32_t* places = nullptr;
    std::int64_t* shifts = nullptr;
  };

  /// Room for the distinct rows of `ids` ids in `lists` lists.
  Arrays resize(std::int64_t ids, std::size_t lists) {
    const auto lengths = layout::distinct_lengths(ids);
    shifts_.resize(lists);
    return {.rows = rows_.resize_for(lengths.rows),
            .places = places_.resize_for(lengths.places),
            .shifts = shifts_.data()};
  }

 private:
  Buffer rows_;
  Buffer places_;
  std::vector<std::int64_t> shifts_;
};

/// Lists of one table. Ids lie in [0, rows), which may be more than 2^32.
struct DistinctJob {
  std::span<const Bags> lists;
  std::int64_t rows = 0;
  DistinctBuffers* buffers = nullptr;
  DistinctRows* distinct = nullptr;  ///< on the host: gets the result
};

/// Finds the distinct rows of all jobs; counts and shifts are there when it returns. Throws
/// Error(kConfig) for 2^31 - 1 ids of a table or more. Cost: on the CPU per id 8 bytes (16, where
/// the bits of a row and of an id's number exceed 64) sorted in ⌈bits of rows / 11⌉ passes, and 12
/// bytes written. One thread a table.
void find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs);

/// Places of ids, and the slots of the rows at these places.
struct PlaceSlots {
  std::int64_t count = 0;
  const std::int32_t* places = nullptr;  ///< [count]
  const std::int64_t* slots = nullptr;   ///< of the row at each place
  std::int64_t* out = nullptr;           ///< [count]
};

/// out[i] = slots[places[i]]
void slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs);

/// Rows that have slots, and some of them.
struct RowSlots {
  std::int64_t known = 0;
  const std::int64_t* known_rows = nullptr;  ///< [known] ascending, distinct
  const std::int64_t* slots = nullptr;       ///< [known]
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;  ///< [count] ascending
  std::int64_t* out = nullptr;         ///< [count]
};

/// out[i] is the slot of rows[i], or -1 where it is not among the known ones. Cost: both lists are
/// read once; where one is far longer than the other it is searched.
void slots_of_rows(Context& ctx, std::span<const RowSlots> jobs);

namespace cpu {
/// In one task pool, a task per job.
void find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs);
/// In one task pool.
void slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs);
void slots_of_rows(Context& ctx, std::span<const RowSlots> jobs);
}  // namespace cpu

namespace cuda {
/// The first waits for its counts; the others are enqueued on the context's stream.
void find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs);
void slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs);
void slots_of_rows(Context& ctx, std::span<const RowSlots> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void find_distinct_rows(Context& ctx, std::span<const DistinctJob> jobs);
void slots_of_places(Context& ctx, std::span<const PlaceSlots> jobs);
void slots_of_rows(Context& ctx, std::span<const RowSlots> jobs);
}  // namespace reference

}  // namespace weft::kernels
