/// Routing: which rank serves which shard of which feature. Derived once from configuration and
/// plan, equal on all ranks, static for the whole run.
///
/// Notation   F features, W ranks. A *slot* is one (feature, shard) pair: the unit of all three
///            exchanges. The shards of a table form a grid of R cuts of rows and C of columns:
///            1 x 1 for table_wise, R x 1 for row_wise, 1 x C for column_wise, R x C for
///            grid_shard. A feature of a data_parallel table has one slot that its own rank serves
///            from its replica without any exchange.
///            A table that is pooled at the sample (spec::PooledAt) is *fetched*: its features have
///            no slots, and the table has one per shard, of rows.
///            The *hot rows* of a table (spec::TablePlan::hot) are one more cut of rows, the last,
///            that every rank serves for itself: one slot of whole rows, served as data_parallel's
///            are.
/// Memory     What a slot says of its feature is kept once for all slots of the same columns
///            (SlotKind). A regular cut over more than kFewCuts ranks is a rule, as it is in the
///            plan, and nothing is kept per cut. The slots of a server are a list of kinds, and
///            servers with equal lists share one. So with D different lists of K slots Routing has
///            8 D K + 4 W bytes and a few hundred for each feature; where all tables are cut over
///            all ranks D is 1. A cut that is no rule takes 64 bytes per shard.
/// Cost       O(W F) to make. A slot's kind is three loads; its rows, server or place a few
///            divisions and a search among K.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/cut.h"
#include "weft/base/micro_batches.h"
#include "weft/base/parts.h"
#include "weft/layout/paths.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// In place of a shard's index.
inline constexpr std::int64_t kHotShard = -1;

using layout::Path;  // weft/sharding/paths has a file for each

/// What the slots of one feature, or of one fetched table, say alike that have the same columns.
struct alignas(64) SlotKind {
  std::int64_t feature = 0;  ///< -1 of a fetched table
  std::int64_t table = 0;
  Range cols;
  std::int64_t id_bytes = 4;  ///< of an id on the wire (wire_ids.h), equal for a table's slots
  /// Routing::number() of the slot of row cut 0, and how much it grows from cut to cut.
  std::int64_t first_number = 0;
  std::int32_t number_step = 1;
  std::int32_t col_cut = 0;      ///< which of its feature's or table's cuts of columns it is of
  std::int32_t fetch = -1;       ///< of a fetched table: index in Routing::fetches
  Path path = Path::kWholeBags;  ///< for samples of other ranks than the server (Routing::path)
  Path tail = Path::kWholeBags;  ///< that of the other cuts, where `path` is of hot rows
  bool is_numbered_by_rule : 1 = false;
  bool sequence : 1 = false;  ///< one vector per id instead of one per non-empty bag
  bool weighted : 1 = false;  ///< per-id weights travel with the ids
  bool packed : 1 = false;    ///< of a fetched table: its rows travel packed (wire_ids.h)

  [[nodiscard]] std::int64_t dim() const { return cols.size(); }
};

static_assert(sizeof(SlotKind) == 64, "a step goes through the kinds of thousands of slots");

/// The demand of one feature on one shard; of a fetched table that of all its features together.
struct Slot : SlotKind {
  std::int64_t shard = 0;    ///< index in TablePlan::shards, 0 for data_parallel, or kHotShard
  RowSet rows;               ///< of the shard, absolute; of hot rows [0, their number)
  std::int64_t row_cut = 0;  ///< which of its feature's or table's cuts of rows it is of
};

/// Where a slot is served: `server` is a rank, or Routing::replicated() for data_parallel and
/// hot rows; `slot` is its place among the slots of the server.
struct SlotAddress {
  std::int64_t server = 0;
  std::int64_t slot = 0;

  friend bool operator==(const SlotAddress&, const SlotAddress&) = default;
};

/// Numbers for lists of what a rank asks of slots: a rank asks most slots of a table that is cut by
/// a rule for nothing, so these have numbers of their own.
struct SlotNumber {
  bool by_rule = false;     ///< below Routing::num_by_rule, else below Routing::num_listed
  std::int64_t number = 0;  ///< of a rule's slots: they begin at a multiple of 64, by cut of rows
};

/// The cuts of a table's rows by a rule, in their order: cuts without a row are left out.
class RegularCuts {
 public:
  /// REQUIRES: a sound rule, of rows from 0 on, whose ranks are all different.
  explicit RegularCuts(const CutRule& rule)
      : rule_(rule),
        cuts_(rule.blocks_with_rows()),
        skips_(rule.by == CutBy::kRange && rule.rows.size() < rule.count) {}

  [[nodiscard]] const CutRule& rule() const { return rule_; }

  /// Their number.
  [[nodiscard]] std::int64_t size() const { return cuts_; }

  [[nodiscard]] std::int64_t rank(std::int64_t cut) const {
    return rule_.first_rank + (skips_ ? rule_.with_rows(cut) : cut) * rule_.rank_step;
  }

  [[nodiscard]] RowSet rows(std::int64_t cut) const {
    return rule_.block(rule_.with_rows(cut)).rows;
  }

  /// The cut of a rank, or -1 where it has none.
  [[nodiscard]] std::int64_t of_rank(std::int64_t rank) const {
    std::int64_t place = rank - rule_.first_rank;
    if (rule_.rank_step != 1) {
      if (place % rule_.rank_step != 0) {
        return -1;
      }
      place /= rule_.rank_step;
    }
    if (place < 0 || place >= rule_.count) {
      return -1;
    }
    if (!skips_) {
      return place < cuts_ ? place : -1;
    }
    const Range row = piece(rule_.rows.size(), rule_.count, place);  // one or none
    return row.empty() ? -1 : row.begin;
  }

 private:
  CutRule rule_;
  std::int64_t cuts_;
  bool skips_;  // some ranks have no row
};

/// The slots that are asked for the same ids.
class CutSlots {
 public:
  /// `listed` outlives it.
  explicit CutSlots(std::span<const SlotAddress> listed) : listed_(listed) {}

  explicit CutSlots(const SlotAddress& only) : only_(only) {}

  [[nodiscard]] const SlotAddress* begin() const {
    return listed_.empty() ? &only_ : listed_.data();
  }

  [[nodiscard]] const SlotAddress* end() const { return begin() + size(); }

  [[nodiscard]] std::size_t size() const { return listed_.empty() ? 1 : listed_.size(); }

  [[nodiscard]] SlotAddress front() const { return *begin(); }

  [[nodiscard]] SlotAddress operator[](std::size_t i) const { return begin()[i]; }

 private:
  std::span<const SlotAddress> listed_;
  SlotAddress only_;
};

/// The slots of a feature, or of a fetched table, by the cuts of rows that they ask for
/// (Routing::row_cut()).
struct RowCuts {
  /// Cuts by a rule are listed up to so many: what is listed is found faster.
  static constexpr std::int64_t kFewCuts = 8;

  std::int64_t first_kind = 0;    ///< that of column cut 0 in Routing::kinds; then the others
  std::int64_t first_number = 0;  ///< of its slots (Routing::number()), [R, C] and the hot rows'
  std::int64_t tail_cuts = 0;     ///< R
  std::int64_t col_cuts = 1;      ///< C
  std::optional<RegularCuts> regular;  ///< the rule, where R is more than kFewCuts; C is then 1
  std::vector<RowSet> rows;            ///< [R] of each cut; empty where there is a rule
  std::vector<Range> hot;              ///< the hot rows, in none of the cuts before; may be empty
  /// [R, C] one per shard, unless there is a rule; then that of the hot rows, if any.
  std::vector<SlotAddress> listed;

  /// R, and one for the hot rows.
  [[nodiscard]] std::int64_t row_cuts() const { return tail_cuts + (hot.empty() ? 0 : 1); }

  /// Returns the numbers of the slots of all cuts. REQUIRES: the cuts are a rule.
  [[nodiscard]] Range numbers() const { return {first_number, first_number + row_cuts()}; }

  /// The rows of a cut but that of the hot rows.
  [[nodiscard]] RowSet rows_of(std::int64_t cut) const {
    return regular ? regular->rows(cut) : rows[at(cut)];
  }
};

/// There are no cuts where the table is fetched, or of another set of tables (replica_set.h).
struct FeatureRoute : RowCuts {
  std::string name;  ///< as configured
  std::int64_t table = 0;
  spec::Sharding sharding = spec::Sharding::kTableWise;
  spec::Pooling pooling = spec::Pooling::kSum;
  bool weighted = false;            ///< ids have weights
  std::int64_t dim = 0;             ///< D of the whole table
  std::int64_t num_embeddings = 0;  ///< E of the whole table
  std::int64_t pooled_column = -1;  ///< first column in the pooled output, -1 for sequences
  std::int64_t fetch = -1;          ///< of a fetched table: index in Routing::fetches
  bool is_here = true;              ///< else of another set: it has columns, and no ids or vectors
  Path path = Path::kWholeBags;     ///< of its slots but that of hot rows
};

/// A table whose rows are cut, of which a rank asks for the rows that its samples need.
struct RowFetch : RowCuts {
  std::int64_t table = 0;
  std::string name;                    ///< of the table, for messages
  std::int64_t dim = 0;                ///< D of the whole table
  std::vector<std::int64_t> features;  ///< that read it, as configured
};

struct Routing {
  /// Of `group` of the plan's mesh (weft/spec/mesh.h): ranks are places in it. Tables without
  /// shards in the plan are of another set.
  Routing(const spec::Config& config, const spec::Plan& plan, std::int64_t group = 0);

  /// The server of the slots that every rank serves from its own replica or hot rows.
  [[nodiscard]] std::int64_t replicated() const { return ranks; }

  /// Whether `rank` serves the slot for its own samples.
  [[nodiscard]] bool served_by(const SlotAddress& address, std::int64_t rank) const {
    return address.server == rank || address.server == replicated();
  }

  /// How many slots a server has. They are ordered by feature, then shard; fetched tables follow.
  [[nodiscard]] std::int64_t num_slots(std::int64_t server) const {
    return std::ssize(list_of(server));
  }

  /// What a slot has in common with those of other rows.
  [[nodiscard]] const SlotKind& kind(const SlotAddress& address) const {
    return kinds[kind_number(address)];
  }

  /// Returns the place of that among `kinds`.
  [[nodiscard]] std::size_t kind_number(const SlotAddress& address) const {
    return list_of(address.server)[at(address.slot)].kind;
  }

  /// Which of its feature's or table's cuts of rows a slot is of.
  [[nodiscard]] std::int64_t row_cut(const SlotAddress& address) const {
    const Entry& entry = list_of(address.server)[at(address.slot)];
    return entry.cut >= 0 ? entry.cut : cuts_of(kinds[entry.kind]).regular->of_rank(address.server);
  }

  /// The number of a slot in lists of what a rank asks.
  [[nodiscard]] SlotNumber number(const SlotAddress& address) const {
    const SlotKind& of = kind(address);
    return {of.is_numbered_by_rule, of.first_number + row_cut(address) * of.number_step};
  }

  /// Puts a slot together.
  [[nodiscard]] Slot slot(const SlotAddress& address) const;

  /// Those of a server, in their order.
  [[nodiscard]] std::vector<Slot> slots_of(std::int64_t server) const;

  /// The slots of one cut of rows, which are asked for the same ids: [C] by column, one of the
  /// hot rows. `cuts` is of `features` or `fetches`, which outlive what is returned.
  [[nodiscard]] CutSlots row_cut(const RowCuts& cuts, std::int64_t cut) const;

  /// Finds the slots of a rule's cuts one after the other.
  class RuleSlots;

  /// Those that a slot of this kind is one of.
  [[nodiscard]] const RowCuts& cuts_of(const SlotKind& kind) const {
    return kind.fetch < 0 ? static_cast<const RowCuts&>(features[at(kind.feature)])
                          : fetches[at(kind.fetch)];
  }

  /// What a slot is of, for messages.
  [[nodiscard]] std::string name_of(const SlotKind& slot) const {
    return slot.fetch < 0 ? "feature " + features[at(slot.feature)].name
                          : "table " + fetches[at(slot.fetch)].name;
  }

  /// The path between the slot's server and the samples of `source`: a rank that serves itself
  /// whole bags does so in place.
  [[nodiscard]] Path path(const SlotAddress& address, std::int64_t source) const {
    const layout::PathBlock block{.path = kind(address).path, .own = address.server == source};
    return block.taken();
  }

  /// The path by which the samples of `rank` ask for a feature's ids: in place where all its slots
  /// are.
  [[nodiscard]] Path asks(std::int64_t feature, std::int64_t rank) const;

  /// Parts of the global batch that `rank` has, and its samples of one of `global_size`.
  [[nodiscard]] Range own_parts(std::int64_t rank) const {
    return rank_parts(parts, positions, first_position + rank);
  }

  [[nodiscard]] Range own_samples(std::int64_t global_size, std::int64_t rank) const {
    return rank_samples(global_size, parts, positions, first_position + rank);
  }

  /// The parts of a micro-batch of `rank`.
  [[nodiscard]] Range cut_parts(std::int64_t rank, std::int64_t cut) const {
    return micro_batches.parts(own_parts(rank), cut);
  }

  /// Its bags, among those of the rank's part of a batch.
  [[nodiscard]] Range cut_bags(std::int64_t global_size,
                               std::int64_t rank,
                               std::int64_t cut) const {
    const Range of_cut = cut_parts(rank, cut);
    const std::int64_t first = own_samples(global_size, rank).begin;
    return {part_samples(global_size, parts, of_cut.begin).begin - first,
            part_samples(global_size, parts, of_cut.end).begin - first};
  }

  /// Runs of the rank's parts, each in one micro-batch and in one of its nodes().
  [[nodiscard]] std::vector<Range> runs(std::int64_t rank) const {
    return micro_batches.runs(parts, own_parts(rank));
  }

  /// The maximal whole subtrees of the rank's parts.
  [[nodiscard]] std::vector<Range> nodes(std::int64_t rank) const {
    return maximal_subtrees(parts, own_parts(rank));
  }

  /// Bytes that it keeps on the heap, but for the names and features of tables.
  [[nodiscard]] std::int64_t heap_bytes() const;

  std::int64_t ranks = 1;              ///< of the group
  std::int64_t parts = 1;              ///< of the global batch, over all groups
  std::int64_t positions = 1;          ///< ranks of all groups
  std::int64_t first_position = 0;     ///< of rank 0 among them
  MicroBatches micro_batches;          ///< of every batch
  std::int64_t pooled_columns = 0;     ///< width of the pooled output
  std::vector<FeatureRoute> features;  ///< [F], as configured
  std::vector<RowFetch> fetches;       ///< fetched tables that some feature reads
  std::vector<SlotKind> kinds;         ///< those of a feature or fetched table behind each other
  std::int64_t num_listed = 0;         ///< slots that are numbered one by one,
  std::int64_t num_by_rule = 0;        ///< and of rules

 private:
  /// A slot of a server.
  struct Entry {
    std::uint32_t kind = 0;
    std::int32_t cut = kByRule;  ///< of rows

    friend bool operator==(const Entry&, const Entry&) = default;
  };

  static constexpr std::int32_t kByRule = -1;  ///< in place of a cut that follows from the rank

  class Maker;

  [[nodiscard]] std::span<const Entry> list_of(std::int64_t server) const {
    return lists_[list_number_[at(server)]];
  }

  /// Where the slot of an owner whose cuts are a rule is in a list that has it.
  [[nodiscard]] static std::int64_t slot_in(std::span<const Entry> list, const RowCuts& cuts) {
    // Kinds ascend from owner to owner, and this one has but one that ranks serve.
    const auto found = std::partition_point(list.begin(), list.end(), [&](const Entry& one) {
      return static_cast<std::int64_t>(one.kind) < cuts.first_kind;
    });
    return found - list.begin();
  }

  std::vector<std::vector<Entry>> lists_;   // all different
  std::vector<std::uint32_t> list_number_;  // [W + 1] of each server
};

/// RuleSlots says where a rule's cuts are served: row_cut(cuts, cut).front(). Servers whose lists
/// of slots are one have the slot at one place, which is looked for once as long as they follow
/// each other.
class Routing::RuleSlots {
 public:
  /// Both outlive it. REQUIRES: the cuts are a rule.
  RuleSlots(const Routing& routing, const RowCuts& cuts) : routing_(routing), cuts_(cuts) {}

  /// Returns the slot of a cut, which may be that of the hot rows. It takes a search where the
  /// server's list is another than before, else a division.
  [[nodiscard]] SlotAddress of(std::int64_t cut) {
    if (cut == cuts_.tail_cuts) {
      return cuts_.listed.back();
    }
    const std::int64_t server = cuts_.regular->rank(cut);
    const auto list = static_cast<std::int64_t>(routing_.list_number_[at(server)]);
    if (list != list_) {
      list_ = list;
      slot_ = slot_in(routing_.lists_[at(list)], cuts_);
    }
    return {server, slot_};
  }

 private:
  const Routing& routing_;
  const RowCuts& cuts_;
  std::int64_t list_ = -1;  // that of the server before
  std::int64_t slot_ = 0;   // the place in it
};

}  // namespace weft::sharding
