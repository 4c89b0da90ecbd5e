/// The draws of vectors that are rounded stochastically (weft/kernels/codec.h, "Rounding"): one
/// number a vector, made of the sample or the first part, and of a row or a place.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"

namespace weft::kernels {

/// Of the vectors of a block, which it numbers from ids and places. Ids and offsets are those of a
/// lookup, in memory of the device, or of the batch, in host memory, as are places and lists; a
/// device that cannot address the host's takes a copy.
struct VectorDraws {
  /// What a vector's number is made of.
  enum class Of : std::uint8_t { kNone, kBags, kSamples, kRows, kPlaces, kPartialSums };

  /// The draws of `vectors`, one behind the other.
  void number(Range vectors, std::int64_t* out) const;

  Of of = Of::kNone;
  std::int64_t first = 0;  ///< vector i is that with number first + i in the lists
  std::uint64_t key = 0;
  std::int64_t first_sample = 0;            ///< of the batch, in the global one
  const std::int32_t* places = nullptr;     ///< by number, in the batch; null: the number
  const std::int64_t* ids = nullptr;        ///< counted in the shard's rows
  const std::int64_t* offsets = nullptr;    ///< [bags + 1] into ids
  RowSet rows = {};                         ///< of the shard
  const std::int64_t* row_list = nullptr;   ///< in their place, of hot rows
  std::int64_t bags = 0;                    ///< of kPlaces
  std::span<const std::int32_t> runs = {};  ///< of kPartialSums: lengths, one behind the other,
  const std::int32_t* run_parts = nullptr;  ///< and the first part of each

 private:
  [[nodiscard]] std::int64_t row(std::int64_t id) const {
    return row_list == nullptr ? rows.row(id) : row_list[id];
  }

  void number_places(Range vectors, std::int64_t* out) const;
  void number_partial_sums(Range vectors, std::int64_t* out) const;
};

}  // namespace weft::kernels
