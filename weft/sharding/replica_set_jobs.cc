// ReplicaSet: the jobs of the kernels that look up the rows of a batch, and that sort what its
// gradients are summed from. Small blocks that lie behind each other share one (shared_jobs.h).
#include <atomic>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/sharding/replica_set.h"
#include "weft/sharding/shared_jobs.h"

namespace weft::sharding {

/// Returns whether small blocks share jobs. They do not on a device with memory of its own, where
/// the lists of places would have to be copied.
bool ReplicaSet::shares_jobs() const {
  return device_.kind() == DeviceKind::kCpu;
}

void ReplicaSet::lookup(Context& ctx, ReplicaSetStep& step, std::int64_t cut) {
  step.output.matrices.require_outputs();
  fetch_late(ctx, step);
  step.lookups[at(cut)].clear();
  step.lookup_places[at(cut)].begin(shares_jobs() ? step.input.served.num_ids : 0);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    list_lookups(step, i, cut);
  }
  kernels::embedding_bag(ctx, step.lookups[at(cut)]);
}

/// Appends the jobs of a shard. Fetched bags are resolved block by block.
void ReplicaSet::list_lookups(ReplicaSetStep& step, std::size_t shard, std::int64_t cut) {
  LocalShard& local = shards_[shard];
  const storage::ResidentRows* const resident = step.shards[shard]->resident.get();
  std::vector<kernels::BagLookup>& lookups = step.lookups[at(cut)];
  const bool shares = shares_jobs() && resident == nullptr;
  kernels::BagLookup* shared = nullptr;  // the last job, where it may go on
  std::size_t list = 0;                  // of the fetched ones, behind the block's
  std::int64_t rows_read = 0;
  for_each_block(step, local, [&](const ServedBlock& of, const SlotKind& slot) {
    const IncomingBlock& block = of.block;
    list += block.num_ids > 0 ? 1 : 0;
    rows_read += block.rows_read;
    const BlockCut some = paths_.served_cut(step.input, of, cut);
    if (some.bags.empty()) {
      return;
    }
    kernels::Bags bags = step.input.incoming.bags(block, block.lookup.part(some.bags));
    if (shares && is_shared(block, some.vectors.size())) {
      const std::int64_t first = VectorLayout::received(step.output, of.place).vectors;
      const std::int64_t* const places = step.lookup_places[at(cut)].add(
          first + some.vectors.begin * slot.dim(), slot.dim(), some.vectors.size());
      if (shared != nullptr && shared->pooled == !slot.sequence && goes_on(shared->bags, bags)) {
        shared->bags.bags += bags.bags;
        return;
      }
      lookups.push_back(local.rows->lookup({.bags = bags,
                                            .pooled = !slot.sequence,
                                            .out = step.output.served.as<float>(),
                                            .places = places}));
      shared = &lookups.back();
      return;
    }
    if (resident != nullptr && block.num_ids > 0) {
      WEFT_CHECK(step.shards[shard]->fetched[list - 1].offsets ==
                     step.input.incoming.bags(block, block.gradient).offsets,
                 "a block is looked up in the rows of another");
      bags = resident->resolve(list - 1, bags);
    }
    const VectorPlace out = output_.layout().output(step.output, of).from(some.vectors.begin);
    lookups.push_back(local.rows->lookup(
        {.bags = bags, .pooled = !slot.sequence, .out = out.data, .out_stride = out.stride}));
    shared = nullptr;
  });
  if (cut == 0) {
    std::atomic_ref(local.rows_read).fetch_add(rows_read, std::memory_order_relaxed);
  }
}

/// Appends the entries of the batch that touch a shard, in the order of addition.
void ReplicaSet::list_gradient_blocks(ReplicaSetStep& step, std::size_t shard) const {
  std::vector<embedding::GradientBlock>& blocks = step.gradient_blocks;
  const bool shares = shares_jobs();
  embedding::GradientBlock* shared = nullptr;  // the last one, where it may go on
  for_each_block(step, shards_[shard], [&](const ServedBlock& of, const SlotKind& slot) {
    const IncomingBlock& block = of.block;
    if (block.num_ids == 0) {
      return;
    }
    const kernels::Bags bags = step.input.incoming.bags(block, block.gradient);
    const std::int32_t* const parts = step.input.incoming.parts + block.parts_begin;
    if (shares && is_shared(block, block.gradients)) {
      const std::int64_t* const places = step.gradient_places.add(
          VectorLayout::received(step.output, of.place).gradients, slot.dim(), block.gradients);
      if (shared != nullptr && shared->pooled == !slot.sequence && goes_on(shared->bags, bags) &&
          shared->parts + shared->bags.bags == parts) {
        shared->bags.bags += bags.bags;
        return;
      }
      blocks.push_back({.bags = bags,
                        .pooled = !slot.sequence,
                        .grads = step.output.served.as<float>(),
                        .parts = parts,
                        .places = places});
      shared = &blocks.back();
      return;
    }
    const VectorPlace grads = output_.layout().gradient(step.output, of);
    blocks.push_back({.bags = bags,
                      .pooled = !slot.sequence,
                      .grads = grads.data,
                      .grad_stride = grads.stride,
                      .parts = parts});
    shared = nullptr;
  });
}

void ReplicaSet::coalesce(Context& ctx, ReplicaSetStep& step) {
  step.output.matrices.require_gradients();
  step.gradient_blocks.clear();
  step.gradient_block_ends.clear();
  step.gradient_places.begin(shares_jobs() ? step.input.served.num_ids : 0);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    list_gradient_blocks(step, i);
    step.gradient_block_ends.push_back(step.gradient_blocks.size());
  }
  step.coalesces.clear();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::size_t end = step.gradient_block_ends[i];
    step.coalesces.emplace_back(&step.shards[i]->gradients,
                                std::span(step.gradient_blocks).subspan(begin, end - begin));
    begin = end;
  }
  embedding::RowGradients::coalesce(ctx, step.coalesces);
  output_.coalesce(ctx, step.input, step.output);
}

}  // namespace weft::sharding
