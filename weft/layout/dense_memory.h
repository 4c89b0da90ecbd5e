/// Lengths of the buffers of a training step's dense side on one rank: weft/nn, weft/optim and
/// weft/train allocate by them, the planner adds them up.
///
/// Notation: B samples of the rank, b of a slice; p floats of parameters.
/// Plain values and pure functions; bytes where nothing else is said.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/layout/dense_model.h"
#include "weft/layout/products.h"
#include "weft/spec/config.h"

namespace weft::layout {

/// Samples of a slice at most: a product of more rows reads the weights less often, slices of fewer
/// keep more threads busy and their activations in the caches.
inline constexpr std::int64_t kMaxSlice = 512;

/// Slices into which so many samples of a part are cut, all of about the same size.
constexpr std::int64_t num_slices(std::int64_t samples) {
  return (samples + kMaxSlice - 1) / kMaxSlice;
}

/// Floats that a parameter has in the buffer of all: whole cache lines.
constexpr std::int64_t parameter_floats(std::int64_t count) {
  return round_up(count, kCacheLine / kFloatBytes);
}

/// The same of all weights and biases.
std::int64_t parameter_floats(const DenseModel& model);

/// What an optimizer keeps per weight, in order: {}, {"sum"} or {"exp_avg", "exp_avg_sq"}.
std::span<const std::string_view> dense_states(spec::DenseOptimizerKind kind);

/// Where the blocks of a slice lie in the memory of a thread, one after the other. Sets `begins` to
/// [blocks + 1] offsets, and returns the length of that memory: whole huge pages.
std::int64_t place_blocks(const DenseModel& model,
                          const SliceSize& slice,
                          std::vector<std::int64_t>& begins);

/// Where a slice keeps what the gradients need of it: of every layer the operands of its weights'
/// gradient, length_of(samples, shape) bytes of whole cache lines, then the gradients of all
/// biases. As place_blocks(); `begins` has [layers + 1].
template <typename LengthOf>
std::int64_t place_terms(const DenseModel& model,
                         const SliceSize& slice,
                         const LengthOf& length_of,
                         std::vector<std::int64_t>& begins) {
  begins.clear();
  std::int64_t end = 0;
  for (const LinearLayer& layer : model.layers()) {
    begins.push_back(end);
    end += length_of(layer.rows.count(slice), layer.shape);
  }
  begins.push_back(end);
  return round_up(end + model.biases() * kFloatBytes, kHugePage);
}

/// Of a slice, where products read `packing`: what place_terms() returns for the CPU's operands.
std::int64_t terms_bytes(const DenseModel& model, const Packing& packing, const SliceSize& slice);

/// Memory of a thread beside its blocks: each grows to the longest need.
struct LaneScratch {
  ProductScratch products = {};
  std::int64_t tile_sums = 0;  ///< of a tile of weights, up the tree of parts
  std::int64_t bias_sums = 0;

  /// As the allocators count it.
  [[nodiscard]] std::int64_t counted_bytes() const;
};

/// Of a thread that runs slices of these sizes; `depth` sums wait at once up the tree of parts
/// (tree_slots()).
LaneScratch lane_scratch(const DenseModel& model,
                         const Packing& packing,
                         std::span<const SliceSize> slices,
                         std::int64_t depth);

/// What a rank's batch is.
struct BatchCounts {
  std::int64_t samples = 0;
  std::int64_t dense = 0;  ///< values of a sample
  std::int64_t tasks = 1;
  std::int64_t slices = 0;
  std::int64_t sequences = 0;  ///< features
  std::int64_t parts = 0;      ///< of the rank
};

inline constexpr std::int64_t kTotalsBytes =
    40;  ///< sums of a part and task: kernels::BinaryTotals

/// Buffers of a rank's batch.
struct BatchBuffers {
  std::int64_t dense = 0;
  std::int64_t labels = 0;   ///< and as many weights, logits and their gradients
  std::int64_t offsets = 0;  ///< of sequences, slice by slice
  std::int64_t bad_rows = 0;
  std::int64_t totals = 0;

  /// As the allocators count them.
  [[nodiscard]] std::int64_t counted_bytes() const;
};

/// Words that say whether sums of gradients are finite: one for each task of each subtree of parts
/// that is summed at once.
constexpr std::int64_t infinite_bytes(std::int64_t subtrees, std::int64_t tasks) {
  return subtrees * tasks * static_cast<std::int64_t>(sizeof(std::int32_t));
}

/// Of a batch with these counts.
BatchBuffers batch_buffers(const BatchCounts& counts);

/// Tasks in which the gradients of all parameters are summed: one per tile of weights, and one for
/// all biases.
std::int64_t gradient_tasks(const DenseModel& model);

}  // namespace weft::layout
