#include "weft/sharding/output_step.h"

#include "weft/base/error.h"

namespace weft::sharding {

std::span<kernels::BagVectors> BagJobs::take_cuts(std::int64_t count) {
  const std::size_t first = all_cuts.size();
  WEFT_CHECK(first + at(count) <= all_cuts.capacity(), "jobs point to cuts that must not move");
  all_cuts.resize(first + at(count));
  return std::span(all_cuts).subspan(first);
}

std::span<const comm::Lane> PeerLanes::lanes() {
  lanes_.clear();
  std::size_t begin = 0;
  for (const End& end : ends_) {
    lanes_.push_back({.pieces = pieces_.between(begin, end.pieces),
                      .silent = end.bytes == 0,
                      .known_bytes = end.bytes});
    begin = end.pieces;
  }
  return lanes_;
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
      asked_run(at(routing.ranks)),
      forward_wire(config, config.codecs.forward, routing.ranks, device),
      backward_wire(config, config.codecs.backward, routing.ranks, device) {
  for (std::size_t t = 0; t < routing.fetches.size(); ++t) {
    fetched.push_back({.vectors = Buffer(device),
                       .rows = 0,
                       .buffers = kernels::RunBuffers(device),
                       .blocks = {},
                       .runs = {},
                       .sums = embedding::PartialSums(device, routing.parts)});
  }
}

void OutputStep::add_bags(const Routing& routing,
                          const InputStep& input,
                          std::int64_t cut,
                          const SlotKind& slot,
                          std::span<const kernels::BagVectors> cuts) {
  const bool is_mean = routing.features[at(slot.feature)].pooling == spec::Pooling::kMean;
  const VectorPlace to = matrices.vectors_of(slot);
  const Range bags = routing.cut_bags(input.batch().global_size, rank, cut);
  assembly.jobs.push_back(
      {.to = {to.data, to.stride, slot.dim()},
       .bags = bags.size(),
       .first = bags.begin,
       .cuts = cuts,
       .offsets = is_mean ? input.batch().sparse.feature(slot.feature).offsets.data() : nullptr});
}

}  // namespace weft::sharding
