/// AverageSlots: where rows that are averaged lie, of shards that have not all rows in slots
/// (memory.tier lazy or ssd). An average goes by rounds; those rows of a round that are of such
/// shards are fetched and pinned for it, and count as changed afterwards: so they exist on all
/// groups alike.
///
/// Room        a round has at most half as many rows of a shard as have slots at a time, on the
///             group where these are fewest, but one at least: so every cache is large enough.
///             Pins of a batch ahead are no obstacle (weft/storage/residency.h, Groups).
/// Deadlocks   none: no fetch waits for a pin, and within a round nothing but the exchanges of the
///             average and fetches that have begun is waited for.
/// Exchanges   1 of 8 bytes per shard, before the first average.
/// Memory      per row of a round 28 bytes, and what a batch of the tier holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/storage/residency.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

class AverageSlots {
 public:
  /// `replicas`: the ranks that hold the same shards. `shards` the same on all of them. All outlive
  /// it.
  AverageSlots(comm::Communicator& replicas,
               Device& device,
               std::span<embedding::TableShard* const> shards);

  /// Whether rows of shard number `shard` have slots in a round alone.
  [[nodiscard]] bool has(std::size_t shard) const { return rows_[shard] != nullptr; }

  /// Finds most_rows(); does nothing the second time. Collective over `replicas`, inside a stage.
  void agree(Context& ctx);

  /// Rows of a shard in a round; equal on all ranks. REQUIRES: agree() has been called.
  [[nodiscard]] std::int64_t most_rows(std::size_t shard) const { return most_rows_[shard]; }

  /// Begins to fetch rows of a shard, ascending, at most most_rows(); once per shard and round.
  /// REQUIRES: has(shard).
  void begin(Context& ctx, std::size_t shard, std::span<const std::int32_t> rows);

  /// Gives all rows that have been begun their slots. Throws what ResidentRows does.
  void finish(Context& ctx);

  /// Slots of the rows of begin(), in their order, from finish() to release().
  [[nodiscard]] const std::int32_t* slots(std::size_t shard) const {
    return rows_[shard]->slots.data();
  }

  /// Gives up the pins of the round, whose rows have been written.
  void release();

 private:
  /// What a shard has in a round.
  struct Rows {
    explicit Rows(Device& device) : numbers(device), ends(device) {}

    std::unique_ptr<storage::ResidentRows> resident;
    bool is_begun = false;
    std::vector<std::int64_t> host;   // numbers, then slots
    std::vector<std::int32_t> slots;  // of the round
    Buffer numbers, ends;             // the one bag that they are
  };

  comm::Communicator& replicas_;
  Device& device_;
  std::vector<embedding::TableShard*> shards_;
  std::vector<std::unique_ptr<Rows>> rows_;  // [shards]; null: all rows are in slots
  std::vector<std::int64_t> most_rows_;      // [shards]; empty before agree()
  bool is_any_ = false;
};

}  // namespace weft::sharding
