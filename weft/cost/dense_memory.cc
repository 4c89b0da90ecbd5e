#include "weft/cost/dense_memory.h"

#include <algorithm>
#include <cmath>

#include "weft/base/parts.h"
#include "weft/cost/codec.h"
#include "weft/cost/dense.h"
#include "weft/cost/memory.h"
#include "weft/cost/slice_memory.h"

namespace weft::cost {
namespace {

constexpr double kFloat = 4.0;
constexpr double kPanel = 64.0;      // columns of a packed matrix: kernels::kPanel
constexpr double kTileRows = 256.0;  // of a weight gradient, and columns
constexpr double kTileCols = 512.0;
constexpr double kCodedBlock = 4096.0;  // floats of sums that are encoded at a time
constexpr std::int64_t kSlice = 512;    // nn::kMaxSlice

double round_up(double x, double unit) {
  return std::ceil(x / unit) * unit;
}

/// The largest of equal pieces of at most `most`, cut at multiples of `unit`.
double tile(double count, double most, double unit) {
  return std::min(count, round_up(std::ceil(count / std::ceil(count / most)), unit));
}

/// Of one tile of weights, the largest.
double tile_floats(const std::vector<Linear>& linears) {
  double most = 0.0;
  for (const Linear& layer : linears) {
    most = std::max(
        most, round_up(tile(layer.out, kTileRows, 16.0) * tile(layer.in, kTileCols, kPanel), 16.0));
  }
  return most;
}

double packed_bytes(const std::vector<Linear>& linears, double value) {
  const double unit = value < kFloat ? 32.0 : 16.0;
  double bytes = 0.0;
  for (const Linear& layer : linears) {
    bytes += value * (round_up(layer.in, unit) * round_up(layer.out, kPanel) +
                      round_up(layer.out, unit) * round_up(layer.in, kPanel));
  }
  return bytes;
}

/// Rows of sums of which each rank has a slice: those that wait in the tree over all ranks' partial
/// sums, the total apart.
double waiting_sums(std::int64_t parts, std::int64_t ranks) {
  std::vector<Range> nodes;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (const Range& node : maximal_subtrees(parts, rank_parts(parts, ranks, rank))) {
      nodes.push_back(node);
    }
  }
  std::size_t next = 0;
  std::vector<int> depths;
  const auto leaf = [&](const Range& node, int) {
    const bool found = next < nodes.size() && nodes[next] == node;
    next += found ? 1 : 0;
    return found;
  };
  sum_tree(Range{0, parts}, 0, leaf, [&](int depth) { depths.push_back(depth); });
  int most = 0;
  for (std::size_t i = 0; i + 1 < depths.size(); ++i) {
    most = std::max(most, depths[i] + 1);
  }
  return most;
}

/// What the codec of sums adds: encoded slices that are sent, decoded ones of others, the sum and
/// its code, and with feedback residuals and a block for each thread. As weft/comm/coded_reduce.cc.
double coded_sums_bytes(const spec::Config& config,
                        const DenseMemoryShape& shape,
                        std::int64_t bucket) {
  const ReduceWire wire{.format = config.codecs.dense, .group = config.codecs.group_size};
  if (!wire.is_coded() || shape.ranks == 1) {
    return 0.0;
  }
  const std::int64_t own = piece(bucket, shape.ranks, shape.rank).size();
  double away = 0.0;    // encoded slices of others
  double others = 0.0;  // partial sums of others
  double own_terms = 0.0;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    const auto terms = static_cast<double>(
        maximal_subtrees(shape.parts, rank_parts(shape.parts, shape.ranks, rank)).size());
    if (rank == shape.rank) {
      own_terms = terms;
      continue;
    }
    others += terms;
    away += static_cast<double>(wire.bytes(piece(bucket, shape.ranks, rank).size()));
  }
  const double slice = kFloat * static_cast<double>(own);
  const double plain = block_bytes(own_terms * away) + block_bytes(others * slice) +
                       block_bytes(slice) + block_bytes(static_cast<double>(wire.bytes(own)));
  if (!config.codecs.error_feedback) {
    return plain;
  }
  const auto group =
      static_cast<double>(spec::is_grouped(wire.format) ? config.codecs.group_size : 1);
  return plain + block_bytes(own_terms * kFloat * static_cast<double>(bucket)) +
         block_bytes(slice) +
         block_bytes(static_cast<double>(shape.threads) * kFloat * round_up(kCodedBlock, group));
}

}  // namespace

DenseMemory dense_memory(const spec::Config& config, const DenseMemoryShape& shape) {
  const double value = config.model.compute == spec::Compute::kBf16 ? 2.0 : kFloat;
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
  const double one = block_bytes(kFloat * bucket);
  memory.parameters =
      (2.0 + dense_state_floats(config.dense_optimizer.type)) * one +
      block_bytes(static_cast<double>(subtrees.size()) * kFloat * bucket) +
      block_bytes(waiting_sums(shape.parts, shape.ranks) * kFloat *
                  static_cast<double>(
                      piece(static_cast<std::int64_t>(bucket), shape.ranks, shape.rank).size())) +
      coded_sums_bytes(config, shape, static_cast<std::int64_t>(bucket));
  memory.packed = block_bytes(packed_bytes(layers, value));
  const double sequences = static_cast<double>(std::count_if(
      config.sparse_features.begin(), config.sparse_features.end(),
      [](const spec::SparseFeature& f) { return f.pooling == spec::Pooling::kNone; }));
  const auto tasks = static_cast<double>(config.tasks.size());
  memory.batch = block_bytes(kFloat * samples * static_cast<double>(config.dense_features.size())) +
                 4.0 * block_bytes(kFloat * samples * tasks) +
                 block_bytes(8.0 * sequences * (samples + static_cast<double>(slices.size())));
  memory.lanes = std::min(static_cast<double>(shape.threads),
                          std::max(static_cast<double>(slices.size()), 1.0)) *
                 (of_slices.lane + block_bytes(kFloat * subtree_slots * biases) +
                  block_bytes(kFloat * subtree_slots * tile_floats(layers)));
  return memory;
}

}  // namespace weft::cost
