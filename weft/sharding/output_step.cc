#include "weft/sharding/output_step.h"

namespace weft::sharding {

void PartialSumsBuffers::resize(std::int64_t tasks, std::int64_t of_cuts, std::int64_t floats) {
  most_cuts = of_cuts;
  most_floats = floats;
  grow(cuts, tasks * most_cuts);
  grow(terms, tasks * kernels::kMostBagsOfPartialSums * most_cuts);
  sums.resize_for(layout::vectors(tasks, most_floats));
}

kernels::PartialSumsScratch PartialSumsBuffers::of_task(std::int64_t task, std::int64_t num_cuts) {
  constexpr std::int64_t kBags = kernels::kMostBagsOfPartialSums;
  return {.cuts = std::span(cuts).subspan(at(task * most_cuts), at(num_cuts)),
          .terms = std::span(terms).subspan(at(task * kBags * most_cuts), at(kBags * num_cuts)),
          .sums = sums.as<float>() + task * most_floats};
}

OutputStep::OutputStep(const spec::Config& config,
                       const Routing& routing,
                       Device& device,
                       const SparseStepOptions& options,
                       const BatchMatrices* shared)
    : matrices(routing, device, options, shared),
      served(device),
      asked(device),
      served_run(at(routing.ranks)),
      asked_begin(routing.served.size()),
      asked_run(at(routing.ranks)),
      asked_from(at(routing.ranks)),
      forward_wire(config, config.codecs.forward, routing.ranks, device),
      backward_wire(config, config.codecs.backward, routing.ranks, device),
      send_runs(at(routing.ranks)),
      recv_runs(at(routing.ranks)),
      send_pieces(at(routing.ranks)),
      recv_pieces(at(routing.ranks)),
      send(at(routing.ranks)),
      recv(at(routing.ranks)) {
  for (std::size_t s = 0; s < asked_begin.size(); ++s) {
    asked_begin[s].resize(routing.served[s].size());
  }
  partial_sums.sums = Buffer(device);
  for (std::size_t t = 0; t < routing.fetches.size(); ++t) {
    fetched.push_back({.vectors = Buffer(device),
                       .rows = 0,
                       .buffers = kernels::RunBuffers(device),
                       .blocks = {},
                       .runs = {},
                       .sums = embedding::PartialSums(device, routing.parts)});
  }
}

void OutputStep::divide_mean(const Routing& routing,
                             const InputStep& input,
                             const Slot& slot,
                             std::int64_t task) const {
  if (routing.features[at(slot.feature)].pooling == spec::Pooling::kMean) {
    const VectorPlace to = matrices.vectors_of(slot);
    kernels::divide_by_lengths(input.batch().sparse.feature(slot.feature).offsets, task_bags(task),
                               {to.data, to.stride, slot.dim()});
  }
}

}  // namespace weft::sharding
