#include "weft/sharding/routing.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_map>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::sharding {
namespace {

bool is_fetched(const spec::TablePlan& plan) {
  return layout::path_of(plan) == Path::kUniqueRows;
}

std::int64_t count_rows(const std::vector<Range>& ranges) {
  std::int64_t rows = 0;
  for (const Range& range : ranges) {
    rows += range.size();
  }
  return rows;
}

/// The rule of a table's cuts, where they are cut by one and are many.
std::optional<RegularCuts> regular_cuts(const spec::TablePlan& plan) {
  const std::vector<CutRule>& rules = plan.shards.rules();
  if (rules.size() != 1 || !rules.front().is_sound() || rules.front().by == CutBy::kCopy ||
      rules.front().rank_step == 0 || rules.front().rows.begin != 0) {
    return std::nullopt;
  }
  RegularCuts cuts(rules.front());
  return cuts.size() > RowCuts::kFewCuts ? std::optional(cuts) : std::nullopt;
}

/// Of the largest cut.
std::int64_t most_rows(const spec::TablePlan& plan, const std::optional<RegularCuts>& regular) {
  std::int64_t most = count_rows(plan.hot);
  if (regular) {
    const CutRule& rule = regular->rule();
    return std::max(most, (rule.rows.size() + rule.count - 1) / rule.count);
  }
  for (const spec::Shard& shard : plan.shards) {
    most = std::max(most, shard.rows.size());
  }
  return most;
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& list) {
  return static_cast<std::int64_t>(list.capacity() * sizeof(T));
}

}  // namespace

/// Makes the lists of slots. Features come in their order, then fetched tables: *owners* of cuts.
class Routing::Maker {
 public:
  Maker(Routing& routing, const spec::Config& config, const spec::Plan& plan)
      : routing_(routing), config_(config), plan_(plan) {}

  void add_features();
  void add_fetched();
  /// Once all owners have been added.
  void list_slots();

 private:
  /// A slot that no rule gives to its server.
  struct Listed {
    std::int64_t server = 0;
    std::int64_t first_kind = 0;  // of its owner
    Entry entry;
    std::size_t place = 0;  // in RowCuts::listed
  };

  std::uint32_t add_kind(const SlotKind& kind) {
    routing_.kinds.push_back(kind);
    return static_cast<std::uint32_t>(routing_.kinds.size() - 1);
  }

  void list_slot(std::int64_t server, RowCuts& cuts, Entry entry) {
    listed_.push_back({server, cuts.first_kind, entry, cuts.listed.size()});
    cuts.listed.push_back({server, 0});
  }

  void add_cuts(const spec::TablePlan& plan, const SlotKind& slot, RowCuts& cuts);
  void list_shards(const spec::TablePlan& plan, const SlotKind& slot, RowCuts& cuts);
  void list_slots_of(std::int64_t server, std::span<const Listed> listed);
  std::uint32_t number_of(const std::vector<Entry>& list);

  RowCuts& cuts_of(const SlotKind& kind) { return const_cast<RowCuts&>(routing_.cuts_of(kind)); }

  Routing& routing_;
  const spec::Config& config_;
  const spec::Plan& plan_;
  std::vector<Listed> listed_;
  std::vector<std::uint32_t> by_rule_;                        // kinds whose cuts are a rule
  std::vector<Entry> list_;                                   // of the server in hand
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;  // of lists, by their hashes
};

Routing::Routing(const spec::Config& config, const spec::Plan& plan, std::int64_t group)
    : ranks(plan.ranks),
      parts(plan.parts),
      positions(plan.world()),
      first_position(group * plan.ranks),
      micro_batches(config.pipeline.cuts()) {
  Maker maker(*this, config, plan);
  maker.add_features();
  maker.add_fetched();
  maker.list_slots();
}

void Routing::Maker::add_features() {
  for (std::size_t f = 0; f < config_.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config_.sparse_features[f];
    FeatureRoute route;
    route.name = feature.name;
    route.table = spec::table_index(config_, feature);
    const spec::TablePlan& table_plan = plan_.tables.at(at(route.table));
    const spec::Table& table = config_.tables[at(route.table)];
    route.sharding = table_plan.sharding;
    route.pooling = feature.pooling;
    route.weighted = feature.weighted;
    route.dim = table.embedding_dim;
    route.num_embeddings = table.num_embeddings;
    if (feature.pooling != spec::Pooling::kNone) {
      route.pooled_column = routing_.pooled_columns;
      routing_.pooled_columns += route.dim;
    }
    route.is_here = !table_plan.shards.empty();
    if (!is_fetched(table_plan) && route.is_here) {
      SlotKind slot;
      slot.feature = static_cast<std::int64_t>(f);
      slot.table = route.table;
      slot.sequence = route.pooling == spec::Pooling::kNone;
      slot.weighted = route.weighted;
      slot.cols = {0, route.dim};
      slot.path = layout::path_of(table_plan);
      add_cuts(table_plan, slot, route);
      route.path = slot.path;
    }
    routing_.features.push_back(std::move(route));
  }
}

void Routing::Maker::add_fetched() {
  std::vector<FeatureRoute>& features = routing_.features;
  for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
    RowFetch fetch;
    fetch.table = static_cast<std::int64_t>(t);
    fetch.name = config_.tables[t].name;
    fetch.dim = config_.tables[t].embedding_dim;
    const std::int64_t number = std::ssize(routing_.fetches);
    for (std::size_t f = 0; f < features.size() && is_fetched(plan_.tables[t]); ++f) {
      if (features[f].table == fetch.table) {
        fetch.features.push_back(static_cast<std::int64_t>(f));
        features[f].fetch = number;
        features[f].path = Path::kUniqueRows;
      }
    }
    if (fetch.features.empty()) {
      continue;
    }
    SlotKind slot;
    slot.feature = -1;
    slot.table = fetch.table;
    slot.sequence = true;
    slot.fetch = static_cast<std::int32_t>(number);
    slot.path = Path::kUniqueRows;
    slot.packed = config_.codecs.ids == spec::IdCodec::kPacked;
    slot.cols = {0, fetch.dim};
    add_cuts(plan_.tables[t], slot, fetch);
    routing_.fetches.push_back(std::move(fetch));
  }
}

/// The cuts of an owner whose slots are like `slot`.
void Routing::Maker::add_cuts(const spec::TablePlan& plan, const SlotKind& slot, RowCuts& cuts) {
  cuts.regular = regular_cuts(plan);
  cuts.first_kind = std::ssize(routing_.kinds);
  SlotKind kind = slot;
  kind.id_bytes = spec::id_bytes(most_rows(plan, cuts.regular));
  if (cuts.regular) {
    cuts.tail_cuts = cuts.regular->size();
    cuts.first_number = routing_.num_by_rule;
    kind.first_number = cuts.first_number;
    kind.is_numbered_by_rule = true;
    by_rule_.push_back(add_kind(kind));
  } else {
    cuts.first_number = routing_.num_listed;
    list_shards(plan, kind, cuts);
  }
  if (!plan.hot.empty()) {
    cuts.hot = plan.hot;
    kind.path = Path::kHotRows;
    kind.tail = slot.path;
    // Behind those of all other slots.
    kind.first_number = cuts.first_number + cuts.tail_cuts * (cuts.col_cuts - 1);
    list_slot(routing_.replicated(), cuts,
              {add_kind(kind), static_cast<std::int32_t>(cuts.tail_cuts)});
  }
  const std::int64_t end =
      cuts.first_number + cuts.tail_cuts * cuts.col_cuts + (cuts.hot.empty() ? 0 : 1);
  if (cuts.regular) {
    routing_.num_by_rule = (end + 63) / 64 * 64;
  } else {
    routing_.num_listed = end;
  }
}

void Routing::Maker::list_shards(const spec::TablePlan& plan, const SlotKind& slot, RowCuts& cuts) {
  const bool replicated = plan.sharding == spec::Sharding::kDataParallel;
  const std::size_t shards = replicated ? 1 : plan.shards.size();
  std::uint32_t col_cut = 0;
  for (std::size_t k = 0; k < shards; ++k) {
    const spec::Shard shard = plan.shards[k];
    if (shard.cols.begin == 0) {
      cuts.rows.push_back(shard.rows);
      col_cut = 0;
    }
    if (cuts.rows.size() == 1) {
      SlotKind kind = slot;
      kind.cols = shard.cols;
      kind.col_cut = static_cast<std::int32_t>(col_cut);
      kind.first_number = cuts.first_number + col_cut;
      add_kind(kind);
    }
    list_slot(replicated ? routing_.replicated() : shard.rank, cuts,
              {static_cast<std::uint32_t>(cuts.first_kind) + col_cut,
               static_cast<std::int32_t>(cuts.rows.size() - 1)});
    ++col_cut;
  }
  cuts.tail_cuts = std::ssize(cuts.rows);
  cuts.col_cuts = static_cast<std::int64_t>(shards / cuts.rows.size());
  for (std::size_t k = at(cuts.first_kind); k < routing_.kinds.size(); ++k) {
    routing_.kinds[k].number_step = static_cast<std::int32_t>(cuts.col_cuts);
  }
}

void Routing::Maker::list_slots() {
  std::stable_sort(listed_.begin(), listed_.end(),
                   [](const Listed& a, const Listed& b) { return a.server < b.server; });
  auto next = listed_.begin();
  for (std::int64_t server = 0; server <= routing_.replicated(); ++server) {
    const auto begin = next;
    next = std::find_if(begin, listed_.end(),
                        [server](const Listed& one) { return one.server != server; });
    list_slots_of(server, {begin, next});
  }
}

/// Merges what is listed with what follows from rules, in the order of owners.
void Routing::Maker::list_slots_of(std::int64_t server, std::span<const Listed> listed) {
  list_.clear();
  auto kind = by_rule_.begin();
  const auto add_rules = [&](std::int64_t end) {
    for (; kind != by_rule_.end() && static_cast<std::int64_t>(*kind) < end; ++kind) {
      if (routing_.cuts_of(routing_.kinds[*kind]).regular->of_rank(server) >= 0) {
        list_.push_back({*kind, kByRule});
      }
    }
  };
  for (const Listed& one : listed) {
    if (server != routing_.replicated()) {
      add_rules(one.first_kind);
    }
    cuts_of(routing_.kinds[one.entry.kind]).listed[one.place].slot = std::ssize(list_);
    list_.push_back(one.entry);
  }
  if (server != routing_.replicated()) {
    add_rules(std::ssize(routing_.kinds));
  }
  routing_.list_number_.push_back(number_of(list_));
}

/// Equal lists are one.
std::uint32_t Routing::Maker::number_of(const std::vector<Entry>& list) {
  const auto added = static_cast<std::uint32_t>(routing_.lists_.size());
  const auto [known, is_new] =
      numbers_.try_emplace(hash_bytes(std::as_bytes(std::span(list))), added);
  if (!is_new && routing_.lists_[known->second] == list) {
    return known->second;
  }
  routing_.lists_.emplace_back(list.begin(), list.end());
  return added;
}

Slot Routing::slot(const SlotAddress& address) const {
  Slot slot;
  static_cast<SlotKind&>(slot) = kind(address);
  const RowCuts& cuts = cuts_of(slot);
  slot.row_cut = row_cut(address);
  if (slot.path == Path::kHotRows) {
    slot.shard = kHotShard;
    slot.rows = Range{0, count_rows(cuts.hot)};
  } else {
    slot.shard = slot.row_cut * cuts.col_cuts + slot.col_cut;
    slot.rows = cuts.rows_of(slot.row_cut);
  }
  return slot;
}

std::vector<Slot> Routing::slots_of(std::int64_t server) const {
  std::vector<Slot> slots;
  for (std::int64_t j = 0; j < num_slots(server); ++j) {
    slots.push_back(slot({server, j}));
  }
  return slots;
}

CutSlots Routing::row_cut(const RowCuts& cuts, std::int64_t cut) const {
  if (cut == cuts.tail_cuts) {
    return CutSlots(cuts.listed.back());
  }
  if (!cuts.regular) {
    return CutSlots(std::span(cuts.listed).subspan(at(cut * cuts.col_cuts), at(cuts.col_cuts)));
  }
  const std::int64_t server = cuts.regular->rank(cut);
  return CutSlots(SlotAddress{server, slot_in(list_of(server), cuts)});
}

Path Routing::asks(std::int64_t feature, std::int64_t rank) const {
  const FeatureRoute& route = features[at(feature)];
  if (route.path != Path::kWholeBags) {
    return route.path;
  }
  if (!route.is_here) {
    return Path::kInPlace;  // nothing is asked
  }
  const CutSlots slots = row_cut(route, 0);  // the only one
  const bool in_place = std::all_of(slots.begin(), slots.end(), [&](const SlotAddress& address) {
    return path(address, rank) == Path::kInPlace;
  });
  return in_place ? Path::kInPlace : Path::kWholeBags;
}

std::int64_t Routing::heap_bytes() const {
  std::int64_t bytes = bytes_of(features) + bytes_of(fetches) + bytes_of(kinds) + bytes_of(lists_) +
                       bytes_of(list_number_);
  for (const std::vector<Entry>& list : lists_) {
    bytes += bytes_of(list);
  }
  const auto add = [&](const RowCuts& cuts) {
    bytes += bytes_of(cuts.rows) + bytes_of(cuts.hot) + bytes_of(cuts.listed);
  };
  std::for_each(features.begin(), features.end(), add);
  std::for_each(fetches.begin(), fetches.end(), add);
  return bytes;
}

}  // namespace weft::sharding
