#include "weft/embedding/row_gradients.h"

#include <algorithm>
#include <span>

#include "weft/base/error.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_gradients.h"

namespace weft::embedding {

RowGradients::RowGradients(Device& device, TableShard& shard)
    : shard_(&shard),
      buffers_(device),
      sums_(device),
      partials_(device, shard.parts()),
      merge_places_(device) {
}

kernels::CoalesceJob RowGradients::coalesce_job(std::span<const kernels::GradientBlock> blocks) {
  state_ = State::kCoalesced;
  return {.blocks = blocks,
          .rows = shard_->rows().size(),
          .parts = shard_->parts(),
          .buffers = &buffers_,
          .runs = &runs_};
}

void RowGradients::coalesce(Context& ctx, std::span<const kernels::GradientBlock> blocks) {
  const std::pair<RowGradients*, std::span<const kernels::GradientBlock>> one(this, blocks);
  coalesce(ctx, std::span(&one, 1));
}

void RowGradients::coalesce(
    Context& ctx,
    std::span<const std::pair<RowGradients*, std::span<const kernels::GradientBlock>>> all) {
  if (all.empty()) {
    return;
  }
  std::vector<kernels::CoalesceJob>& jobs = all.front().first->jobs_.coalesces;
  jobs.clear();
  for (const auto& [gradients, blocks] : all) {
    jobs.push_back(gradients->coalesce_job(blocks));
  }
  kernels::coalesce(ctx, jobs);
  for (const auto& [gradients, blocks] : all) {
    gradients->shard_->resolve(gradients->runs_);
  }
}

void RowGradients::read_list(const std::int64_t* list, std::vector<std::int64_t>& out) const {
  out.resize(static_cast<std::size_t>(runs_.num_rows));
  Device& device = *sums_.device();
  Context ctx{.device = &device};
  device.copy_to_host(ctx, out.data(), list,
                      runs_.num_rows * static_cast<std::int64_t>(sizeof(std::int64_t)));
}

void RowGradients::read_unique_rows(std::vector<std::int64_t>& out) const {
  read_list(runs_.rows, out);
}

void RowGradients::read_slots(std::vector<std::int64_t>& out) const {
  read_list(runs_.slots, out);
}

void RowGradients::accumulate(Context& ctx, float factor) {
  RowGradients* const one = this;
  accumulate(ctx, std::span(&one, 1), factor);
}

void RowGradients::accumulate(Context& ctx, std::span<RowGradients* const> all, float factor) {
  if (all.empty()) {
    return;
  }
  std::vector<kernels::GradientSum>& jobs = all.front()->jobs_.sums;
  jobs.clear();
  for (RowGradients* const one : all) {
    if (one->state_ == State::kAccumulated) {
      continue;
    }
    WEFT_CHECK(one->state_ == State::kCoalesced, "table '{}': accumulate before coalesce",
               one->shard_->table().name);
    const std::int64_t cols = one->shard_->cols().size();
    jobs.push_back({.runs = one->runs_,
                    .cols = cols,
                    .parts = one->shard_->parts(),
                    .factor = factor,
                    .out = one->sums_.resize_for(layout::vectors(one->runs_.num_rows, cols))});
    one->state_ = State::kAccumulated;
  }
  kernels::sum_gradients(ctx, jobs);
}

void RowGradients::accumulate_partials(Context& ctx,
                                       std::span<RowGradients* const> all,
                                       Range own_parts) {
  if (all.empty()) {
    return;
  }
  std::vector<PartialSums::Work>& work = all.front()->jobs_.partials;
  work.clear();
  for (RowGradients* const one : all) {
    WEFT_CHECK(one->state_ == State::kCoalesced, "table '{}': accumulate_partials before coalesce",
               one->shard_->table().name);
    work.push_back(
        {.sums = &one->partials_, .runs = &one->runs_, .cols = one->shard_->cols().size()});
  }
  PartialSums::sum(ctx, work, own_parts);
}

/// One bag per partial sum: the places that some rank's sums need are counted up once.
void RowGradients::add_merge_blocks(std::span<const PartialRows> from_ranks, Jobs& jobs) {
  std::int64_t most = 0;
  for (const PartialRows& partial : from_ranks) {
    most = std::max(most, partial.count);
  }
  const auto places = layout::bag_offsets(most);
  if (places.count > places_) {
    places_ = places.count;
    jobs.counts.push_back({.out = merge_places_.resize_for(places), .count = places_});
  }
  merge_blocks_.clear();
  for (const PartialRows& partial : from_ranks) {
    merge_blocks_.push_back({.bags = {.ids = partial.rows,
                                      .offsets = merge_places_.as<const std::int64_t>(),
                                      .weights = nullptr,
                                      .bags = partial.count},
                             .pooled = false,
                             .grads = partial.vectors,
                             .grad_stride = shard_->cols().size(),
                             .parts = partial.nodes});
  }
  jobs.coalesces.push_back(coalesce_job(merge_blocks_));
}

void RowGradients::merge_partials(Context& ctx,
                                  std::span<RowGradients* const> all,
                                  std::span<const std::vector<PartialRows>> from_ranks) {
  if (all.empty()) {
    return;
  }
  Jobs& jobs = all.front()->jobs_;
  jobs.counts.clear();
  jobs.coalesces.clear();
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->add_merge_blocks(from_ranks[i], jobs);
  }
  if (!jobs.counts.empty()) {
    kernels::count_up(ctx, jobs.counts);
  }
  kernels::coalesce(ctx, jobs.coalesces);
  for (RowGradients* const one : all) {
    one->shard_->resolve(one->runs_);
  }
}

}  // namespace weft::embedding
