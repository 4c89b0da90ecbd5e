/// AskedIds: what the batch of a rank asks of all slots. IdPacker fills it; the paths of the slots
/// (weft/sharding/paths) keep here what they have found out about the batch in hand.
///
/// Memory      buffers grow to the longest batch that has been seen, and are reused.
/// Threads     tasks of a pool write to places of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/comm/collective.h"
#include "weft/kernels/assemble_bags.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/present_set.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/row_owner.h"
#include "weft/sharding/task_list.h"
#include "weft/sharding/turns_ahead.h"
#include "weft/sharding/unique_rows.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

/// What this rank asks of one slot.
struct AskedSlot {
  std::int64_t ids = 0;
  std::int16_t length_bytes = 4;  ///< of a bag's length on the wire, once all lengths are known
  std::int16_t bag_bytes = 0;     ///< of an id's bag, where bags are listed; else 0
  std::int32_t packed_bytes = 0;  ///< of packed rows, else 0
  std::int64_t vectors = 0;       ///< that come back
  std::int64_t gradients = 0;     ///< that go out
  /// [vectors] the bag of the batch, the id of the sequence or the unique row that each vector
  /// belongs to; null: vector i to the i-th.
  const std::int32_t* rows = nullptr;
  const std::int32_t* gradient_rows = nullptr;  ///< [gradients] likewise, where each lies
};

/// What one task has found in its run of bags for one cut of rows; once joined, what the tasks
/// before it have, and from there on the places that it fills.
struct CutCount {
  /// How many unused ones lie between those of two tasks, so that these share no cache line.
  static constexpr std::int64_t kBetweenTasks = 2;

  std::int64_t first_id = 0;  ///< of the task, once joined
  std::int64_t first_bag = 0;
  std::int64_t ids = 0;
  std::int64_t bags = 0;  ///< non-empty
  std::int64_t last_bag = -1;
};

/// One task of packing: a run of bags of one feature.
struct BagTask {
  std::int64_t feature = 0;
  Range bags;
  std::span<CutCount> counts;  ///< one per cut of rows
};

/// How one feature's bags are cut into tasks.
struct FeatureTasks {
  std::int64_t bags_per_task = 1;
  std::int64_t tasks = 0;
  /// Of rows: counts per task. Of a rule only those that the batch asks, once its bags have been
  /// read.
  std::int64_t cuts = 1;
  std::int64_t counts_begin = 0;      ///< into AskedIds::counts, where those of each task are
  std::int64_t first_place = 0;       ///< of its slots, by cut, then column
  std::int64_t writers_begin = 0;     ///< into AskedBags::writers, [cuts]
  bool by_rule = false;               ///< its cuts are a rule; then it has one task
  std::vector<CutCount> rule_counts;  ///< its counts then
  bool fills = false;  ///< its bags are read a second time, once all have been counted

  /// Where the counts of a task begin among AskedIds::counts.
  [[nodiscard]] std::int64_t counts_of(std::int64_t task) const {
    return counts_begin + task * (cuts + CutCount::kBetweenTasks);
  }
};

/// What a rank asks of itself other than in place: ids as lookups take them.
struct OwnIds {
  std::vector<IncomingBlock> blocks;  ///< [own slots], then [replicated slots]
  std::vector<std::int64_t> ids, offsets;
  std::vector<float> weights;
  std::int64_t num_ids = 0, num_offsets = 0;

  [[nodiscard]] std::span<const std::int64_t> used_ids() const { return {ids.data(), at(num_ids)}; }

  [[nodiscard]] std::span<const std::int64_t> used_offsets() const {
    return {offsets.data(), at(num_offsets)};
  }

  [[nodiscard]] std::span<const float> used_weights() const {
    return {weights.data(), std::min(weights.size(), at(num_ids))};
  }
};

/// Of slots that are asked for bags: where their sections lie in what is sent.
struct AskedBags {
  /// One slot's part of `bytes` and `rows`.
  struct Section {
    std::int64_t bags_at = 0;  ///< bytes; lengths of all bags, or the bag of each id (wire_ids.h)
    std::int64_t ids_at = 0;
    std::int64_t weights_at = -1;  ///< -1: the batch's own; of a split feature: not sent
    std::int64_t rows_at = -1;     ///< into `rows`; -1: vector i belongs to bag i
  };

  /// Where a split feature's ids of one cut of rows go.
  struct Writer {
    std::int32_t* bags = nullptr;  ///< [B] lengths, or, where bags are listed, [ids] each one's bag
    bool is_listed = false;
    std::byte* ids = nullptr;  ///< of the feature's width
    float* weights = nullptr;
    std::int32_t* rows = nullptr;
  };

  /// Of a split feature: which vectors each of its bags is the sum of.
  struct TermSection {
    std::int64_t begins_at = 0;  ///< into `term_begins`
    std::int64_t terms_at = 0;   ///< into `terms`
  };

  /// Takes room for a section, which stays aligned; returns where it begins.
  std::int64_t take_bytes(std::int64_t size) {
    const std::int64_t begin = num_bytes;
    num_bytes += (size + 7) / 8 * 8;
    return begin;
  }

  /// What says which bags a section's ids are of, while it is filled.
  [[nodiscard]] std::int32_t* bags(const Section& section) {
    return reinterpret_cast<std::int32_t*>(bytes.data() + section.bags_at);
  }

  [[nodiscard]] kernels::BagTerms terms_of(const TermSection& section) const {
    return {term_begins.data() + section.begins_at, terms.data() + section.terms_at};
  }

  std::vector<Section> sections;  ///< by place (AskedIds::place())
  std::vector<std::byte> bytes;   ///< what is sent
  std::int64_t num_bytes = 0;
  std::vector<std::int32_t> rows;
  std::int64_t num_rows = 0;
  std::vector<Writer> writers;  ///< of split features, by cut of rows
  /// [values of the batch, where some feature's cuts are a rule] The ids of such split features
  /// have their cut here, counted among FeatureTasks::cuts, and their row in it.
  std::vector<RowPlace> row_places;
  std::vector<TermSection> term_sections;  ///< of split features
  std::vector<std::int32_t> term_begins;   ///< [B + 1] of each
  std::vector<kernels::BagTerm> terms;     ///< as many as vectors
  std::int64_t num_term_begins = 0, num_terms = 0;
};

/// Of tables that are asked for rows, each once.
struct AskedRows {
  std::vector<UniqueRows> tables;    ///< [fetches]
  std::vector<std::int64_t> places;  ///< as the batch's values: the place of each of their ids
};

/// A slot of a server that gets ids.
struct ServerSlot {
  std::int32_t slot = 0;   ///< number among the server's
  std::int32_t place = 0;  ///< AskedIds::place()
};

/// How long a packed lane (id_lanes.h) is.
struct LaneBytes {
  std::int64_t counts = 0;  ///< its marks and counts
  std::int64_t all = 0;     ///< with its sections; 0: it has no ids
};

struct AskedIds {
  AskedIds(const Routing& of, std::int64_t own_rank);

  /// In place of a place.
  static constexpr std::int64_t kNowhere = -1;

  /// Where in the lists below a slot is: all slots that Routing lists are there; of a rule's those
  /// that the batch asks, once its bags have been read.
  [[nodiscard]] std::int64_t place(const SlotAddress& address) const {
    const SlotNumber of = routing->number(address);
    if (!of.by_rule) {
      return of.number;
    }
    return present.has(of.number) ? routing->num_listed + present.place(of.number) : kNowhere;
  }

  /// One without ids for a slot that is nowhere.
  [[nodiscard]] const AskedSlot& slot(const SlotAddress& address) const {
    return slot_at(place(address));
  }

  /// By place, or nowhere.
  [[nodiscard]] const AskedSlot& slot_at(std::int64_t place) const {
    static constexpr AskedSlot kNone{.length_bytes = 0};
    return place < 0 ? kNone : slots[at(place)];
  }

  /// Calls visit(cut, row_cut, places) for the cuts of a feature, counted among FeatureTasks::cuts:
  /// which cut of the table's rows each is, and the places of its slots.
  template <typename Visit>
  void for_cuts(std::int64_t feature, const Visit& visit) const {
    const FeatureTasks& of = features[at(feature)];
    const RowCuts& table = routing->features[at(feature)];
    // Read once: what is visited may write what the compiler cannot tell from these.
    const std::int64_t cuts = of.cuts, tail_cuts = table.tail_cuts, col_cuts = table.col_cuts;
    const std::int32_t* const rule = of.by_rule ? rule_cuts_of(feature) : nullptr;
    std::int64_t first = of.first_place;
    for (std::int64_t k = 0; k < cuts; ++k, first += col_cuts) {
      const std::int64_t row_cut = rule != nullptr ? rule[k] : k;
      visit(k, row_cut, Range{first, first + (row_cut == tail_cuts ? 1 : col_cuts)});
    }
  }

  /// Those of all of a feature whose cuts are a rule, ascending.
  [[nodiscard]] const std::int32_t* rule_cuts_of(std::int64_t feature) const {
    return rule_cuts.data() + features[at(feature)].first_place - routing->num_listed;
  }

  /// Gives those slots of a rule places that are present of these cuts, `count` that have been
  /// counted from 0; returns the first.
  std::int64_t add_places(const RowCuts& cuts, std::int64_t count);

  /// Lists which slots of each server get ids.
  void list_servers();

  /// The slots of a server that get ids, in its order.
  [[nodiscard]] std::span<const ServerSlot> slots_of(std::int64_t server) const {
    return std::span(server_slots).subspan(at(server_begins[at(server)]), at(marked_slots(server)));
  }

  /// How many these are.
  [[nodiscard]] std::int64_t marked_slots(std::int64_t server) const {
    return server_begins[at(server) + 1] - server_begins[at(server)];
  }

  /// Calls visit(address, place) for the slots of a server that get ids, in its order.
  template <typename Visit>
  void for_slots_with_ids(std::int64_t server, const Visit& visit) const {
    for (std::int64_t i = server_begins[at(server)]; i < server_begins[at(server) + 1]; ++i) {
      if (i + kTurnsAhead < server_begins.back()) {
        prefetch(&slots[at(server_slots[at(i + kTurnsAhead)].place)]);
      }
      const ServerSlot& one = server_slots[at(i)];
      visit(SlotAddress{server, one.slot}, one.place);
    }
  }

  /// Asks for the sections of the slots ahead of one of a server's, which are about to be read.
  void prefetch_sections(std::int64_t server_slot) const {
    if (server_slot + 2 * kTurnsAhead < server_begins.back()) {
      prefetch(&bags.sections[at(server_slots[at(server_slot + 2 * kTurnsAhead)].place)]);
      const std::int32_t place = server_slots[at(server_slot + kTurnsAhead)].place;
      __builtin_prefetch(bags.bytes.data() + bags.sections[at(place)].bags_at);
    }
  }

  /// Index in own.blocks.
  [[nodiscard]] std::size_t own_index(const SlotAddress& address) const {
    return at(address.slot + (address.server == rank ? 0 : own_slots));
  }

  [[nodiscard]] SlotCounts counts_of(const SlotAddress& address) const {
    return wire_counts(slot(address));
  }

  /// Returns what a slot's server is told of its sizes.
  [[nodiscard]] SlotCounts wire_counts(const AskedSlot& asked) const {
    return {.batch = static_cast<std::int32_t>(batch.sparse.batch),
            .length_bytes = asked.length_bytes,
            .bag_bytes = asked.bag_bytes,
            .ids = static_cast<std::int32_t>(asked.ids),
            .packed_bytes = asked.packed_bytes};
  }

  /// The bags and counts of one task.
  [[nodiscard]] BagTask task(std::int64_t feature, std::int64_t index) {
    const FeatureTasks& of = features[at(feature)];
    return {.feature = feature,
            .bags = {index * of.bags_per_task,
                     std::min((index + 1) * of.bags_per_task, batch.sparse.batch)},
            .counts = of.by_rule ? std::span(features[at(feature)].rule_counts)
                                 : std::span(counts).subspan(at(of.counts_of(index)), at(of.cuts))};
  }

  /// Turns what the tasks have counted for a cut of rows into the places that they fill; returns
  /// the total.
  CutCount join(std::int64_t feature, std::int64_t cut);

  /// The lane to a rank: of each slot that it serves, what its path sends.
  [[nodiscard]] std::span<const comm::Piece> lane(std::int64_t server) const {
    return lanes.of(server);
  }

  std::int64_t rank = 0, own_slots = 0;
  BatchView batch;
  std::vector<Range> cut_bags;  ///< [micro-batches] the batch's bags of each
  const Routing* routing = nullptr;
  PresentSet present;                       ///< of the slots of rules those that have places
  std::int64_t num_places = 0;              ///< of slots
  std::vector<AskedSlot> slots;             ///< by place
  std::vector<SlotAddress> addresses;       ///< by place
  std::vector<std::int32_t> rule_cuts;      ///< of rows, by place behind Routing::num_listed
  std::vector<Range> fetch_places;          ///< [fetches] of a rule
  std::vector<std::int64_t> server_begins;  ///< [W + 2] in `server_slots`
  std::vector<ServerSlot> server_slots;     ///< those of each server that get ids
  IdLanes lanes;                            ///< to each rank; a packed lane has one piece or none
  std::vector<std::byte> lane_bytes;        ///< of packed lanes (id_lanes.h)
  std::vector<LaneBytes> lane_sizes;        ///< [W]
  std::vector<FeatureTasks> features;       ///< [F]
  std::vector<CutCount> counts;
  TaskList read_tasks, fill_tasks;  ///< of features
  OwnIds own;
  AskedBags bags;
  AskedRows rows;
};

}  // namespace weft::sharding
