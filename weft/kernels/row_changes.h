/// What rows and their optimizer state have changed by since a common value, as codes (codec.h),
/// with what encoding loses kept for the next time: the average of replicas that send codes.
///
///   encode_row_changes   change = value - last + lost; its code; lost = change - decoded
///   average_row_changes  mean = (sum of the replicas' changes, in fp64, in their order) / M +
///   lost,
///                        rounded to fp32; its code; lost = mean - decoded; then as
///                        add_row_means()
///   add_row_means        value = last = last + decoded
///   take_row_values      last = value
///
/// Lost       becomes 0 where it is below 2^-26 of the last value, or below 2^-120, or not finite.
/// Rounding   of codes to nearest. The value is rounded once, of fp16 and bf16 rows stochastically,
///            with the bits of `draws`; `last` is the rounded value.
/// Stays      a mean that decodes to 0 leaves a number's bits. A number that would not be finite,
///            and a sum of squares that would be negative, stays as it was at `last`, and its
///            decoded mean counts as 0.
/// Vectors    each vector of a row is encoded by itself: groups of the codec begin at its column 0.
/// Ownership  rows, their copies and codes are in memory of the context's device; codes that have
///            arrived are in memory that it addresses. Lists of rows and places are host memory; a
///            device that cannot address it takes a copy. Jobs are the caller's, and are
///            read before a call returns. Jobs of one call have different rows.
/// Order      the bits of every device and number of threads are those of the plain loops.
/// Cost       reads rows, their copies and codes once and writes what changes; on the CPU a few
///            rows at a time, so that what lies between stays in the first-level cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/row_draws.h"
#include "weft/kernels/codec.h"
#include "weft/kernels/row_copies.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Some rows of a store: every step-th from `first` on, or those at places of a list.
struct RowChoice {
  std::int64_t count = 0;
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t first_slot = 0;           ///< of row `first`; the next one's is `step` more
  const std::int32_t* places = nullptr;  ///< [count] in the lists; null: every step-th
  const std::int32_t* rows = nullptr;    ///< list of their numbers
  const std::int32_t* slots = nullptr;   ///< list of where they are in the store
  const std::int32_t* copies = nullptr;  ///< list of where their copies are; null: at their numbers

  /// The number of the i-th, counted in the store's rows.
  [[nodiscard]] std::int64_t row(std::int64_t i) const {
    return places == nullptr ? first + i * step : std::int64_t{rows[places[i]]};
  }

  [[nodiscard]] std::int64_t slot(std::int64_t i) const {
    return places == nullptr ? first_slot + i * step : std::int64_t{slots[places[i]]};
  }

  /// Where the last common value of the i-th is, and what it has lost.
  [[nodiscard]] std::int64_t copy(std::int64_t i) const {
    return places == nullptr || copies == nullptr ? row(i) : std::int64_t{copies[places[i]]};
  }
};

/// Numbers of a row that are encoded as one vector: all columns of its weights, or some floats of
/// its state.
struct ChangeVector {
  RowCopy::Part part = RowCopy::Part::kWeights;
  bool squares = false;    ///< never negative
  std::int64_t first = 0;  ///< of the row's state
  std::int64_t cols = 0;
  std::int64_t lost = 0;  ///< its first of the numbers that a row has lost
};

/// Rows and the codes of their changes, or of their means.
struct RowChanges {
  Codec codec;     ///< rounds to nearest
  RowTable table;  ///< indexed by slots
  RowChoice rows;
  std::span<const ChangeVector> vectors;
  /// The last common values, a row's at RowChoice::copy() times its length: weights in halves for
  /// fp16 and bf16 rows, else in fp32; and state.
  void* last_weights = nullptr;
  float* last_state = nullptr;
  std::int64_t state_floats = 0;  ///< of a row
  float* lost = nullptr;          ///< likewise; null: what is lost is forgotten
  std::int64_t lost_floats = 0;   ///< of a row
  /// By place: becomes 1 where a row of a list has lost something, and else stays. Null: nobody
  /// asks. Host memory, which the device can address.
  std::uint8_t* flags = nullptr;
  /// The codes: of vector 0 of all rows, then of vector 1, without gaps. Written, and of
  /// add_row_means() read.
  std::byte* codes = nullptr;
  /// [1] what encoding clips is added to it, atomically. The host and the device can both address
  /// it.
  CodecClips* clips = nullptr;
  RowDraws draws = {};  ///< of rows of fp16 and bf16
  std::uint64_t step = 0;
};

/// Rows whose changes have come from all replicas.
struct ChangeAverage {
  RowChanges changes;
  /// [M] each replica's codes, as RowChanges::codes; null: this one, whose values are not encoded.
  std::span<const std::byte* const> arrived;
  /// [1] the numbers that stayed as they were are added to it, atomically, like clips.
  std::int64_t* kept = nullptr;
};

/// Encodes the changes of all jobs' rows.
void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs);

/// Averages all jobs' rows, encodes their means, and adds these to the rows.
void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs);

/// Adds means that have arrived to all jobs' rows; `lost` stays.
void add_row_means(Context& ctx, std::span<const RowChanges> jobs);

/// Makes the values of all jobs' rows their last common values. Uses table, rows, vectors and where
/// the last common values are, and nothing else of a job.
void take_row_values(Context& ctx, std::span<const RowChanges> jobs);

namespace cpu {
/// In one task pool.
void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs);
void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs);
void add_row_means(Context& ctx, std::span<const RowChanges> jobs);
void take_row_values(Context& ctx, std::span<const RowChanges> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs);
void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs);
void add_row_means(Context& ctx, std::span<const RowChanges> jobs);
void take_row_values(Context& ctx, std::span<const RowChanges> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void encode_row_changes(Context& ctx, std::span<const RowChanges> jobs);
void average_row_changes(Context& ctx, std::span<const ChangeAverage> jobs);
void add_row_means(Context& ctx, std::span<const RowChanges> jobs);
void take_row_values(Context& ctx, std::span<const RowChanges> jobs);
}  // namespace reference

}  // namespace weft::kernels
