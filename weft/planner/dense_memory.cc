#include "weft/planner/dense_memory.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "weft/base/parts.h"
#include "weft/base/subtree_stack.h"
#include "weft/layout/blocks.h"
#include "weft/layout/dense_memory.h"
#include "weft/layout/dense_model.h"
#include "weft/layout/reduce.h"

namespace weft::planner {
namespace {

/// Slices of a size, and how many there are.
struct Slices {
  std::vector<std::int64_t> elements;  ///< [features] of sequences, expected
  layout::SliceSize size;
  std::int64_t count = 0;
};

/// Of the parts of a rank, those of one size together: there are two or three.
std::vector<Slices> slices_of(const spec::Config& config,
                              const Workload& workload,
                              const DenseMemoryShape& shape) {
  std::map<std::int64_t, std::int64_t> sizes;
  const Range own = rank_parts(shape.parts, shape.ranks, shape.rank);
  for (std::int64_t part = own.begin; part < own.end; ++part) {
    const std::int64_t samples = part_samples(config.batch_size, shape.parts, part).size();
    const std::int64_t count = layout::num_slices(samples);
    for (std::int64_t i = 0; i < count; ++i) {
      ++sizes[piece(samples, count, i).size()];
    }
  }
  std::vector<Slices> slices;
  for (const auto& [samples, count] : sizes) {
    Slices& made = slices.emplace_back();
    for (const FeatureUse& use : workload.features) {
      made.elements.push_back(use.pooled ? 0
                                         : static_cast<std::int64_t>(std::ceil(
                                               use.length * static_cast<double>(samples))));
    }
    made.count = count;
    made.size.samples = samples;
  }
  for (Slices& made : slices) {
    made.size.elements = made.elements;
  }
  return slices;
}

layout::Packing packing_of(spec::Target target) {
  return layout::packing_of(target == spec::Target::kAuto ? spec::Target::kAmx : target);
}

double block_of(std::int64_t bytes) {
  return static_cast<double>(layout::block_bytes(bytes));
}

double parameter_bytes(const spec::Config& config,
                       const layout::DenseModel& model,
                       const DenseMemoryShape& shape) {
  const std::int64_t floats = layout::parameter_floats(model);
  const auto states = static_cast<double>(layout::dense_states(config.dense_optimizer.type).size());
  const layout::ReduceBuffers reduce =
      layout::reduce_buffers({.parts = shape.parts,
                              .ranks = shape.ranks,
                              .rank = shape.rank,
                              .floats = floats,
                              .lent = shape.lent,
                              .hosts = shape.hosts,
                              .crossing = shape.crossing,
                              .format = config.codecs.dense,
                              .group = config.codecs.group_size,
                              .error_feedback = config.codecs.error_feedback});
  return (2.0 + states) * block_of(floats * layout::kFloatBytes) +
         block_of(layout::scan_results(floats) * layout::kScanBytes) +
         static_cast<double>(reduce.counted_bytes());
}

/// Of the rank that needs most; ranks whose parts are no whole subtrees need more than others.
double most_sums(const layout::DenseModel& model,
                 std::int64_t parts,
                 std::int64_t ranks,
                 const MicroBatches& cuts) {
  constexpr std::int64_t kLookedAt = 256;
  const std::int64_t count = std::min(ranks, kLookedAt);
  SubtreeNeeds most;
  for (std::int64_t i = 0; i < count; ++i) {
    const Range own = rank_parts(parts, ranks, piece(ranks, count, i).begin);
    const SubtreeNeeds needs = subtree_needs(parts, own, cuts);
    most.slots = std::max(most.slots, needs.slots);
    most.at_once = std::max(most.at_once, needs.at_once);
  }
  return block_of(most.slots * layout::parameter_floats(model) * layout::kFloatBytes) +
         block_of(layout::infinite_bytes(most.at_once, layout::gradient_tasks(model)));
}

}  // namespace

double most_gradient_sums(const spec::Config& config,
                          std::int64_t parts,
                          std::int64_t ranks,
                          const MicroBatches& cuts) {
  const layout::DenseModel model = layout::dense_model(config.model, layout::model_shape(config));
  return most_sums(model, parts, ranks, cuts);
}

DenseMemory dense_memory(const spec::Config& config,
                         const Workload& workload,
                         const DenseMemoryShape& shape) {
  const layout::ModelShape inputs = layout::model_shape(config);
  const layout::DenseModel model = layout::dense_model(config.model, inputs);
  const layout::Packing packing = shape.packing.value_or(packing_of(config.numerics.target));
  const Range own = rank_parts(shape.parts, shape.ranks, shape.rank);
  const std::vector<Range> subtrees = maximal_subtrees(shape.parts, own);
  std::int64_t depth = 1;  // sums of gradients that wait at once
  for (const Range& subtree : subtrees) {
    depth = std::max<std::int64_t>(depth, tree_slots(subtree.size()));
  }
  DenseMemory memory;
  memory.parameters = parameter_bytes(config, model, shape);
  memory.packed = block_of(layout::prepared_bytes(packing, model.element(), model.shapes()));
  std::int64_t slices = 0;
  std::int64_t block = 0;
  std::vector<layout::SliceSize> sizes;
  std::vector<std::int64_t> begins;
  const std::vector<Slices> all = slices_of(config, workload, shape);
  for (const Slices& same : all) {
    slices += same.count;
    sizes.push_back(same.size);
    block = std::max(block, layout::place_blocks(model, same.size, begins));
    memory.slices +=
        static_cast<double>(same.count) * block_of(layout::terms_bytes(model, packing, same.size));
  }
  const layout::BatchBuffers batch = layout::batch_buffers(
      {.samples = rank_samples(config.batch_size, shape.parts, shape.ranks, shape.rank).size(),
       .dense = inputs.dense,
       .tasks = inputs.tasks,
       .slices = slices,
       .sequences = std::count_if(inputs.features.begin(), inputs.features.end(),
                                  [](const layout::FeatureShape& f) { return f.sequence; }),
       .parts = own.size()});
  memory.batch = static_cast<double>(batch.counted_bytes());
  memory.sums = most_sums(model, shape.parts, shape.ranks, config.pipeline.cuts());
  const auto lanes =
      static_cast<double>(std::min(shape.threads, std::max<std::int64_t>(slices, 1)));
  memory.lanes = lanes * block_of(block);
  memory.scratch = lanes * static_cast<double>(
                               layout::lane_scratch(model, packing, sizes, depth).counted_bytes());
  return memory;
}

}  // namespace weft::planner
