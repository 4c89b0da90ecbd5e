/// Random bits for the elements of a table's rows: 32 each, for the stochastic rounding of rows of
/// fp16 and bf16 (weft/tensor/dtype.h). They are a function of key, row, column and step, row and
/// column those of the whole table, so neither shards nor the order of rows change them.
#pragma once

#include <array>
#include <cstdint>

#include "weft/base/philox.h"

namespace weft {

/// How an element gets its bits from Philox. The numbers are those of numerics.row_draws and of
/// manifests.
enum class DrawRule : std::uint8_t {
  /// A word: number (column mod 4) of Philox(key; row, step · 2^20 + column/4), of ten rounds. Half
  /// of the work is for bits that bf16 and normal results in fp16 never look at. Jobs whose
  /// checkpoints have no `row_draws` were begun with it.
  kWord = 1,
  /// Half of a word: even columns get number (column/2 mod 4) of Philox(key; row, step · 2^20 +
  /// column/8), of ten rounds, and odd ones the same word rotated by 16 bits. The low 16 bits,
  /// which are all that rounding to bf16 and to normal numbers of fp16 takes, are an element's own.
  kHalfWord = 2,
  /// Half of a word as by kHalfWord, of Philox with seven rounds.
  kHalfWordOfSevenRounds = 3,
};

/// The rule of new jobs.
inline constexpr DrawRule kNewestDrawRule = DrawRule::kHalfWordOfSevenRounds;

/// Returns the rounds of Philox of a rule.
constexpr int rounds_of(DrawRule rule) {
  return rule == DrawRule::kHalfWordOfSevenRounds ? kFewestPhiloxRounds : kPhiloxRounds;
}

/// The draws of one table, of 2^20 · 4 columns at most. Pure; any thread.
struct RowDraws {
  /// Columns whose bits are made together.
  static constexpr std::int64_t kColumns = 8;

  std::uint64_t key = 0;  ///< random_key() of seed, purpose and table
  DrawRule rule = kNewestDrawRule;

  /// The bits of columns [first_col, first_col + 8), first_col a multiple of 8.
  [[nodiscard]] std::array<std::uint32_t, kColumns> bits(std::int64_t row,
                                                         std::uint64_t step,
                                                         std::int64_t first_col) const;
};

}  // namespace weft
