#include "weft/cost/dense_memory.h"

#include <algorithm>
#include <cmath>

#include "weft/base/parts.h"
#include "weft/cost/dense.h"
#include "weft/cost/memory.h"
#include "weft/cost/reduce_memory.h"
#include "weft/cost/slice_memory.h"

namespace weft::cost {
namespace {

constexpr double kTileCols = 512.0;   // of a weight gradient
constexpr std::int64_t kSlice = 512;  // nn::kMaxSlice

/// Of one tile of weights, the largest.
double tile_floats(const std::vector<Linear>& linears) {
  double most = 0.0;
  for (const Linear& layer : linears) {
    most = std::max(most, round_up(largest_piece(layer.out, kTileRows, 16.0) *
                                       largest_piece(layer.in, kTileCols, kPanel),
                                   16.0));
  }
  return most;
}

double packed_bytes(const std::vector<Linear>& linears, double value) {
  const double unit = value < kFloatBytes ? 32.0 : 16.0;
  double bytes = 0.0;
  for (const Linear& layer : linears) {
    bytes += value * (round_up(layer.in, unit) * round_up(layer.out, kPanel) +
                      round_up(layer.out, unit) * round_up(layer.in, kPanel));
  }
  return bytes;
}

}  // namespace

DenseMemory dense_memory(const spec::Config& config, const DenseMemoryShape& shape) {
  const Range own = rank_parts(shape.parts, shape.ranks, shape.rank);
  const std::vector<Range> subtrees = maximal_subtrees(shape.parts, own);
  DenseMemory memory;
  std::vector<double> slices;  // samples of each
  double samples = 0.0;
  for (std::int64_t part = own.begin; part < own.end; ++part) {
    const std::int64_t of_part = part_samples(config.batch_size, shape.parts, part).size();
    const std::int64_t count = (of_part + kSlice - 1) / kSlice;
    for (std::int64_t i = 0; i < count; ++i) {
      slices.push_back(static_cast<double>(piece(of_part, count, i).size()));
    }
    samples += static_cast<double>(of_part);
  }
  const SliceMemory of_slices = slice_memory(config, shape.elements, slices);
  const std::vector<Linear>& layers = of_slices.layers;
  memory.slices = of_slices.operands;
  double bucket = 0.0;
  double biases = 0.0;
  for (const Linear& layer : layers) {
    bucket += round_up(layer.in * layer.out, 16.0) + (layer.bias ? round_up(layer.out, 16.0) : 0.0);
    biases += layer.bias ? layer.out : 0.0;
  }
  double subtree_slots = 1.0;
  for (const Range& subtree : subtrees) {
    subtree_slots = std::max(subtree_slots, static_cast<double>(tree_slots(subtree.size())));
  }
  const double one = block_bytes(kFloatBytes * bucket);
  memory.parameters = (2.0 + dense_state_floats(config.dense_optimizer.type)) * one +
                      reduce_memory({.parts = shape.parts,
                                     .ranks = shape.ranks,
                                     .rank = shape.rank,
                                     .threads = shape.threads,
                                     .lent = shape.lent,
                                     .hosts = shape.hosts,
                                     .wire = {.format = config.codecs.dense,
                                              .group = config.codecs.group_size,
                                              .error_feedback = config.codecs.error_feedback}},
                                    static_cast<std::int64_t>(bucket));
  memory.packed = block_bytes(packed_bytes(layers, stored_bytes(config)));
  const double sequences = static_cast<double>(std::count_if(
      config.sparse_features.begin(), config.sparse_features.end(),
      [](const spec::SparseFeature& f) { return f.pooling == spec::Pooling::kNone; }));
  const auto tasks = static_cast<double>(config.tasks.size());
  memory.batch =
      block_bytes(kFloatBytes * samples * static_cast<double>(config.dense_features.size())) +
      4.0 * block_bytes(kFloatBytes * samples * tasks) +
      block_bytes(8.0 * sequences * (samples + static_cast<double>(slices.size())));
  memory.lanes = std::min(static_cast<double>(shape.threads),
                          std::max(static_cast<double>(slices.size()), 1.0)) *
                 (of_slices.lane + block_bytes(kFloatBytes * subtree_slots * biases) +
                  block_bytes(kFloatBytes * subtree_slots * tile_floats(layers)));
  return memory;
}

}  // namespace weft::cost
