// A feature of a table whose rows are cut sends each id to the cut of rows that has it, and every
// shard, or cut of columns, of that cut is sent the same memory. The hot rows are the last cut.
//
// Travels     per shard lengths of all bags, or the bag of each id where ids are few; the ids that
//             it has, and their weights; per non-empty bag of a shard a partial sum comes back, per
//             id of a sequence a vector, and as many gradients go out. What a rank asks of its own
//             shard stays: ids are sorted, and widened, into OwnIds.
// Bytes       per slot l B of lengths, or n per id for its bag; i per id, 4 per id with weights;
//             4 d per vector each way.
// Ids         two passes over runs of bags: one counts what each cut gets, one fills. Of a
//             rule the first keeps each id's cut and row for the second. Nothing branches on which
//             cut is next, since that cannot be guessed. A cut costs what its ids
//             cost, and a bag that has none in it costs nothing: weft/layout/listed_bags.h says
//             when bags are listed. Only the own cuts have an offset for every bag.
// Vectors     partial sums are added where they have come; encoded ones are decoded beside each
//             other first. Sequences are copied to their places.
// Gradients   leave from the gradient matrix; those of bags of the own shard are read there, those
//             of its sequences are copied once, since a shard wants its ids behind each other.
// Order       a shard adds the rows of a bag in the order of the bag; partial sums go up the tree
//             over the numbers of the cuts of rows (base/parts.h), absent ones skipped: which those
//             are is listed with the ids, by bag, where cuts are many. A bag that lies in one cut
//             keeps its bits, and cuts of columns change none.
#include "weft/sharding/paths/split_bags.h"

#include <algorithm>
#include <utility>

#include "weft/layout/listed_bags.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/output_step.h"

namespace weft::sharding {
SplitBags::SplitBags(const Parts& parts)
    : BagSlots(parts, Path::kSplitBags), place_(routing_.features.size()) {
  for (std::int64_t f = 0; f < static_cast<std::int64_t>(routing_.features.size()); ++f) {
    if (routing_.asks(f, rank_) != Path::kSplitBags) {
      continue;
    }
    place_[at(f)] = static_cast<std::int64_t>(features_.size());
    Feature& feature = features_.emplace_back();
    feature.index = f;
    feature.owner = RowOwner(route(f));
    has_rules_ |= route(f).regular.has_value();
    feature.terms = features_.size() - 1;
  }
  for (const std::int64_t server : {rank_, routing_.replicated()}) {
    for (std::int64_t j = 0; j < routing_.num_slots(server); ++j) {
      const SlotAddress address{server, j};
      const SlotKind& slot = routing_.kind(address);
      if (slot.fetch < 0 && routing_.asks(slot.feature, rank_) == Path::kSplitBags) {
        features_[at(place_[at(slot.feature)])].own.push_back({routing_.row_cut(address), address});
      }
    }
  }
}

/// Of a rule find_cuts() will know.
std::int64_t SplitBags::cuts(std::int64_t feature) const {
  return route(feature).regular ? 0 : route(feature).row_cuts();
}

void SplitBags::begin(AskedIds& asked) const {
  grow(asked.bags.term_sections, std::ssize(features_));
  asked.bags.num_term_begins = asked.bags.num_terms = 0;
  grow(asked.bags.row_places, has_rules_ ? std::ssize(asked.batch.sparse.values) : 0);
}

/// Counts the ids and bags of each cut of rows.
void SplitBags::read(AskedIds& asked, const BagTask& task) const {
  if (route(task.feature).regular) {
    find_cuts(asked, task);
    return;
  }
  const JaggedView view = asked.batch.sparse.feature(task.feature);
  feature(task.feature).owner.visit([&](const auto& owner) {
    for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
      for (const std::int64_t id : view.bag(b)) {
        CutCount& count = task.counts[owner.place_of(id).cut];
        ++count.ids;
        count.bags += count.last_bag == b ? 0 : 1;
        count.last_bag = b;
      }
    }
  });
}

/// Of a rule, whose cuts are many: finds those that some id is in, and then counts as above. Own
/// cuts are there anyway. The numbers of the feature's slots share no word with others'.
void SplitBags::find_cuts(AskedIds& asked, const BagTask& task) const {
  const Feature& of = feature(task.feature);
  const RowCuts& cuts = route(task.feature);
  const JaggedView view = asked.batch.sparse.feature(task.feature);
  const auto number = [&](std::size_t cut) {
    return cuts.first_number + static_cast<std::int64_t>(cut);
  };
  PresentSet& present = asked.present;
  RowPlace* const places = asked.bags.row_places.data();
  for (const OwnCut& own : of.own) {
    present.insert(number(at(own.row_cut)));
  }
  of.owner.visit([&](const auto& owner) {
    for (std::int64_t i = view.offsets[at(task.bags.begin)]; i < view.offsets[at(task.bags.end)];
         ++i) {
      places[i] = owner.place_of(view.values[i]);
      present.insert(number(places[i].cut));
    }
  });
  std::vector<CutCount>& counts = asked.features[at(task.feature)].rule_counts;
  counts.assign(at(present.count(PresentSet::words_of(cuts.numbers()), 0)), CutCount{});
  for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
    for (std::int64_t i = view.offsets[at(b)]; i < view.offsets[at(b) + 1]; ++i) {
      places[i].cut = at(present.place(number(places[i].cut)));
      CutCount& count = counts[places[i].cut];
      ++count.ids;
      count.bags += count.last_bag == b ? 0 : 1;
      count.last_bag = b;
    }
  }
}

void SplitBags::lay_out(ThreadPool& /*pool*/, AskedIds& asked) const {
  std::int64_t writers = 0;
  for (const Feature& feature : features_) {
    FeatureTasks& of = asked.features[at(feature.index)];
    of.fills = true;
    if (of.by_rule) {
      if (of.tasks == 0) {  // no sample
        find_cuts(asked, {.feature = feature.index, .bags = {}, .counts = {}});
      }
      of.cuts = std::ssize(of.rule_counts);
      of.first_place = asked.add_places(route(feature.index), of.cuts);
    }
    of.writers_begin = writers;
    writers += of.cuts;
    lay_out_feature(asked, feature);
  }
  grow(asked.bags.writers, writers);
  grow(asked.bags.term_begins, asked.bags.num_term_begins);
  grow(asked.bags.terms, asked.bags.num_terms);
}

const SplitBags::OwnCut* SplitBags::own_cut(const Feature& feature, std::int64_t row_cut) {
  for (const OwnCut& own : feature.own) {
    if (own.row_cut == row_cut) {
      return &own;
    }
  }
  return nullptr;
}

void SplitBags::lay_out_feature(AskedIds& asked, const Feature& feature) const {
  AskedBags& bags = asked.bags;
  const std::int64_t batch = asked.batch.sparse.batch;
  const SlotKind& slot = routing_.kinds[at(route(feature.index).first_kind)];
  const auto bag_bytes = static_cast<std::int16_t>(layout::listed_bag_bytes(batch));
  std::int64_t terms = 0;
  asked.for_cuts(feature.index, [&](std::int64_t k, std::int64_t row_cut, const Range& places) {
    const OwnCut* const own = own_cut(feature, row_cut);
    const CutCount total = asked.join(feature.index, k);
    const std::int64_t vectors = slot.sequence ? total.ids : total.bags;
    const bool is_listed = layout::lists_bags(total.ids, batch);
    terms += total.bags;
    AskedBags::Section section;
    section.rows_at = bags.num_rows;
    bags.num_rows += vectors;
    section.bags_at = bags.take_bytes(4 * (is_listed ? total.ids : batch));
    section.ids_at = bags.take_bytes(slot.id_bytes * total.ids);
    const bool sent_away = own == nullptr || places.size() > 1;
    section.weights_at = slot.weighted && sent_away ? bags.take_bytes(4 * total.ids) : -1;
    for (std::int64_t p = places.begin; p < places.end; ++p) {
      bags.sections[at(p)] = section;
      AskedSlot& to = asked.slots[at(p)];
      to = {.ids = total.ids, .vectors = vectors, .gradients = vectors};
      if (is_listed) {
        to.length_bytes = 0;
        to.bag_bytes = bag_bytes;
      }
    }
    if (own != nullptr) {
      lay_out_own(asked, own->address, total);
    }
  });
  if (lists_terms(feature.index)) {
    lay_out_terms(asked, feature, terms);
  }
}

/// Sequences have none, as nothing is added.
bool SplitBags::lists_terms(std::int64_t f) const {
  return route(f).pooling != spec::Pooling::kNone && layout::lists_terms(route(f).row_cuts());
}

void SplitBags::lay_out_terms(AskedIds& asked, const Feature& feature, std::int64_t terms) const {
  AskedBags& bags = asked.bags;
  bags.term_sections[feature.terms] = {.begins_at = bags.num_term_begins,
                                       .terms_at = bags.num_terms};
  bags.num_term_begins += asked.batch.sparse.batch + 1;
  bags.num_terms += terms;
}

/// Lookups take non-empty bags, or the ids of all of them; gradients lie in the matrix by bag.
void SplitBags::lay_out_own(AskedIds& asked,
                            const SlotAddress& address,
                            const CutCount& total) const {
  const SlotKind& slot = routing_.kind(address);
  OwnIds& own = asked.own;
  IncomingBlock& block = own.blocks[asked.own_index(address)];
  block = {.origin = IdOrigin::kPacked,
           .weighted = slot.weighted,
           .ids_begin = own.num_ids,
           .num_ids = total.ids};
  block.rows_read = total.ids;
  block.vectors = block.gradients = slot.sequence ? total.ids : total.bags;
  if (slot.weighted) {
    grow(own.weights, own.num_ids + total.ids);
  }
  own.num_ids += total.ids;
  block.gradient = {asked.batch.sparse.batch, own.num_offsets};
  own.num_offsets += asked.batch.sparse.batch + 1;
  block.lookup = block.gradient;
  if (!slot.sequence) {
    block.lookup = {total.bags, own.num_offsets};
    own.num_offsets += total.bags + 1;
  }
}

void SplitBags::point(AskedIds& asked) const {
  for (const Feature& feature : features_) {
    point_feature(asked, feature);
  }
}

void SplitBags::point_feature(AskedIds& asked, const Feature& feature) const {
  const FeatureTasks& of = asked.features[at(feature.index)];
  AskedBags& bags = asked.bags;
  if (lists_terms(feature.index)) {
    bags.term_begins[at(bags.term_sections[feature.terms].begins_at)] = 0;
  }
  AskedBags::Writer* const writers = bags.writers.data() + of.writers_begin;
  asked.for_cuts(feature.index, [&](std::int64_t k, std::int64_t row_cut, const Range& places) {
    const AskedBags::Section& section = bags.sections[at(places.begin)];
    AskedBags::Writer& writer = writers[k];
    writer = {.bags = bags.bags(section),
              .is_listed = asked.slots[at(places.begin)].bag_bytes > 0,
              .ids = bags.bytes.data() + section.ids_at,
              .weights = nullptr,
              .rows = bags.rows.data() + section.rows_at};
    for (std::int64_t p = places.begin; p < places.end; ++p) {
      asked.slots[at(p)].rows = asked.slots[at(p)].gradient_rows = writer.rows;
    }
    const OwnCut* const own = own_cut(feature, row_cut);
    if (own != nullptr) {
      const IncomingBlock& block = asked.own.blocks[asked.own_index(own->address)];
      asked.own.offsets[at(block.gradient.offsets_begin)] = block.ids_begin;
      asked.own.offsets[at(block.lookup.offsets_begin)] = block.ids_begin;
      writer.weights = block.weighted ? asked.own.weights.data() + block.ids_begin : nullptr;
    }
    if (section.weights_at >= 0) {
      writer.weights = reinterpret_cast<float*>(bags.bytes.data() + section.weights_at);
    }
  });
}

/// Every id to its cut, keeping the order inside the bag; place_of(i) says where that at place i of
/// the batch belongs.
template <bool kSequence, bool kLists, typename PlaceOf, typename StoreId>
void SplitBags::split(const AskedIds& asked,
                      const BagTask& task,
                      std::span<const AskedBags::Writer> writers,
                      const PlaceOf& place_of,
                      const StoreId& store) const {
  const JaggedView view = asked.batch.sparse.feature(task.feature);
  const bool weighted = route(task.feature).weighted;
  for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
    for (std::int64_t i = view.offsets[at(b)]; i < view.offsets[at(b) + 1]; ++i) {
      const auto [k, row] = place_of(i);
      const AskedBags::Writer& writer = writers[k];
      CutCount& place = task.counts[k];
      if constexpr (kSequence) {
        writer.rows[place.ids] = static_cast<std::int32_t>(i - view.offsets.front());
      } else {
        const std::int64_t known = place.last_bag == b ? 1 : 0;
        writer.rows[place.bags - known] = static_cast<std::int32_t>(b);
        place.bags += 1 - known;
        place.last_bag = b;
      }
      if constexpr (kLists) {
        // Cuts of both forms may take turns, so the form is chosen without a branch.
        const std::int64_t is_listed = writer.is_listed ? -1 : 0;
        std::int32_t& bag = writer.bags[b ^ ((b ^ place.ids) & is_listed)];
        const std::int64_t longer = std::int64_t{bag} + 1;
        bag = static_cast<std::int32_t>(longer ^ ((longer ^ b) & is_listed));
      } else {
        ++writer.bags[b];
      }
      if (weighted) {
        writer.weights[place.ids] = view.weights[i];
      }
      store(k, place.ids, row);
      ++place.ids;
    }
  }
}

void SplitBags::fill(AskedIds& asked, const BagTask& task) const {
  const Feature& of = feature(task.feature);
  const std::span<const AskedBags::Writer> writers =
      std::span(asked.bags.writers)
          .subspan(at(asked.features[at(task.feature)].writers_begin), task.counts.size());
  bool lists = false;
  for (const AskedBags::Writer& writer : writers) {
    lists |= writer.is_listed;
    if (!writer.is_listed) {
      std::fill_n(writer.bags + task.bags.begin, task.bags.size(), 0);
    }
  }
  const bool sequence = route(task.feature).pooling == spec::Pooling::kNone;
  visit_width(id_bytes(task.feature), [&]<typename Id>(Id) {
    const auto store = [&](std::size_t k, std::int64_t place, std::int64_t id) {
      reinterpret_cast<Id*>(writers[k].ids)[place] = static_cast<Id>(id);
    };
    const auto split_by = [&](const auto& place_of) {
      if (sequence) {
        lists ? split<true, true>(asked, task, writers, place_of, store)
              : split<true, false>(asked, task, writers, place_of, store);
      } else {
        lists ? split<false, true>(asked, task, writers, place_of, store)
              : split<false, false>(asked, task, writers, place_of, store);
      }
    };
    if (route(task.feature).regular) {
      split_by([&](std::int64_t i) { return asked.bags.row_places[at(i)]; });
      return;
    }
    const std::int64_t* const ids = asked.batch.sparse.feature(task.feature).values;
    of.owner.visit([&](const auto& owner) {
      split_by([&](std::int64_t i) { return owner.place_of(ids[i]); });
    });
  });
  if (lists_terms(task.feature)) {
    fill_terms(asked, task, writers);
  }
  for (const OwnCut& own : of.own) {
    fill_own(asked, task, own);
  }
}

/// The bags' numbers of terms become where the terms of each begin; then the terms are placed cut
/// after cut, so that those of a bag ascend, which moves each begin to that of the next bag.
void SplitBags::fill_terms(AskedIds& asked,
                           const BagTask& task,
                           std::span<const AskedBags::Writer> writers) const {
  AskedBags& bags = asked.bags;
  const AskedBags::TermSection& section = bags.term_sections[feature(task.feature).terms];
  std::int32_t* const next = bags.term_begins.data() + section.begins_at + 1;
  kernels::BagTerm* const terms = bags.terms.data() + section.terms_at;
  const auto for_each_vector = [&](const auto& call) {
    for (std::size_t k = 0; k < writers.size(); ++k) {
      for (std::int64_t v = task.counts[k].first_bag; v < task.counts[k].bags; ++v) {
        call(k, v, writers[k].rows[v]);
      }
    }
  };
  std::fill_n(next + task.bags.begin, task.bags.size(), 0);
  for_each_vector([&](std::size_t /*k*/, std::int64_t /*v*/, std::int32_t bag) { ++next[bag]; });
  std::int32_t begin = 0;
  for (const CutCount& of_cut : task.counts) {
    begin += static_cast<std::int32_t>(of_cut.first_bag);
  }
  for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
    begin += std::exchange(next[b], begin);
  }
  for_each_vector([&](std::size_t k, std::int64_t v, std::int32_t bag) {
    terms[next[bag]++] = {.cut = static_cast<std::int32_t>(k),
                          .vector = static_cast<std::int32_t>(v)};
  });
}

/// The own shard's ids as lookups take them, from those that are sent to the others of its rows.
void SplitBags::fill_own(AskedIds& asked, const BagTask& task, const OwnCut& cut) const {
  const SlotKind& slot = routing_.kind(cut.address);
  const IncomingBlock& block = asked.own.blocks[asked.own_index(cut.address)];
  const FeatureTasks& tasks = asked.features[at(task.feature)];
  const std::int64_t at_place = asked.place(cut.address);
  const std::int64_t k = tasks.by_rule ? at_place - tasks.first_place : cut.row_cut;
  const AskedBags::Writer& writer = asked.bags.writers[at(tasks.writers_begin + k)];
  const CutCount& place = task.counts[at(k)];
  const Range own{place.first_id, place.ids};
  std::int64_t* const ids = asked.own.ids.data() + block.ids_begin;
  visit_width(slot.id_bytes, [&]<typename Id>(Id) {
    const auto* const narrow = reinterpret_cast<const Id*>(writer.ids);
    std::copy(narrow + own.begin, narrow + own.end, ids + own.begin);
  });
  if (asked.bags.sections[at(at_place)].weights_at >= 0) {
    std::copy(writer.weights + own.begin, writer.weights + own.end,
              asked.own.weights.data() + block.ids_begin + own.begin);
  }
  // Every task writes the offsets behind its bags.
  std::int64_t* const gradient = asked.own.offsets.data() + block.gradient.offsets_begin;
  std::int64_t offset = block.ids_begin + place.first_id;
  if (writer.is_listed) {
    std::fill_n(gradient + task.bags.begin + 1, task.bags.size(), 0);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      gradient[writer.bags[i] + 1] = block.ids_begin + i + 1;
    }
    for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
      offset = gradient[b + 1] = std::max(offset, gradient[b + 1]);
    }
  } else {
    for (std::int64_t b = task.bags.begin; b < task.bags.end; ++b) {
      offset = gradient[b + 1] = offset + writer.bags[b];
    }
  }
  std::int64_t* const lookup = asked.own.offsets.data() + block.lookup.offsets_begin;
  for (std::int64_t v = place.first_bag; v < place.bags && !slot.sequence; ++v) {
    lookup[v + 1] = gradient[writer.rows[v] + 1];
  }
}

void SplitBags::finish(ThreadPool& pool, AskedIds& asked) const {
  pool.parallel_for(static_cast<std::int64_t>(features_.size()), [&](std::int64_t i) {
    const Feature& feature = features_[at(i)];
    asked.for_cuts(feature.index, [&](std::int64_t, std::int64_t row_cut, const Range& places) {
      if (own_cut(feature, row_cut) == nullptr || places.size() > 1) {
        narrow_bags(asked, places);
      }
    });
  });
}

/// Of a pooled feature the slots of the first cut of rows stand for the columns of all. Gradients
/// of own slots are read where they are, those of the same columns once.
void SplitBags::list_work(const SlotAddress& address, VectorWork& work) const {
  const SlotKind& slot = routing_.kind(address);
  if (slot.sequence) {
    work.copies.push_back({this, address});
    return;
  }
  if (routing_.row_cut(address) == 0) {
    work.bags.push_back({this, address});
  }
  if (!routing_.served_by(address, rank_)) {
    return;
  }
  const bool is_known = std::any_of(
      work.own_gradients.begin(), work.own_gradients.end(), [&](const VectorWork::One& one) {
        const SlotKind& known = routing_.kind(one.address);
        return known.feature == slot.feature && known.cols.begin <= slot.cols.begin &&
               slot.cols.end <= known.cols.end;
      });
  if (!is_known) {
    work.own_gradients.push_back({this, address});
  }
}

/// The vectors of the slot with this place.
kernels::BagVectors SplitBags::partial_sums(const InputStep& input,
                                            const OutputStep& output,
                                            std::int64_t place,
                                            std::int64_t stride) const {
  const AskedSlot& asked = input.asked.slots[at(place)];
  return {.vectors = output.arrived(place),
          .stride = stride,
          .bags = asked.rows,
          .count = asked.vectors};
}

/// The columns of one slot of the first cut of rows: the partial sums of a bag go up the tree over
/// the cuts that have some.
void SplitBags::list_assembly(const InputStep& input,
                              OutputStep& output,
                              const SlotAddress& address,
                              std::int64_t cut) const {
  const SlotKind& slot = routing_.kind(address);
  const FeatureRoute& of = route(slot.feature);
  const FeatureTasks& tasks = input.asked.features[at(slot.feature)];
  // Without a cut at all one of no vectors, so that bags become zeros.
  const auto cuts = output.assembly.take_cuts(std::max<std::int64_t>(tasks.cuts, 1));
  cuts[0] = {};
  input.asked.for_cuts(
      slot.feature, [&](std::int64_t k, std::int64_t row_cut, const Range& places) {
        if (row_cut == of.tail_cuts) {  // hot rows are whole
          cuts[at(k)] = partial_sums(input, output, places.begin, of.dim);
          cuts[at(k)].vectors += cuts[at(k)].count > 0 ? slot.cols.begin : 0;
        } else {
          cuts[at(k)] = partial_sums(input, output, places.begin + slot.col_cut, slot.dim());
        }
      });
  output.add_bags(routing_, input, cut, slot, cuts);
  kernels::BagAssembly& job = output.assembly.jobs.back();
  if (lists_terms(slot.feature)) {
    const AskedBags& bags = input.asked.bags;
    job.terms = bags.terms_of(bags.term_sections[feature(slot.feature).terms]);
  }
  if (tasks.by_rule && tasks.cuts > 0) {
    job.cut_numbers = input.asked.rule_cuts_of(slot.feature);
  }
}

}  // namespace weft::sharding
