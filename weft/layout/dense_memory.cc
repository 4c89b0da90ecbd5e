#include "weft/layout/dense_memory.h"

#include <algorithm>
#include <array>

#include "weft/base/error.h"

namespace weft::layout {

std::int64_t parameter_floats(const DenseModel& model) {
  std::int64_t floats = 0;
  for (const LinearLayer& layer : model.layers()) {
    floats += parameter_floats(layer.shape.in * layer.shape.out);
    floats += layer.bias == Bias::kNone ? 0 : parameter_floats(layer.shape.out);
  }
  return floats;
}

std::span<const std::string_view> dense_states(spec::DenseOptimizerKind kind) {
  static constexpr std::array<std::string_view, 1> kAdagrad = {"sum"};
  static constexpr std::array<std::string_view, 2> kAdam = {"exp_avg", "exp_avg_sq"};
  switch (kind) {
    case spec::DenseOptimizerKind::kSgd:
      return {};
    case spec::DenseOptimizerKind::kAdagrad:
      return kAdagrad;
    case spec::DenseOptimizerKind::kAdam:
      return kAdam;
  }
  fail(ErrorCode::kInternal, "dense optimizer number {} does not exist", static_cast<int>(kind));
}

std::int64_t place_blocks(const DenseModel& model,
                          const SliceSize& slice,
                          std::vector<std::int64_t>& begins) {
  begins.clear();
  std::int64_t end = 0;
  for (const std::vector<BlockUse>& uses : model.blocks()) {
    begins.push_back(end);
    std::int64_t bytes = 0;
    for (const BlockUse& use : uses) {
      bytes = std::max(bytes, use.rows.count(slice) * use.cols * bytes_of(use.element));
    }
    end += round_up(bytes, kCacheLine);
  }
  begins.push_back(end);
  return round_up(end, kHugePage);
}

std::int64_t terms_bytes(const DenseModel& model, const Packing& packing, const SliceSize& slice) {
  std::vector<std::int64_t> begins;
  const auto length_of = [&](std::int64_t samples, const LayerShape& shape) {
    return gradient_operands(packing, model.element(), samples, shape).bytes();
  };
  return place_terms(model, slice, length_of, begins);
}

std::int64_t LaneScratch::counted_bytes() const {
  std::int64_t bytes = 0;
  for (const std::int64_t block :
       {products.left, products.out, products.grouped, products.sums, tile_sums, bias_sums}) {
    bytes += block_bytes(block);
  }
  return bytes;
}

LaneScratch lane_scratch(const DenseModel& model,
                         const Packing& packing,
                         std::span<const SliceSize> slices,
                         std::int64_t depth) {
  LaneScratch scratch{.bias_sums = bias_sum_floats(model.biases(), depth) * kFloatBytes};
  for (const DenseModel::LayerProduct& made : model.products()) {
    Product product = made.product;
    for (const SliceSize& slice : slices) {
      product.rows = made.rows.count(slice);
      scratch.products.include(scratch_of(packing, product));
    }
  }
  for (const LinearLayer& layer : model.layers()) {
    for (const GradientTile& tile : gradient_tiles(layer.shape)) {
      scratch.tile_sums = std::max(scratch.tile_sums, tile.sum_floats(depth) * kFloatBytes);
      for (const SliceSize& slice : slices) {
        scratch.products.include(
            scratch_of_tile(packing, model.element(), layer.rows.count(slice), layer.shape, tile));
      }
    }
  }
  return scratch;
}

std::int64_t BatchBuffers::counted_bytes() const {
  return block_bytes(dense) + 4 * block_bytes(labels) + block_bytes(offsets) +
         block_bytes(bad_rows) + block_bytes(totals);
}

BatchBuffers batch_buffers(const BatchCounts& counts) {
  return {.dense = counts.samples * counts.dense * kFloatBytes,
          .labels = counts.samples * counts.tasks * kFloatBytes,
          .offsets = counts.sequences * (counts.samples + counts.slices) *
                     static_cast<std::int64_t>(sizeof(std::int64_t)),
          .bad_rows = counts.slices * static_cast<std::int64_t>(sizeof(std::int64_t)),
          .totals = counts.parts * counts.tasks * kTotalsBytes};
}

std::int64_t gradient_tasks(const DenseModel& model) {
  std::int64_t tasks = 1;
  for (const LinearLayer& layer : model.layers()) {
    tasks += std::ssize(gradient_tiles(layer.shape));
  }
  return tasks;
}

}  // namespace weft::layout
