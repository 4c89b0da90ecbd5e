/// SyncResiduals: what encoding has lost of the syncs of averaged replicas (coded_average.h), and
/// how a checkpoint sees it, of shards whose rows are all in memory. Others have ListedResiduals
/// (listed_residuals.h).
///
/// Memory     4 bytes per number of a row and its state, rows alike in all shards.
/// State      parameter "codecs.sync", kind "<table> <kind of the shard's item> of group <m>": the
///            shard's items (weft/embedding/table_shard.h) in fp32, once for every group. Owners of
///            rows follow from plan and groups, so it is of use to the same plan alone.
/// Threads    rows are touched inside a stage, by one task each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/embedding/table_shard.h"
#include "weft/kernels/row_copies.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::sharding {

inline constexpr const char* kSyncResidualParameter = "codecs.sync";

/// What syncs have lost, as state.
class ResidualState : public StateSource, public StateSink {};

/// The items of what group `group` has lost of a shard: those of the shard, in fp32.
std::vector<StateItem> residual_items(const embedding::TableShard& shard, std::int64_t group);

class SyncResiduals final : public ResidualState {
 public:
  /// Of group `group`. `shards`, of which those with a tier have nothing here, outlive it. clear()
  /// before anything else.
  SyncResiduals(Device& device,
                const std::vector<embedding::TableShard*>& shards,
                std::int64_t group);

  /// All become 0.
  void clear(Context& ctx);

  /// Floats of a row: its columns, then its state. 0 of a shard with a tier.
  [[nodiscard]] std::int64_t floats(std::size_t shard) const { return shards_[shard].floats; }

  /// Of all rows of a shard, on the device, for kernels: one row after the other.
  [[nodiscard]] float* values(std::size_t shard) const { return shards_[shard].values.as<float>(); }

  /// Appends the rows that have lost anything, counted within the shard's. Copies all to the host.
  void list_rows(Context& ctx, std::size_t shard, std::vector<std::int32_t>& out) const;

  [[nodiscard]] std::vector<StateItem> state_items() const override;
  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override;
  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override;

 private:
  struct Shard {
    const embedding::TableShard* rows = nullptr;
    std::int64_t floats = 0;
    Buffer values;  // [rows][floats]
  };

  /// Where an item lies.
  struct Place {
    std::size_t shard = 0;
    StateItem item;
    std::int64_t first = 0;  // of a row's floats
  };

  [[nodiscard]] static kernels::RowTable table_of(const Shard& shard);
  [[nodiscard]] kernels::RowCopy copy_of(const Place& place,
                                         std::int64_t row_begin,
                                         std::int64_t rows) const;

  std::vector<Shard> shards_;
  std::vector<Place> places_;  // by item
};

}  // namespace weft::sharding
