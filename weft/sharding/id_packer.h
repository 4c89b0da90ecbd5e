/// Private to sharding/: the asking side of the exchange of ids. A batch is checked, counted and
/// cut into slots.
///
/// Features of tables of this set go one of four ways. In place: served here and whole, only
/// checked. Whole: bags to one or several shards, some of them elsewhere; lengths and ids are
/// narrowed once, and all shards are sent the same memory. Split: every id to the cut of rows that
/// has its row, in two passes over runs of bags, one that counts and one that fills; all shards of
/// a cut are sent the same memory, and ids of hot rows are kept. Fetched: the rows of all
/// features of a table, each once (unique_rows.h), and the place of each id among them. Cost   one
/// pass over the ids to check them; per id that is sent 12 to 24 bytes moved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/row_owner.h"
#include "weft/sharding/task_list.h"
#include "weft/sharding/unique_rows.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

class IdPacker {
 public:
  IdPacker(const Routing& routing, std::int64_t rank);

  /// Throws Error(kData) naming feature, sample and table for an id outside its table. The batch
  /// must stay as it is until the next call.
  void pack(ThreadPool& pool, const BatchView& batch);

  [[nodiscard]] std::int64_t ids(const SlotAddress& address) const { return sent(address).ids; }

  [[nodiscard]] SlotCounts counts(const SlotAddress& address) const;

  /// As InputDist::sent_vectors and sent_rows.
  [[nodiscard]] std::int64_t vectors(const SlotAddress& address) const {
    return sent(address).vectors;
  }

  [[nodiscard]] const std::int32_t* rows(const SlotAddress& address) const;

  /// As InputDist::sent_gradients and sent_gradient_rows.
  [[nodiscard]] std::int64_t gradients(const SlotAddress& address) const;
  [[nodiscard]] const std::int32_t* gradient_rows(const SlotAddress& address) const;

  /// As InputDist::sent_row_ids and sent_runs.
  [[nodiscard]] const std::int64_t* row_ids(const SlotAddress& address) const;
  [[nodiscard]] std::span<const std::int32_t> runs(const SlotAddress& address) const;

  /// Of a fetched table.
  [[nodiscard]] std::int64_t unique_rows(std::int64_t fetch) const {
    return unique_[static_cast<std::size_t>(fetch)].count();
  }

  /// As the batch's values; of fetched tables' features the place of each id, else undefined.
  [[nodiscard]] std::span<const std::int64_t> places() const { return places_; }

  /// The lane to another rank: per slot that it serves lengths, ids and, if weighted, weights.
  [[nodiscard]] std::span<const comm::Piece> lane(std::int64_t server) const {
    return pieces_[static_cast<std::size_t>(server)];
  }

  /// The block of a slot of a split feature or of a fetched table that this rank serves for itself.
  [[nodiscard]] const IncomingBlock& own_block(const SlotAddress& address) const {
    return own_blocks_[own_index(address)];
  }

  /// Of the own blocks.
  [[nodiscard]] std::span<const std::int64_t> own_ids() const {
    return {own_ids_.data(), static_cast<std::size_t>(num_own_ids_)};
  }

  [[nodiscard]] std::span<const std::int64_t> own_offsets() const {
    return {own_offsets_.data(), static_cast<std::size_t>(num_own_offsets_)};
  }

  [[nodiscard]] std::span<const float> own_weights() const {
    return {own_weights_.data(),
            std::min(own_weights_.size(), static_cast<std::size_t>(num_own_ids_))};
  }

 private:
  enum class Path : std::uint8_t { kInPlace, kWhole, kSplit, kFetched };

  /// A slot's part of the send buffer, in bytes.
  struct SentSlot {
    std::int64_t lengths_at = 0;
    std::int32_t length_bytes = 4;  ///< of a length, once all are known
    std::int64_t ids_at = 0;
    std::int64_t weights_at = -1;  ///< -1: the batch's own; of a split feature: not sent
    std::int64_t ids = 0;
    std::int64_t vectors = 0;
    std::int64_t rows_at = -1;  ///< into rows_; -1: vector i belongs to bag i
  };

  /// A cut of a split feature's rows of which this rank holds a shard, or the hot rows; only one,
  /// as those of the same rows are on different ranks.
  struct OwnCut {
    std::int64_t row_cut = 0;
    SlotAddress address;
  };

  /// What a task has for one cut of rows; once joined, what the tasks before it have, and from
  /// there on the places that it fills.
  struct alignas(64) ShardCount {  // tasks next to each other share no cache line
    std::int64_t first_id = 0;     ///< of the task, once joined
    std::int64_t first_bag = 0;
    std::int64_t ids = 0;
    std::int64_t bags = 0;  ///< non-empty
    std::int64_t last_bag = -1;
  };

  struct FeatureCut {
    Path path = Path::kInPlace;
    RowOwner owner;                  ///< of kSplit
    std::vector<OwnCut> own;         ///< of kSplit
    std::int64_t shards = 1;         ///< cuts of rows: counts of a task
    std::int64_t writers_begin = 0;  ///< of kSplit, into writers_
    // Of the batch in hand:
    std::int64_t bags_per_task = 1;
    std::int64_t tasks = 0;
    std::int64_t counts_begin = 0;  ///< into counts_: [tasks][shards]
  };

  /// Where a split feature's ids of one cut of rows go.
  struct Writer {
    std::int32_t* lengths = nullptr;  ///< [B]
    std::byte* ids = nullptr;         ///< of the feature's width
    float* weights = nullptr;
    std::int32_t* rows = nullptr;
  };

  /// In own_blocks_.
  [[nodiscard]] std::size_t own_index(const SlotAddress& address) const {
    const std::size_t before =
        address.server == rank_ ? 0 : routing_.served[static_cast<std::size_t>(rank_)].size();
    return before + static_cast<std::size_t>(address.slot);
  }

  [[nodiscard]] const SentSlot& sent(const SlotAddress& address) const {
    return sent_[static_cast<std::size_t>(address.server)][static_cast<std::size_t>(address.slot)];
  }

  SentSlot& sent(const SlotAddress& address) {
    return sent_[static_cast<std::size_t>(address.server)][static_cast<std::size_t>(address.slot)];
  }

  [[nodiscard]] const FeatureRoute& route(std::int64_t f) const {
    return routing_.features[static_cast<std::size_t>(f)];
  }

  /// Of a feature's ids on the wire.
  [[nodiscard]] std::int64_t id_bytes(std::int64_t f) const {
    return routing_.slot(route(f).slots.front()).id_bytes;
  }

  [[nodiscard]] JaggedView bags_of(std::int64_t f) const { return batch_.sparse.feature(f); }

  [[nodiscard]] Range task_bags(const FeatureCut& cut, std::int64_t task) const;
  void cut_tasks();
  void lay_out_whole();
  void check_task(std::int64_t f, std::int64_t task);
  void check_ids(std::int64_t f, Range ids) const;
  void pack_whole(std::int64_t f, Range bags, ShardCount& count);
  void count_split(std::int64_t f, Range bags, std::span<ShardCount> counts) const;
  void join_counts();
  ShardCount join_shard(const FeatureCut& cut, std::int64_t shard);
  void lay_out_split(std::int64_t f);
  [[nodiscard]] const OwnCut* own_cut(const FeatureCut& cut, std::int64_t row_cut) const;
  void lay_out_own(const SlotAddress& address, const ShardCount& total);
  void make_writers(std::int64_t f);
  void fill_task(std::int64_t f, std::int64_t task);

  template <bool kSequence, typename Owner, typename StoreId>
  void split_bags(std::int64_t f,
                  Range bags,
                  std::span<ShardCount> places,
                  const Owner& owner,
                  const StoreId& store);
  void fill_split(std::int64_t f, Range bags, std::span<ShardCount> places);
  void fill_own(std::int64_t f, Range bags, const OwnCut& cut, const ShardCount& place);
  void list_rows(std::int64_t f, Range bags, std::int64_t place);
  void narrow_lengths_of(std::int64_t f);
  void find_unique(ThreadPool& pool);
  void lay_out_fetched(std::int64_t fetch);
  void fill_own_fetched(std::int64_t fetch);

  [[nodiscard]] const UniqueRows& unique(const Slot& slot) const {
    return unique_[static_cast<std::size_t>(slot.fetch)];
  }

  [[nodiscard]] std::int64_t row_cut(const Slot& slot) const {
    return routing_.fetches[static_cast<std::size_t>(slot.fetch)].row_cut_of(slot);
  }

  void add_fetched_pieces(const Slot& slot, std::vector<comm::Piece>& pieces) const;
  void describe_lanes();
  std::int64_t take_bytes(std::int64_t bytes);

  const Routing& routing_;
  std::int64_t rank_;
  bool weighted_ = false;  // some slot is
  BatchView batch_;
  std::vector<FeatureCut> cuts_;       // [F]
  TaskList check_tasks_, fill_tasks_;  // of features
  std::vector<ShardCount> counts_;
  std::vector<Writer> writers_;
  std::vector<std::vector<SentSlot>> sent_;  // [W + 1][slots]
  std::vector<std::byte> bytes_;             // what is sent
  std::int64_t num_bytes_ = 0;
  std::vector<std::int32_t> rows_;
  std::int64_t num_rows_ = 0;
  std::vector<UniqueRows> unique_;                // [fetches]
  std::vector<std::int64_t> places_;              // as the batch's values
  std::vector<std::vector<comm::Piece>> pieces_;  // [W]
  std::vector<IncomingBlock> own_blocks_;         // [own slots], [replicated slots]
  std::vector<std::int64_t> own_ids_, own_offsets_;
  std::vector<float> own_weights_;
  std::int64_t num_own_ids_ = 0, num_own_offsets_ = 0;
};

}  // namespace weft::sharding
