// A feature of a table whose rows are not cut asks each of its shards, one or several cuts of
// columns, for all of its bags. This is the path to shards of other ranks.
//
// Travels     ids and lengths are narrowed once and all shards are sent the same memory; weights go
//             out from the batch. Per non-empty bag a vector of the shard's columns comes back, per
//             id of a sequence one, and as many gradients go out.
// Bytes       l B of lengths, i per id, 4 per id with weights; 4 d per vector each way, or encoded.
// Ids         are read once, when they have been checked; bags are read again for the list of
//             non-empty ones, where there is an empty one.
// Vectors     copied once to their rows of the output matrix, zeros for empty bags; encoded ones
//             are decoded there. Means are divided after that.
// Gradients   leave from where they lie in the gradient matrix, those of means divided before.
// Order       a bag's rows are added by their owner, in the order of the bag.
#include "weft/sharding/paths/whole_bags.h"

#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"

namespace weft::sharding {

WholeBags::WholeBags(const Parts& parts) : BagSlots(parts, Path::kWholeBags) {
  for (std::int64_t f = 0; f < static_cast<std::int64_t>(routing_.features.size()); ++f) {
    if (routing_.asks(f, rank_) == Path::kWholeBags) {
      features_.push_back(f);
    }
  }
}

void WholeBags::begin(AskedIds& asked) const {
  for (const std::int64_t f : features_) {
    const std::int64_t ids = asked.batch.sparse.feature(f).num_values();
    AskedBags::Section section;
    section.bags_at = asked.bags.take_bytes(4 * asked.batch.sparse.batch);
    section.ids_at = asked.bags.take_bytes(id_bytes(f) * ids);
    const Range places = places_of(f);
    for (std::int64_t p = places.begin; p < places.end; ++p) {
      asked.bags.sections[at(p)] = section;
      asked.slots[at(p)] = {.ids = ids, .vectors = ids, .gradients = ids};  // of a sequence
    }
  }
  grow(asked.bags.bytes, asked.bags.num_bytes);
}

void WholeBags::read(AskedIds& asked, const BagTask& task) const {
  const JaggedView view = asked.batch.sparse.feature(task.feature);
  const AskedBags::Section& section = asked.bags.sections[at(places_of(task.feature).begin)];
  std::int32_t* const lengths = asked.bags.bags(section);
  std::int64_t non_empty = 0;
  for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
    lengths[b] = static_cast<std::int32_t>(view.length(b));
    non_empty += lengths[b] > 0 ? 1 : 0;
  }
  task.counts.front().bags = non_empty;
  const std::int64_t begin = view.offsets[at(task.bags.begin)] - view.offsets.front();
  const std::int64_t end = view.offsets[at(task.bags.end)] - view.offsets.front();
  const std::int64_t* const ids = view.values + view.offsets.front();
  visit_width(id_bytes(task.feature), [&]<typename Id>(Id) {
    auto* const out = reinterpret_cast<Id*>(asked.bags.bytes.data() + section.ids_at);
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = static_cast<Id>(ids[i]);
    }
  });
}

void WholeBags::lay_out(ThreadPool& /*pool*/, AskedIds& asked) const {
  for (const std::int64_t f : features_) {
    if (route(f).pooling == spec::Pooling::kNone) {
      continue;
    }
    const CutCount total = asked.join(f, 0);
    const bool has_empty = total.bags < asked.batch.sparse.batch;
    asked.features[at(f)].fills = has_empty;
    const Range places = places_of(f);
    for (std::int64_t p = places.begin; p < places.end; ++p) {
      asked.slots[at(p)].vectors = asked.slots[at(p)].gradients = total.bags;
      asked.bags.sections[at(p)].rows_at = has_empty ? asked.bags.num_rows : -1;
    }
    asked.bags.num_rows += has_empty ? total.bags : 0;
  }
}

void WholeBags::point(AskedIds& asked) const {
  for (const std::int64_t f : features_) {
    const Range places = places_of(f);
    for (std::int64_t p = places.begin; p < places.end; ++p) {
      const std::int64_t rows_at = asked.bags.sections[at(p)].rows_at;
      AskedSlot& slot = asked.slots[at(p)];
      slot.rows = slot.gradient_rows = rows_at < 0 ? nullptr : asked.bags.rows.data() + rows_at;
    }
  }
}

/// Lists the non-empty bags.
void WholeBags::fill(AskedIds& asked, const BagTask& task) const {
  const JaggedView view = asked.batch.sparse.feature(task.feature);
  const AskedBags::Section& section = asked.bags.sections[at(places_of(task.feature).begin)];
  std::int32_t* next = asked.bags.rows.data() + section.rows_at + task.counts.front().bags;
  for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
    if (view.length(b) > 0) {
      *next++ = static_cast<std::int32_t>(b);
    }
  }
}

void WholeBags::finish(ThreadPool& pool, AskedIds& asked) const {
  pool.parallel_for(static_cast<std::int64_t>(features_.size()),
                    [&](std::int64_t i) { narrow_bags(asked, places_of(features_[at(i)])); });
}

void WholeBags::list_work(const SlotAddress& address, VectorWork& work) const {
  (routing_.kind(address).sequence ? work.copies : work.bags).push_back({this, address});
}

void WholeBags::list_assembly(const InputStep& input,
                              OutputStep& output,
                              const SlotAddress& address,
                              std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(address);
  const std::int64_t place = input.asked.place(address);
  const AskedSlot& asked = input.asked.slots[at(place)];
  const std::span<kernels::BagVectors> cuts = output.assembly.take_cuts(1);
  cuts[0] = {.vectors = output.is_decoded() ? nullptr : output.arrived(place),
             .stride = slot.dim(),
             .bags = asked.rows,
             .count = asked.vectors};
  output.add_bags(routing_, input, cut, slot, cuts);
}

}  // namespace weft::sharding
