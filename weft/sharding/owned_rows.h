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

/// Of rows that no list says: all rows of a shard are averaged.
inline constexpr std::size_t kAllRows = static_cast<std::size_t>(-1);

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
    std::int64_t row_bytes = 0;   ///< of one row on the wire
    std::size_t list = kAllRows;  ///< of the rows to average, among those of `touched`
    std::int64_t most_rows = 0;   ///< in a round, in one block; 0: any number
  };

  /// `touched`: lists of rows to average, united before every cut(); null where no shard has one.
  /// Outlives it.
  OwnedRows(std::size_t groups, const TouchedRows* touched);

  /// Cuts the rows of all shards into rounds of at most `round_bytes`, or one row, and deals them.
  /// `shards` stay until the next call.
  void cut(Context& ctx, std::span<const Shard> shards, std::int64_t round_bytes);

  [[nodiscard]] std::size_t num_rounds() const { return round_ends_.size(); }

  /// The blocks of a round, once cut() has made them.
  [[nodiscard]] std::span<RowBlock> round(std::size_t number);

  /// The rows of a block by their numbers, where its shard has a list.
  [[nodiscard]] std::span<const std::int32_t> listed(const RowBlock& block) const;

  /// The rows of a block that a group owns; of listed ones places are counted in listed(block).
  /// Their slots are left to the caller.
  [[nodiscard]] kernels::RowChoice of(const RowBlock& block, std::size_t group) const;

 private:
  [[nodiscard]] bool is_listed(const RowBlock& block) const {
    return shards_[block.shard].list != kAllRows;
  }

  void deal(Context& ctx);
  void deal_block(const RowBlock& block);

  std::size_t groups_;
  const TouchedRows* touched_;
  std::span<const Shard> shards_;
  std::vector<RowBlock> blocks_;
  std::vector<std::size_t> round_ends_;     // in blocks_
  std::vector<std::int32_t> places_;        // of touched rows in their list: by block and owner
  std::vector<std::int64_t> owner_begins_;  // [blocks][M + 1] in the block's places
};

}  // namespace weft::sharding
