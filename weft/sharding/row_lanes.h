/// Private to sharding/: lists of rows of several tables, with a vector each, on their way between
/// the ranks of a group. First the lengths of the lists travel, then the lists: per table a piece
/// of row numbers, one of vectors and, where the vectors are partial sums, one of nodes. A lane
/// whose lists are all empty is silent.
///
/// Lengths: a number takes the bits that hold the longest list which can be, a rule that both ends
/// know, the lowest first, the tables behind each other; 64 where there is no rule. Where no list
/// can have a row nothing is sent.
///
/// Memory: what has come is read where its sender holds it, where the communicator lends, and is
/// received into a buffer here where not. Nothing is allocated once the longest lists have been
/// seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/partial_sums.h"
#include "weft/embedding/table_shard.h"
#include "weft/tensor/buffer.h"

namespace weft::sharding {

/// [shards] columns of each.
std::vector<std::int64_t> columns_of(std::span<embedding::TableShard* const> shards);

class RowLanes {
 public:
  /// What the vectors are.
  enum class Vectors : std::uint8_t {
    kPartial,  ///< sums over a node of the tree of parts each, which travels too
    kWhole,    ///< one per row
  };

  /// `columns`: [tables] of their vectors. `bits`: [ranks][tables] of the length of a list that is
  /// for a rank (share_each()) or of one (share_own()), at most 64; empty: 64 of each. The
  /// communicator outlives it.
  RowLanes(comm::Communicator& comm,
           Device& device,
           std::vector<std::int64_t> columns,
           Vectors vectors,
           std::vector<std::uint8_t> bits = {});

  /// Begins an exchange of the lists own[tables], which go to all ranks: tells everybody how long
  /// they are. Then send(), the lane of this rank, and recv() are those of gather_lent(). Lists
  /// stay valid until that returns. Collective.
  void share_own(Context& ctx, std::span<const embedding::PartialRows> own);

  /// Begins one of the lists to[ranks][tables], each for one rank, this one too. Then lanes() and
  /// recv() are those of exchange_lent(). Collective.
  void share_each(Context& ctx, std::span<const embedding::PartialRows> to);

  [[nodiscard]] const comm::Lane& own_lane() const { return send_.front(); }

  [[nodiscard]] std::span<const comm::Lane> lanes() const { return send_; }

  [[nodiscard]] std::span<const comm::Lane> recv() const { return recv_; }

  /// The lists in the lanes that have come, [tables][ranks]; where they are whole without nodes.
  [[nodiscard]] std::span<const std::vector<embedding::PartialRows>> lists(
      std::span<const comm::Lane> arrived);

 private:
  [[nodiscard]] std::size_t tables() const { return columns_.size(); }

  [[nodiscard]] std::size_t pieces() const { return vectors_ == Vectors::kPartial ? 3 : 2; }

  [[nodiscard]] std::int64_t length_bytes(std::size_t rank) const;
  void write_lengths(std::size_t rank,
                     std::span<const embedding::PartialRows> lists,
                     std::byte* out) const;
  void read_lengths(std::size_t rank, const comm::Lane& lane, std::size_t from);
  void expect_lengths();
  void add_pieces(std::vector<comm::Piece>& to,
                  std::size_t table,
                  const embedding::PartialRows&) const;
  void describe_received();

  comm::Communicator& comm_;
  std::vector<std::int64_t> columns_;
  Vectors vectors_;
  Buffer received_;
  std::vector<std::uint8_t> bits_;    // [ranks][tables] of a length
  std::vector<std::int64_t> counts_;  // [ranks][tables] of what comes
  std::vector<std::byte> sent_lengths_, come_lengths_;
  std::vector<embedding::PartialRows> own_;                 // [tables] of what stays here
  std::vector<std::vector<comm::Piece>> send_pieces_;       // [ranks]; of a gather the first alone
  std::vector<std::vector<comm::Piece>> recv_pieces_;       // [ranks]
  std::vector<comm::Lane> send_, recv_;                     // [ranks]
  std::vector<std::vector<embedding::PartialRows>> lists_;  // [tables][ranks]
};

}  // namespace weft::sharding
