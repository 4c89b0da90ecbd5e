#include "weft/embedding/row_gradients.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/kernels/tasks.h"

namespace weft::embedding {

RowGradients::RowGradients(Device& device, TableShard& shard)
    : shard_(&shard),
      coalescer_(device),
      sums_(device),
      partials_(device, shard.parts()),
      merge_places_(device) {
}

void RowGradients::coalesce(std::span<const kernels::GradientBlock> blocks) {
  runs_ = coalescer_.run(blocks, shard_->rows().size(), shard_->parts());
  state_ = State::kCoalesced;
}

void RowGradients::coalesce(
    Context& ctx,
    std::span<const std::pair<RowGradients*, std::span<const kernels::GradientBlock>>> all) {
  kernels::run_blocks(
      ctx, static_cast<std::int64_t>(all.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) {
        const auto& [gradients, blocks] = all[static_cast<std::size_t>(i)];
        gradients->coalesce(blocks);
      });
}

void RowGradients::accumulate(Context& ctx, float factor) {
  if (state_ == State::kAccumulated) {
    return;
  }
  WEFT_CHECK(state_ == State::kCoalesced, "table '{}': accumulate before coalesce",
             shard_->table().name);
  const std::int64_t cols = shard_->cols().size();
  kernels::SparseUpdate update;
  update.table.cols = cols;
  update.runs = runs_;
  update.parts = shard_->parts();
  auto* const out = sums_.resize_for<float>(runs_.num_rows * cols);
  kernels::run_blocks(
      ctx, 1, [&](std::int64_t) { return kernels::update_tasks(runs_); },
      [&](std::int64_t, std::int64_t task) {
        const Range rows = kernels::update_task(runs_, task);
        kernels::sum_gradients(update, rows, out);
        if (factor != 1.0F) {
          std::transform(out + rows.begin * cols, out + rows.end * cols, out + rows.begin * cols,
                         [factor](float value) { return factor * value; });
        }
      });
  state_ = State::kAccumulated;
}

void RowGradients::accumulate_partials(Context& ctx, Range own_parts) {
  WEFT_CHECK(state_ == State::kCoalesced, "table '{}': accumulate_partials before coalesce",
             shard_->table().name);
  partials_.sum(ctx, runs_, shard_->cols().size(), own_parts);
}

void RowGradients::merge_partials(std::span<const PartialRows> from_ranks) {
  std::int64_t most = 0;
  for (const PartialRows& partial : from_ranks) {
    most = std::max(most, partial.count);
  }
  auto* const places = merge_places_.resize_for<std::int64_t>(most + 1);
  for (std::int64_t i = 0; i <= most; ++i) {
    places[i] = i;
  }
  merge_blocks_.clear();
  for (const PartialRows& partial : from_ranks) {
    merge_blocks_.push_back({.bags = {.ids = partial.rows,
                                      .offsets = places,
                                      .weights = nullptr,
                                      .bags = partial.count},
                             .pooled = false,
                             .grads = partial.vectors,
                             .grad_stride = shard_->cols().size(),
                             .parts = partial.nodes});
  }
  coalesce(merge_blocks_);
}

}  // namespace weft::embedding
