/// First values of embedding rows: a pure function of (key, row, column), so that shards, ranks,
/// slots and the order of making them change nothing.
///
/// Columns 4j … 4j+3 of a row come from one Philox call with counter (row, j), row and column those
/// of the whole table. From its words w0 … w3 and the scale s:
///   uniform  s·(2u - 1), u = ⌊w / 2^8⌋ · 2^-24
///   normal   s·z; z0 = r·cos φ, z1 = r·sin φ, r = √(-2 ln((w0 + 1)·2^-32)), φ = 2π·w1·2^-32, and
///            z2, z3 from w2, w3: in fp64 by the series of weft/kernels/box_muller.h, then rounded
///   zero     0
/// No function of the C library has a part in it and nothing is fused: every target gives the same
/// bits. 16-bit rows get the fp32 value rounded to nearest, ties to even; split_bf16 rows both
/// halves.
/// Ownership: rows and lists of rows are in memory of the context's device.
/// Cost: writes every row and its state once. A core makes a uniform value in 1.3 cycles with
/// AVX-512, a normal one in 6. Of a row in a list the values are made in the caches and copied.
/// Source: Box and Muller, "A note on the generation of random normal deviates", 1958.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Distributions of first values, as above.
enum class InitialRule : std::uint8_t { kZero, kUniform, kNormal };

/// Rows of a table that are to be written, and their rule. The first column is a multiple of 16.
/// Of a table whose rows lie in order `rows` are these, and their slots. Of one that holds some
/// rows `numbers` and `slots` are lists, and `rows` are places in both.
struct InitialRows {
  RowTable table;  ///< `state` may be null
  Range rows;      ///< slots, which are rows here; or places in the lists
  /// The whole table's number, or the raw 64-bit id, of the row at each place; null: the table's
  /// whole_row() of the place.
  const std::int64_t* numbers = nullptr;
  /// Where the row at each place is written, all different; null: the place is the slot.
  const std::int64_t* slots = nullptr;
  InitialRule rule = InitialRule::kUniform;
  std::uint64_t key = 0;  ///< of Philox
  float scale = 1.0F;
  float state = 0.0F;             ///< written to all of a row's state
  std::int64_t state_floats = 0;  ///< per row

  /// The whole table's number of the row at a place, by which its values are made.
  [[nodiscard]] std::int64_t number_at(std::int64_t place) const {
    return numbers != nullptr ? numbers[place] : table.whole_row(place);
  }

  /// Where the row at a place is written.
  [[nodiscard]] std::int64_t slot_at(std::int64_t place) const {
    return slots != nullptr ? slots[place] : place;
  }
};

/// Writes the rows of all jobs: values and state.
void set_initial_rows(Context& ctx, std::span<const InitialRows> jobs);

namespace cpu {
/// In one task pool, whose threads so write the pages first that they will work on.
void set_initial_rows(Context& ctx, std::span<const InitialRows> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void set_initial_rows(Context& ctx, std::span<const InitialRows> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void set_initial_rows(Context& ctx, std::span<const InitialRows> jobs);
}  // namespace reference

}  // namespace weft::kernels
