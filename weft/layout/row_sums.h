/// Who adds up the gradients of rows that all ranks of a group hold, data_parallel tables' and hot
/// rows': a rule, so that nobody keeps a table of it.
///
/// Notation: W ranks, T tables of which all hold copies, R rows of one of them.
///
///   gathered   every rank gets every rank's partial sums and adds them up itself
///   owned      a row has an owner, which gets its partial sums, adds them up and sends the sum to
///              all (weft/sharding/owned_sums.h)
///
/// The rows of a table are cut into W equal blocks of neighbours, block b being rank
/// (b + ⌊tW/T⌋) mod W's of table t: rows that are numbered by frequency begin at another rank in
/// each table. Pure functions of the configuration and the number of ranks.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"

namespace weft::layout {

/// The forms above.
enum class RowSums : std::uint8_t { kGathered, kOwned };

/// Groups of at most so many ranks gather.
inline constexpr std::int64_t kMostGathering = 8;

/// The form that a group of so many ranks has.
constexpr RowSums row_sums(std::int64_t ranks) {
  return ranks > kMostGathering ? RowSums::kOwned : RowSums::kGathered;
}

/// The blocks of one of the tables that a group adds up.
struct SumBlocks {
  std::int64_t rows = 0;   ///< R
  std::int64_t ranks = 1;  ///< W
  std::int64_t table = 0;  ///< t, counted among the T
  std::int64_t tables = 1;

  /// Rows of block b, which are some rank's alone. Blocks go through the rows in order.
  [[nodiscard]] Range block(std::int64_t b) const { return piece(rows, ranks, b); }

  /// The owner of block b.
  [[nodiscard]] std::int64_t owner(std::int64_t b) const {
    return (b + table * ranks / tables) % ranks;
  }

  /// The rows of which a rank is the owner.
  [[nodiscard]] Range owned(std::int64_t rank) const {
    return block((rank - table * ranks / tables + ranks) % ranks);
  }
};

}  // namespace weft::layout
