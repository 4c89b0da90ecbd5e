/// Who holds which block of a matrix, as rules: a regular cut over many ranks is one line of a plan
/// or of a manifest, however many ranks there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/parts.h"

namespace weft {

/// The block of a rank: rows x columns.
struct RankBlock {
  std::int64_t rank = 0;
  RowSet rows;  ///< a range, or every n-th
  Range cols;

  friend bool operator==(const RankBlock&, const RankBlock&) = default;
};

/// How a rule cuts its rows. kRange: piece i of them (weft/base/parts.h); kModulo: every count-th
/// from the i-th on; kCopy: not at all, every rank has all of them.
enum class CutBy : std::uint8_t { kRange, kModulo, kCopy };

/// The blocks of `count` ranks. Of one rank `rows` are its rows; of several their step is 1, and
/// rank number i of the rule, which is first_rank + i · rank_step, has the i-th part of them. Parts
/// may be empty. `cols` are those of all.
struct CutRule {
  RowSet rows;
  Range cols;
  std::int64_t first_rank = 0;
  std::int64_t rank_step = 1;
  std::int64_t count = 1;
  CutBy by = CutBy::kRange;

  /// The block of rank number `i` of the rule.
  [[nodiscard]] RankBlock block(std::int64_t i) const;

  /// How many blocks are not empty, and which rank number of the rule has the i-th of these.
  /// REQUIRES: is_sound().
  [[nodiscard]] std::int64_t blocks_with_rows() const;
  [[nodiscard]] std::int64_t with_rows(std::int64_t i) const;

  /// Whether block() can be called for all i without leaving 64 bits, and there are at most 2^20
  /// ranks: for rules of a file.
  [[nodiscard]] bool is_sound() const;

  friend bool operator==(const CutRule&, const CutRule&) = default;
};

/// The rule that has these blocks in this order, and beside them only empty ones; none where they
/// are no regular cut. They have equal columns, and none is empty.
std::optional<CutRule> rule_of(std::span<const RankBlock> blocks);

/// Rules for blocks of ranks: one for those of equal columns where they are a regular cut, else one
/// for each block. Empty blocks are left out. Cost: sorts them.
std::vector<CutRule> rules_of(std::vector<RankBlock> blocks);

}  // namespace weft
