/// Private to checkpoint/: what ranks agree on before they write.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/agree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/row_shard.h"

namespace weft::checkpoint {

class LinkedRows;

/// What a rank has to write.
struct SaveSources {
  std::span<const StateSource* const> all;
  std::vector<RowShard> shards;    ///< of all sources that have rows for segments
  std::vector<std::size_t> first;  ///< of these the ones of which this rank is first holder

  explicit SaveSources(std::span<const StateSource* const> sources);

  /// Calls each(source, index, item) for items that this rank stores as blocks.
  template <typename Each>
  void for_each_block(const Each& each) const {
    auto shard = shards.begin();
    for (std::size_t s = 0; s < all.size(); ++s) {
      const RowShard* own = nullptr;
      if (shard != shards.end() && shard->source == s) {
        own = &*shard++;
      }
      const std::vector<StateItem> items = all[s]->state_items();
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (items[i].first_holder && !is_of_rows(own, i)) {
          each(*all[s], i, items[i]);
        }
      }
    }
  }

 private:
  static bool is_of_rows(const RowShard* shard, std::size_t item);
};

/// Bytes of the blocks that this rank will write.
std::int64_t bytes_of_blocks(const SaveSources& sources);

/// What a rank says before it is known what is saved.
struct RankOffer {
  std::int64_t shards = 0;         ///< of which it is first holder
  std::int64_t changed_bytes = 0;  ///< of rows that have changed, or of files with them, about
  std::uint64_t tables = 0;      ///< sum of hashes of the tables of which it has the first element
  std::uint64_t base = 0;        ///< Increments::base
  std::int64_t block_bytes = 0;  ///< of blocks that it writes
};

/// This rank's. Throws where `increments` leave out rows of the sources.
RankOffer offer_of(const SaveSources& sources,
                   const LinkedRows& links,
                   const Increments* increments);

/// What rank 0 decides.
struct SavePlan {
  std::string unfinished;          ///< directory of the checkpoint
  std::string prefix;              ///< of segments; empty = there are no rows
  std::optional<Manifest> parent;  ///< rank 0: to whose rows the changed ones are added
  bool has_parent = false;
  bool copies_blocks = false;  ///< they are few enough to be copied at the cut

  [[nodiscard]] std::string encode() const;
  void decode(const std::string& bytes);
};

/// The parent, if only changed rows are to be saved, on top of those that it names.
std::optional<Manifest> parent_to_extend(const SaveOptions& options,
                                         const Folder& folder,
                                         std::span<const RankOffer> offers);

}  // namespace weft::checkpoint
