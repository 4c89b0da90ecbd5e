// A rank that serves its own samples with whole bags reads and writes where the batch and the
// matrices are: a shard of a table whose rows are not cut, or the copy of a data_parallel table.
//
// Travels     nothing, in no direction: no bytes, and no copy of an id, vector or gradient.
// Ids         the batch's own values and offsets, empty bags too. They have been checked.
// Vectors     the lookup writes them into the output matrix, with zeros for empty bags; those of
//             means are divided there.
// Gradients   coalescing notes their addresses in the gradient matrix, and the update reads them
//             there.
// Codecs      with one, vectors and gradients of a shard are encoded and decoded where they lie, as
//             if they had travelled; those of copies are not.
// Order       a bag's rows are added in the order of the bag.
#include "weft/sharding/paths/in_place.h"

#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"

namespace weft::sharding {

IncomingBlock InPlace::own_block(const InputStep& input, const SlotAddress& address) const {
  return input.batch_block(routing_, routing_.kind(address).feature, rank_);
}

BlockCut InPlace::served_cut(const InputStep& input,
                             const ServedBlock& of,
                             std::int64_t cut) const {
  return cut_of_all_bags(input, of.block, routing_.kind(of.address).sequence, cut);
}

AskedCut InPlace::asked_cut(const InputStep& input,
                            const SlotAddress& address,
                            const AskedSlot& /*asked*/,
                            std::int64_t cut) const {
  const BlockCut own = served_cut(input, input.served_block(address, rank_), cut);
  return {.vectors = own.vectors, .gradients = own.gradients};
}

void InPlace::list_work(const SlotAddress& address, VectorWork& work) const {
  const SlotKind& slot = routing_.kind(address);
  if (route(slot.feature).pooling == spec::Pooling::kMean) {
    work.bags.push_back({this, address});
  }
  if (address.server == rank_) {
    work.own_gradients.push_back({this, address});
  }
}

/// Divides means; the vectors are where they belong.
void InPlace::list_assembly(const InputStep& input,
                            OutputStep& output,
                            const SlotAddress& address,
                            std::int64_t cut) const {
  output.add_bags(routing_, input, cut, routing_.kind(address), {});
}

VectorDraws InPlace::vector_draws(const InputStep& input,
                                  const SlotAddress& address,
                                  std::int64_t source) const {
  const Slot slot = routing_.slot(address);
  const IncomingBlock& block = input.block(address, source);
  const kernels::Bags bags = input.incoming.bags(block, block.lookup);
  return {.of = slot.sequence ? VectorDraws::Of::kRows : VectorDraws::Of::kBags,
          .key = slot.sequence ? keys_.rows[at(slot.table)] : keys_.vectors[at(slot.feature)],
          .first_sample = routing_.own_samples(input.asked.batch.global_size, rank_).begin,
          .ids = bags.ids,
          .offsets = bags.offsets,
          .rows = slot.rows};
}

VectorDraws InPlace::gradient_draws(const InputStep& input, const SlotAddress& address) const {
  return own_gradient_draws(input, routing_.kind(address));
}

}  // namespace weft::sharding
