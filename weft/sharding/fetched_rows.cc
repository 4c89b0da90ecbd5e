#include "weft/sharding/fetched_rows.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/sharding/output_dist.h"

namespace weft::sharding {
FetchedRows::FetchedRows(const Routing& routing, Device& device, std::int64_t rank)
    : routing_(routing), own_parts_(routing.own_parts(rank)) {
  for (std::size_t t = 0; t < routing.fetches.size(); ++t) {
    tables_.push_back({.vectors = Buffer(device),
                       .rows = 0,
                       .buffers = kernels::RunBuffers(device),
                       .blocks = {},
                       .runs = {},
                       .sums = embedding::PartialSums(device, routing.parts)});
  }
}

void FetchedRows::prepare(const InputDist& input) {
  coalesced_ = false;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    table.rows = input.unique_rows(static_cast<std::int64_t>(t));
    table.vectors.resize_for<float>(table.rows * routing_.fetches[t].dim);
  }
}

Matrix<float> FetchedRows::vectors(std::int64_t fetch) const {
  const Table& table = tables_[at(fetch)];
  return matrix(table.vectors.as<float>(), table.rows, routing_.fetches[at(fetch)].dim);
}

void FetchedRows::pool(Context& ctx, const InputDist& input, const FeatureMatrices& outputs) {
  lookups_.clear();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    const Matrix<float> rows = vectors(static_cast<std::int64_t>(t));
    for (const std::int64_t f : routing_.fetches[t].features) {
      const IncomingBlock& block = input.incoming().fetched[at(f)];
      const Matrix<float> out = outputs.of(routing_.features[at(f)], f);
      lookups_.push_back({.weights = rows.data,
                          .weight_stride = 4 * rows.stride,
                          .dtype = DType::kFloat32,
                          .cols = rows.cols,
                          .bags = input.incoming().bags(block, block.lookup),
                          .pooled = routing_.features[at(f)].pooling != spec::Pooling::kNone,
                          .out = out.data,
                          .out_stride = out.stride});
    }
  }
  kernels::embedding_bag(ctx, lookups_);
}

void FetchedRows::add_blocks(std::size_t fetch,
                             const InputDist& input,
                             const FeatureMatrices& gradients) {
  std::vector<kernels::GradientBlock>& blocks = tables_[fetch].blocks;
  blocks.clear();
  for (const std::int64_t f : routing_.fetches[fetch].features) {
    const IncomingBlock& block = input.incoming().fetched[at(f)];
    const Matrix<float> grads = gradients.of(routing_.features[at(f)], f);
    blocks.push_back({.bags = input.incoming().bags(block, block.gradient),
                      .pooled = routing_.features[at(f)].pooling != spec::Pooling::kNone,
                      .grads = grads.data,
                      .grad_stride = grads.stride,
                      .parts = input.incoming().parts + block.parts_begin});
  }
}

void FetchedRows::coalesce(Context& ctx, const InputDist& input, const FeatureMatrices& gradients) {
  coalesces_.clear();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    add_blocks(t, input, gradients);
    coalesces_.push_back({.blocks = table.blocks,
                          .rows = std::max<std::int64_t>(table.rows, 1),
                          .parts = routing_.parts,
                          .buffers = &table.buffers,
                          .runs = &table.runs});
  }
  kernels::coalesce(ctx, coalesces_);
  coalesced_ = true;
}

void FetchedRows::sum_gradients(Context& ctx,
                                const InputDist& input,
                                const FeatureMatrices& gradients) {
  if (!coalesced_) {
    coalesce(ctx, input, gradients);
  }
  sums_.clear();
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    sums_.push_back({.sums = &table.sums, .runs = &table.runs, .cols = routing_.fetches[t].dim});
  }
  embedding::PartialSums::sum(ctx, sums_, own_parts_);
}

Matrix<float> FetchedRows::partial_gradients(std::int64_t fetch) const {
  const embedding::PartialSums& sums = tables_[at(fetch)].sums;
  return matrix(sums.vectors(), sums.rows().count, routing_.fetches[at(fetch)].dim);
}

}  // namespace weft::sharding
