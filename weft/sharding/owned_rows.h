/// OwnedRows: the rows of replicas that are averaged, cut into rounds and dealt to the groups that
/// own them (coded_average.h): the group whose number is the row's, counted in the shard, modulo M.
///
/// Ids        works on numbers of rows and lists of them, in host memory.
/// Memory     of touched rows 4 bytes each, and 8 · (M + 1) per block; reused from sync to sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/row_changes.h"
#include "weft/sharding/touched_rows.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

/// Rows of a shard that are averaged together: by their numbers, or their places in the shard's
/// list of touched rows.
struct RowBlock {
  std::size_t shard = 0;
  Range rows;
  std::size_t first_place = 0;   ///< its first among the places of all blocks
  std::size_t first_begin = 0;   ///< likewise
  std::size_t first_offset = 0;  ///< for who averages the block
};

class OwnedRows {
 public:
  /// What it needs to know of a shard.
  struct Shard {
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;  ///< of one row on the wire
  };

  /// `touched`: the rows to average, united before every cut(), or null for all. Outlives it.
  OwnedRows(std::size_t groups, const TouchedRows* touched);

  /// Cuts the rows of all shards into rounds of at most `round_bytes`, or one row, and deals them.
  void cut(Context& ctx, std::span<const Shard> shards, std::int64_t round_bytes);

  [[nodiscard]] std::size_t num_rounds() const { return round_ends_.size(); }

  /// The blocks of a round, once cut() has made them.
  [[nodiscard]] std::span<RowBlock> round(std::size_t number);

  /// The rows of a block that a group owns. Their slots are left to the caller.
  [[nodiscard]] kernels::RowChoice of(const RowBlock& block, std::size_t group) const;

 private:
  void deal(Context& ctx);
  void deal_block(const RowBlock& block);

  std::size_t groups_;
  const TouchedRows* touched_;
  std::vector<RowBlock> blocks_;
  std::vector<std::size_t> round_ends_;     // in blocks_
  std::vector<std::int32_t> places_;        // of touched rows in their list: by block and owner
  std::vector<std::int64_t> owner_begins_;  // [blocks][M + 1] in the block's places
};

}  // namespace weft::sharding
