/// ListedResiduals: what encoding has lost of the syncs of a shard whose rows are not all in memory
/// (kept_rows.h), as state: the items that SyncResiduals has of other shards, of the same names. In
/// a checkpoint they are rows of which anything is lost, and a row that is not there has lost
/// nothing.
///
/// Threads    as StateSource and StateSink. Inside a stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/embedding/table_shard.h"
#include "weft/sharding/kept_rows.h"
#include "weft/sharding/sync_residuals.h"
#include "weft/tensor/row_cut.h"
#include "weft/tensor/state.h"

namespace weft::sharding {

class ListedResiduals final : public ResidualState, public RowState {
 public:
  /// Of group `group`. Both outlive it.
  ListedResiduals(const embedding::TableShard& shard, KeptRows& kept, std::int64_t group);

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
  void write_listed_state(std::size_t index,
                          std::span<const std::int64_t> rows,
                          std::int64_t col_begin,
                          std::int64_t col_end,
                          const void* in) override;

  [[nodiscard]] const RowState* row_state() const override { return this; }

  [[nodiscard]] RowState* row_sink() override { return this; }

  [[nodiscard]] Shape row_shape() const override;

  [[nodiscard]] bool is_sparse() const override { return true; }

  void for_each_row(StateRows which, const StateRowsVisitor& visit) const override;
  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override;
  void mark() override;

  /// Never called: jobs with averages do not save beside steps.
  std::unique_ptr<RowCut> cut(StateRows which, CopyRoom& room) override;

 private:
  [[nodiscard]] std::vector<std::int64_t> local_rows(std::span<const std::int64_t> rows) const;
  void write_columns(std::size_t index,
                     std::span<const std::int64_t> local,
                     Range cols,
                     const float* in);

  const embedding::TableShard& shard_;
  KeptRows& kept_;
  std::vector<StateItem> items_;
  std::vector<std::int64_t> firsts_;  // [items] of a row's floats
};

}  // namespace weft::sharding
