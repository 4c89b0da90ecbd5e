#include "weft/sharding/id_packer.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "weft/base/error.h"
#include "weft/layout/id_lanes.h"
#include "weft/sharding/id_lanes.h"

namespace weft::sharding {

AskedIds::AskedIds(const Routing& of, std::int64_t own_rank)
    : rank(own_rank),
      own_slots(of.num_slots(own_rank)),
      routing(&of),
      num_places(of.num_listed),
      slots(at(of.num_listed)),
      addresses(at(of.num_listed)),
      fetch_places(of.fetches.size()),
      server_begins(at(of.ranks) + 2),
      features(of.features.size()) {
  present.begin(of.num_by_rule);
  bags.sections.resize(slots.size());
  for (std::int64_t server = 0; server <= of.replicated(); ++server) {
    for (std::int64_t j = 0; j < of.num_slots(server); ++j) {
      const SlotNumber number = of.number({server, j});
      if (!number.by_rule) {
        addresses[at(number.number)] = {server, j};
      }
    }
  }
  for (std::size_t f = 0; f < features.size(); ++f) {
    features[f].by_rule = of.features[f].regular.has_value();
    features[f].first_place = of.features[f].first_number;
  }
  own.blocks.resize(at(own_slots + of.num_slots(of.replicated())));
  for (std::size_t t = 0; t < of.fetches.size(); ++t) {
    rows.tables.emplace_back(of, static_cast<std::int64_t>(t), own_rank);
  }
}

std::int64_t AskedIds::add_places(const RowCuts& cuts, std::int64_t count) {
  const std::int64_t first = num_places;
  const std::int64_t listed = routing->num_listed;
  num_places += count;
  present.move(PresentSet::words_of(cuts.numbers()), first - listed);
  grow(slots, num_places);
  grow(bags.sections, num_places);
  grow(addresses, num_places);
  grow(rule_cuts, num_places - listed);
  Routing::RuleSlots rule_slots(*routing, cuts);
  present.for_each(cuts.numbers(), [&](std::int64_t number, std::int64_t place) {
    const std::int64_t cut = number - cuts.first_number;
    rule_cuts[at(place)] = static_cast<std::int32_t>(cut);
    addresses[at(listed + place)] = rule_slots.of(cut);
  });
  return first;
}

/// Owners of slots in the order of Routing, so that a server's slots ascend.
void AskedIds::list_servers() {
  const auto for_each = [&](const auto& visit) {
    const auto visit_places = [&](Range places) {
      for (std::int64_t p = places.begin; p < places.end; ++p) {
        if (slots[at(p)].ids > 0) {
          visit(addresses[at(p)], p);
        }
      }
    };
    const auto listed = [](const RowCuts& cuts) {
      return Range{cuts.first_number, cuts.first_number + std::ssize(cuts.listed)};
    };
    for (std::size_t f = 0; f < features.size(); ++f) {
      visit_places(features[f].by_rule
                       ? Range{features[f].first_place, features[f].first_place + features[f].cuts}
                       : listed(routing->features[f]));
    }
    for (std::size_t t = 0; t < fetch_places.size(); ++t) {
      const RowFetch& fetch = routing->fetches[t];
      visit_places(fetch.regular ? fetch_places[t] : listed(fetch));
    }
  };
  std::fill(server_begins.begin(), server_begins.end(), 0);
  for_each(
      [&](const SlotAddress& address, std::int64_t) { ++server_begins[at(address.server) + 1]; });
  for (std::size_t s = 1; s < server_begins.size(); ++s) {
    server_begins[s] += server_begins[s - 1];
  }
  grow(server_slots, server_begins.back());
  // Every begin moves on to that of the next server, and back.
  for_each([&](const SlotAddress& address, std::int64_t place) {
    server_slots[at(server_begins[at(address.server)]++)] = {
        static_cast<std::int32_t>(address.slot), static_cast<std::int32_t>(place)};
  });
  std::copy_backward(server_begins.begin(), server_begins.end() - 1, server_begins.end());
  server_begins.front() = 0;
}

/// Exclusive sums over the tasks.
CutCount AskedIds::join(std::int64_t feature, std::int64_t cut) {
  FeatureTasks& of = features[at(feature)];
  CutCount total;
  for (std::int64_t task = 0; task < (of.by_rule ? 1 : of.tasks); ++task) {
    CutCount& count = of.by_rule ? of.rule_counts[at(cut)] : counts[at(of.counts_of(task) + cut)];
    const CutCount before{
        .first_id = total.ids, .first_bag = total.bags, .ids = total.ids, .bags = total.bags};
    total.ids += count.ids;
    total.bags += count.bags;
    count = before;
  }
  return total;
}

IdPacker::IdPacker(const Paths& paths)
    : paths_(paths),
      routing_(paths.routing()),
      weighted_(std::any_of(routing_.features.begin(),
                            routing_.features.end(),
                            [](const FeatureRoute& route) { return route.weighted; })) {
}

void IdPacker::pack(ThreadPool& pool, const BatchView& batch, AskedIds& asked) const {
  WEFT_CHECK(!weighted_ || batch.sparse.weights.size() == batch.sparse.values.size(),
             "{} weights for {} ids", batch.sparse.weights.size(), batch.sparse.values.size());
  asked.batch = batch;
  asked.cut_bags.clear();
  for (std::int64_t cut = 0; cut < routing_.micro_batches.count(); ++cut) {
    asked.cut_bags.push_back(routing_.cut_bags(batch.global_size, asked.rank, cut));
  }
  asked.present.begin(routing_.num_by_rule);
  asked.num_places = routing_.num_listed;
  asked.bags.num_bytes = asked.bags.num_rows = asked.own.num_ids = asked.own.num_offsets = 0;
  cut_tasks(asked);
  for (const auto& path : paths_.all()) {
    path->begin(asked);
  }
  asked.read_tasks.run(pool, [&](std::int64_t f, std::int64_t index) {
    const BagTask task = asked.task(f, index);
    check_ids(asked, task);
    paths_.of_feature(f).read(asked, task);
  });
  for (const auto& path : paths_.all()) {
    path->lay_out(pool, asked);
  }
  grow(asked.bags.rows,
       asked.bags.num_rows + 1);  // so that an empty list is not null, which means all
  grow(asked.bags.bytes, asked.bags.num_bytes);
  grow(asked.own.ids, asked.own.num_ids);
  grow(asked.own.offsets, asked.own.num_offsets);
  for (const auto& path : paths_.all()) {
    path->point(asked);
  }
  asked.fill_tasks.clear();
  for (const FeatureTasks& feature : asked.features) {
    asked.fill_tasks.add(feature.fills ? feature.tasks : 0);
  }
  asked.fill_tasks.run(pool, [&](std::int64_t f, std::int64_t index) {
    paths_.of_feature(f).fill(asked, asked.task(f, index));
  });
  for (const auto& path : paths_.all()) {
    path->finish(pool, asked);
  }
  asked.list_servers();
  describe_lanes(pool, asked);
}

/// Runs of bags with about equal numbers of ids, by the shape of the batch alone.
void IdPacker::cut_tasks(AskedIds& asked) const {
  const std::int64_t batch = asked.batch.sparse.batch;
  asked.read_tasks.clear();
  std::int64_t counts = 0;
  for (std::size_t f = 0; f < asked.features.size(); ++f) {
    FeatureTasks& tasks = asked.features[f];
    const auto number = static_cast<std::int64_t>(f);
    const std::int64_t ids = asked.batch.sparse.feature(number).num_values();
    WEFT_CHECK(ids <= std::numeric_limits<std::int32_t>::max(), "{} ids of one feature in a batch",
               ids);
    tasks.bags_per_task =
        std::max<std::int64_t>(1, batch * kIdsPerTask / std::max({ids, batch, std::int64_t{1}}));
    if (tasks.by_rule) {
      tasks.bags_per_task = std::max<std::int64_t>(1, batch);
    }
    // A feature of another set has its ids checked there.
    tasks.tasks = routing_.features[f].is_here ? task_count(batch, tasks.bags_per_task) : 0;
    tasks.cuts = paths_.of_feature(number).cuts(number);
    tasks.counts_begin = counts;
    tasks.fills = false;
    counts = tasks.counts_of(tasks.tasks);
    asked.read_tasks.add(tasks.tasks);
  }
  grow(asked.counts, counts);
  std::fill_n(asked.counts.begin(), counts, CutCount{});
}

void IdPacker::check_ids(const AskedIds& asked, const BagTask& task) const {
  const FeatureRoute& route = routing_.features[at(task.feature)];
  const std::int64_t rows = route.num_embeddings;
  const JaggedView bags = asked.batch.sparse.feature(task.feature);
  const Range ids{bags.offsets[at(task.bags.begin)], bags.offsets[at(task.bags.end)]};
  // The sign bit of an id or of its distance to the last row. Unsigned: it may overflow.
  const auto last = static_cast<std::uint64_t>(rows - 1);
  std::uint64_t outside = 0;
  // A few instructions for two ids: their place in memory would decide the speed of a short loop.
#pragma GCC unroll 4
  for (std::int64_t i = ids.begin; i < ids.end; ++i) {
    const auto id = static_cast<std::uint64_t>(bags.values[i]);
    outside |= id | (last - id);
  }
  if (outside >> 63 == 0) {
    return;
  }
  const auto* const bad = std::find_if(bags.values + ids.begin, bags.values + ids.end,
                                       [rows](std::int64_t id) { return id < 0 || id >= rows; });
  const auto bag = std::upper_bound(bags.offsets.begin(), bags.offsets.end(), bad - bags.values);
  const std::int64_t b = bag - bags.offsets.begin() - 1;
  const std::int64_t sample = asked.batch.sample_ids.empty() ? b : asked.batch.sample_ids[at(b)];
  fail(ErrorCode::kData,
       "feature {}, sample {}: id {} is outside its table of {} rows; map ids with hash, "
       "modulo or vocabulary, or enlarge num_embeddings",
       route.name, sample, *bad, rows);
}

void IdPacker::describe_lanes(ThreadPool& pool, AskedIds& asked) const {
  if (layout::packs_id_lanes(routing_.ranks)) {
    pack_id_lanes(pool, paths_, asked);
    return;
  }
  asked.lanes.clear();
  for (std::int64_t r = 0; r < routing_.ranks; ++r) {
    const std::int64_t slots = routing_.num_slots(r);
    for (std::int64_t j = 0; j < slots && r != asked.rank; ++j) {
      SlotPieces pieces;
      const SlotAddress address{r, j};
      paths_.of(address, asked.rank).add_pieces(asked, address, asked.place(address), pieces);
      asked.lanes.add(pieces.all());
    }
    asked.lanes.end_lane();
  }
}

}  // namespace weft::sharding
