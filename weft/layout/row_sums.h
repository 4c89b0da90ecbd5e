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

#include <algorithm>
#include <bit>
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

/// Bits of a number of at most `most`: none where it can only be 0.
constexpr std::int64_t count_bits(std::int64_t most) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(most)));
}

/// Bytes of numbers of so many bits in all, behind each other.
constexpr std::int64_t bits_bytes(std::int64_t bits) {
  return (bits + 7) / 8;
}

/// Whole subtrees of the parts of the rank that has most of them, among `ranks` ranks. O(ranks).
inline std::int64_t most_nodes(std::int64_t parts, std::int64_t ranks) {
  std::int64_t most = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto nodes = maximal_subtrees(parts, rank_parts(parts, ranks, r)).size();
    most = std::max(most, static_cast<std::int64_t>(nodes));
  }
  return most;
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
