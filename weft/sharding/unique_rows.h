/// Private to sharding/: the rows of one fetched table that the batch of a rank asks for, each
/// once, and in which of the rank's subtrees of parts each is needed.
///
/// Notation   U unique rows of the batch, over all features that read the table; N maximal whole
///            subtrees of the rank's parts ("nodes", base/parts.h), mostly one; R runs of parts,
///            each in one node and in one micro-batch (Routing::runs()): the nodes where there is
///            one micro-batch.
/// Places     unique rows are numbered by their first occurrence; an id's place is that number.
/// Entries    of a cut of rows, what is sent to its shards: R + N runs. Run r < R: the rows that
/// are
///            first needed in the r-th run of parts; run R + n: those of node n that an earlier
///            node has. So a vector comes back for each entry of the first R runs, each row once
///            and with the micro-batch that needs it first, and a partial gradient of its node goes
///            out for every entry. Partial gradients are numbered as embedding::PartialSums makes
///            them of the places: by place, then node. The rows of a run are in the order of their
///            places, or, where they travel packed, ascending.
/// Cost       per id one look into a hash table of 16 to 64 bytes per unique row; per unique row
///            about 50 bytes written; packed, per unique row 16 bytes sorted in a pass for 11 bits
///            of its number. One thread, tables in parallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/row_owner.h"

namespace weft::sharding {

class UniqueRows {
 public:
  UniqueRows(const Routing& routing, std::int64_t fetch, std::int64_t rank);

  /// Writes the place of every id of the table's features to `places`, which lie as the batch's
  /// values. Ids have been checked. Nothing is allocated once the longest batch has been seen.
  void find(const BatchView& batch, std::span<std::int64_t> places);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }

  /// [R + N] lengths of a cut's runs.
  [[nodiscard]] std::span<const std::int32_t> lengths(std::int64_t cut) const {
    return std::span(lengths_).subspan(at(cut * runs()), at(runs()));
  }

  /// Entries of a cut, and how many of them are of the first R runs.
  [[nodiscard]] std::int64_t entries(std::int64_t cut) const {
    return begins_[at(cut) + 1] - begins_[at(cut)];
  }

  [[nodiscard]] std::int64_t vectors(std::int64_t cut) const { return vectors_[at(cut)]; }

  /// Of each entry: its row, counted within the cut; its place; the number of its partial gradient.
  [[nodiscard]] const std::int64_t* ids(std::int64_t cut) const { return ids_.data() + begin(cut); }

  [[nodiscard]] const std::int32_t* places(std::int64_t cut) const {
    return places_.data() + begin(cut);
  }

  [[nodiscard]] const std::int32_t* gradients(std::int64_t cut) const {
    return gradients_.data() + begin(cut);
  }

  /// The rows of a cut as they travel; packed ones only of cuts that some other rank has.
  [[nodiscard]] std::span<const std::byte> wire_ids(std::int64_t cut) const {
    return std::span(wire_ids_).subspan(at(wire_begins_[at(cut)]), at(wire_bytes_[at(cut)]));
  }

 private:
  struct HashSlot {
    std::int64_t row = 0;
    std::uint32_t place = 0;
    std::uint32_t batch = 0;  ///< that wrote it; others are free
  };

  struct RowAndPlace {
    std::int64_t row = 0;
    std::int64_t place = 0;
  };

  [[nodiscard]] std::int64_t runs() const {
    return static_cast<std::int64_t>(runs_.size() + nodes_.size());
  }

  [[nodiscard]] std::int64_t begin(std::int64_t cut) const { return begins_[at(cut)]; }

  [[nodiscard]] std::size_t first_slot(std::int64_t row) const;
  void clear();
  std::size_t place_of(std::int64_t row);
  void grow_table();
  void sort_rows();
  template <typename Owner>
  void count_entries(const Owner& owner);
  void join_counts();
  void fill_entries();
  template <typename Id>
  void narrow_ids();
  void pack_ids();

  const Routing& routing_;
  const RowFetch& fetch_;
  std::int64_t rank_;
  std::int64_t id_bytes_;
  bool packed_;
  std::vector<Range> runs_;             // [R] of parts
  std::vector<Range> nodes_;            // [N]
  std::vector<std::size_t> run_nodes_;  // [R] the node of each
  RowOwner owner_;
  int table_bits_ = 6;
  std::vector<HashSlot> table_;  // 2^table_bits_ of them, at most half in use
  std::uint32_t batch_ = 0;
  std::vector<std::int64_t> rows_;             // [U]
  std::vector<std::uint64_t> row_nodes_;       // [U] bit n: needed in node n
  std::vector<std::int32_t> first_runs_;       // [U] the first of the R runs that needs it
  std::vector<RowAndPlace> order_;             // [U] ascending; empty unless packed
  std::vector<RowAndPlace> sorted_;            // [U] between two passes
  std::vector<RowPlace> owners_;               // [U]
  std::vector<std::int32_t> first_gradients_;  // [U] the number of its first partial gradient
  std::vector<std::int32_t> lengths_;          // [cuts][R + N]
  std::vector<std::int64_t> next_;             // [cuts][R + N] where the next entry goes
  std::vector<std::int64_t> begins_;           // [cuts + 1]
  std::vector<std::int64_t> vectors_;          // [cuts]
  std::vector<std::int64_t> ids_;              // [entries]
  std::vector<bool> sent_;                     // [cuts] some other rank has the cut
  std::vector<std::int64_t> wire_begins_, wire_bytes_;  // [cuts] of wire_ids_
  std::vector<std::byte> wire_ids_;
  std::vector<std::int32_t> places_;     // [entries]
  std::vector<std::int32_t> gradients_;  // [entries]
};

}  // namespace weft::sharding
