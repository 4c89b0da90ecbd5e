#include "weft/planner/step_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/cost/codec.h"
#include "weft/cost/memory.h"
#include "weft/cost/tables.h"
#include "weft/planner/relay_memory.h"

namespace weft::planner {
namespace {

using cost::block_bytes;

constexpr double kGrown = 1.125;  // Buffer::resize

/// A number of things, and whether every batch has as many.
struct Count {
  double value = 0.0;
  bool fixed = true;

  Count& operator+=(const Count& other) {
    value += other.value;
    fixed = fixed && other.fixed;
    return *this;
  }
};

/// What a buffer with `bytes` for each counts for.
double buffer_bytes(const Count& count, double bytes) {
  return block_bytes(count.value * bytes * (count.fixed ? 1.0 : kGrown));
}

/// Every bag has as many ids.
bool has_fixed_length(const FeatureUse& use) {
  return use.present == 1.0 && use.length == std::floor(use.length);
}

bool looks_at_whole_rows(const spec::SparseOptimizer& optimizer) {
  return traits(optimizer.type).is_row_wise || optimizer.max_norm > 0.0;
}

/// Ranks with as many samples, in parts that lie alike in the tree.
struct RankKind {
  double samples = 0.0;
  std::vector<double> subtrees = {};  ///< shares of the samples
  double parts = 0.0;
  double ranks = 0.0;
};

/// Partial sums of a rank: per (row, part), and per (row, whole subtree of its parts).
struct Partials {
  Count segments, sums;
};

/// What a rank's samples want of a fetched table: different rows, and partial sums of gradients.
struct Asked {
  double rows = 0.0, sums = 0.0;
};

/// Bytes of vectors, or of gradients: of shards (at their rank), and of samples.
struct Wire {
  CodecFormat format = CodecFormat::kFp32;
  std::vector<Count> at_shards = {};   ///< [ranks] to or from all ranks
  std::vector<Count> at_samples = {};  ///< [kinds] from or to all shards
  std::vector<double> kept = {};       ///< [ranks] of these what is the rank's own and goes no way
  std::vector<Count> in_place = {};    ///< [ranks] of matrices
  std::vector<Count> to_itself = {};   ///< [ranks] of hot rows
  std::vector<int> slots = {};         ///< [ranks] blocks that a rank has for each rank
  std::optional<RelayedLanes> relayed = {};

  [[nodiscard]] bool is_on() const { return format != CodecFormat::kFp32; }
};

class BufferSizes {
 public:
  BufferSizes(const spec::Config& config,
              const Workload& workload,
              const spec::Plan& plan,
              Transport transport,
              const HotUses& hot_uses)
      : config_(config),
        plan_(plan),
        transport_(transport),
        hot_uses_(hot_uses),
        uses_(config.tables.size()),
        memory_(at(plan.ranks)),
        served_(memory_.size()),
        asked_of_itself_(memory_.size()) {
    for (const FeatureUse& use : workload.features) {
      uses_[at(use.table)].features.push_back(&use);
    }
    for (JointUse& table : uses_) {
      table.joined = table.features.empty() ? unread() : joined(table.features);
    }
    sort_ranks();
    asked_.resize(kinds_.size());
    forward_.format = config.codecs.forward;
    backward_.format = config.codecs.backward;
    for (Wire* wire : {&forward_, &backward_}) {
      wire->at_shards.resize(memory_.size());
      wire->at_samples.resize(kinds_.size());
      wire->kept.resize(memory_.size());
      wire->in_place.resize(memory_.size());
      wire->to_itself.resize(memory_.size());
      wire->slots.resize(memory_.size());
    }
    lay_out_hosts();
  }

  std::vector<StepMemory> run() {
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      add_table(t);
    }
    std::vector<double> matrices;  // [kinds]
    for (const RankKind& kind : kinds_) {
      matrices.push_back(matrices_of(kind));
    }
    add_up_relays();
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      StepMemory& memory = memory_[rank];
      memory.served = buffer_bytes(served_[rank], cost::kFloatBytes);
      if (transport_ == Transport::kReceived || forward_.is_on()) {
        Count asked = asked_[kind_of_[rank]];
        asked.value -= asked_of_itself_[rank];
        memory.served += buffer_bytes(asked, cost::kFloatBytes);
      }
      memory.encoded = encoded_of(rank);
      memory.relays = relays_of(rank);
      memory.matrices = matrices[kind_of_[rank]];
    }
    return std::move(memory_);
  }

 private:
  /// Of several groups those of the one with most samples.
  void sort_ranks() {
    std::int64_t group = 0;
    std::int64_t most = 0;
    for (std::int64_t g = 0; g < plan_.groups; ++g) {
      const auto samples = rank_samples(config_.batch_size, plan_.parts, plan_.groups, g).size();
      group = samples > most ? g : group;
      most = std::max(most, samples);
    }
    batch_ = static_cast<double>(most);
    std::map<std::vector<double>, std::size_t> known;
    for (std::int64_t rank = 0; rank < plan_.ranks; ++rank) {
      const std::int64_t position = group * plan_.ranks + rank;
      const Range own = rank_parts(plan_.parts, plan_.world(), position);
      RankKind kind{
          .samples = static_cast<double>(
              rank_samples(config_.batch_size, plan_.parts, plan_.world(), position).size()),
          .parts = static_cast<double>(own.size())};
      for (const Range& subtree : maximal_subtrees(plan_.parts, own)) {
        kind.subtrees.push_back(static_cast<double>(subtree.size()) / kind.parts);
      }
      std::vector<double> key = kind.subtrees;
      key.push_back(kind.samples);
      const auto found = known.try_emplace(key, kinds_.size());
      if (found.second) {
        kinds_.push_back(kind);
      }
      kind_of_.push_back(found.first->second);
      kinds_[kind_of_.back()].ranks += 1.0;
    }
  }

  void add_table(std::size_t t) {
    const spec::TablePlan& plan = plan_.tables[t];
    const std::int64_t rows = config_.tables[t].num_embeddings;
    if (plan.sharding == spec::Sharding::kDataParallel) {
      add_replicas(t, rows, uses_[t], false);
      return;
    }
    const auto hot_use = hot_uses_.of(static_cast<std::int64_t>(t), plan.hot);
    const bool cut = hot_use || std::any_of(plan.shards.begin(), plan.shards.end(),
                                            [&](const spec::Shard& shard) {
                                              return !(shard.rows == plan.shards.front().rows);
                                            });
    const bool fetched = cut && plan.pooled_at == spec::PooledAt::kSample;
    if (hot_use) {
      add_replicas(t, hot_use->rows->size(), hot_use->hot, fetched);
      add_hot_vectors(t, hot_use->hot, fetched);
      const double numbers = block_bytes(8.0 * static_cast<double>(hot_use->rows->size()));
      for (StepMemory& memory : memory_) {
        memory.tables += numbers;
      }
    }
    const JointUse& use = hot_use ? hot_use->tail : uses_[t];
    held_.clear();
    std::vector<Asked> asked;  // [kinds] of a fetched table
    for (const RankKind& kind : kinds_) {
      asked.push_back(fetched ? asked_by(kind, use.joined, rows) : Asked{});
    }
    for (const spec::Shard& shard : plan.shards) {
      memory_[at(shard.rank)].tables += block_bytes(static_cast<double>(
          cost::shard_bytes(config_.tables[t], shard.rows.size(), shard.cols.size())));
      if (fetched) {
        add_fetched_shard(t, shard, use.joined, asked);
      } else {
        add_shard(t, shard, cut, use, hot_use.get());
      }
    }
    if (fetched) {
      add_fetched(t);
    }
    if (statistics_) {
      add_statistics(t, use.joined);
    }
  }

  /// Of all rows that shards serve.
  [[nodiscard]] static Asked asked_by(const RankKind& kind,
                                      const FeatureUse& use,
                                      std::int64_t rows) {
    const double share = share_of_rows(use, Range{0, rows}, rows);
    const double own = kind.samples * use.length * share;
    const FeatureUse held = use_of_rows(use, Range{0, rows}, rows);
    return {.rows = unique_rows(held, own), .sums = partials(kind, held, own).sums.value};
  }

  static double entry_bytes(const Count& entries, bool weighted) {
    return 2.0 * buffer_bytes(entries, 8.0) + 3.0 * buffer_bytes(entries, 4.0) +
           (weighted ? buffer_bytes(entries, cost::kFloatBytes) : 0.0);
  }

  static void add_entries(StepMemory& memory, const Count& entries, bool weighted) {
    memory.entries += entry_bytes(entries, weighted);
  }

  static void add_partials(StepMemory& memory, const Partials& partials, double columns) {
    memory.partials += 2.0 * buffer_bytes(partials.segments, 8.0) +
                       buffer_bytes(partials.segments, 4.0) +
                       buffer_bytes(partials.sums, cost::kFloatBytes * columns);
  }

  [[nodiscard]] bool is_weighted(std::size_t t) const {
    return std::any_of(uses_[t].features.begin(), uses_[t].features.end(),
                       [](const FeatureUse* use) { return use->weighted && use->pooled; });
  }

  /// Ids of `samples`.
  [[nodiscard]] static Count ids(const JointUse& table, double samples) {
    Count ids;
    for (const FeatureUse* use : table.features) {
      ids += {samples * use->length, has_fixed_length(*use)};
    }
    return ids;
  }

  /// Of so many ids.
  [[nodiscard]] static Partials partials(const RankKind& kind, const FeatureUse& use, double ids) {
    Partials made{.segments = {kind.parts * unique_rows(use, ids / kind.parts), false},
                  .sums = {0.0, false}};
    for (const double share : kind.subtrees) {
      made.sums.value += unique_rows(use, ids * share);
    }
    return made;
  }

  /// What falls on a cut of rows of a table.
  struct Held {
    RowSet rows;  ///< as many from 0 on where rows are in no order, and none is hot
    Count entries;
    double entry_bytes = 0.0;
    std::vector<Count> vectors;  ///< [uses][kinds]
    std::vector<double> shares;  ///< [uses] of the ids
    std::optional<double> unique = {};
  };

  /// Of cuts that are alike once.
  Held& held_by(std::size_t t, const RowSet& rows, bool cut, const JointUse& table) {
    const bool distinct =
        std::any_of(table.features.begin(), table.features.end(),
                    [](const FeatureUse* use) { return use->by_frequency || use->hot; });
    const RowSet key = distinct ? rows : RowSet(0, rows.size());
    const auto known =
        std::find_if(held_.begin(), held_.end(), [&](const Held& one) { return one.rows == key; });
    if (known != held_.end()) {
      return *known;
    }
    if (held_.size() == kMostHeld) {
      held_.clear();
    }
    Held held{.rows = key, .entries = {}, .entry_bytes = 0.0, .vectors = {}, .shares = {}};
    for (const FeatureUse* use : table.features) {
      const double on_rows = share_of_rows(*use, rows, config_.tables[t].num_embeddings);
      const bool fixed = !cut && has_fixed_length(*use);
      held.shares.push_back(on_rows);
      held.entries += {batch_ * use->length * on_rows, fixed};
      for (const RankKind& source : kinds_) {
        held.vectors.push_back({use->pooled ? bags_of(*use, on_rows, source.samples)
                                            : source.samples * use->length * on_rows,
                                fixed});
      }
    }
    held.entry_bytes = entry_bytes(held.entries, is_weighted(t));
    held_.push_back(std::move(held));
    return held_.back();
  }

  void add_shard(std::size_t t,
                 const spec::Shard& shard,
                 bool cut,
                 const JointUse& joint,
                 const HotUse* hot_use) {
    const spec::Table& table = config_.tables[t];
    StepMemory& memory = memory_[at(shard.rank)];
    const auto columns = static_cast<double>(shard.cols.size());
    Held& held = held_by(t, shard.rows, cut, joint);
    const std::vector<const FeatureUse*>& uses = joint.features;
    const bool has_hot = !plan_.tables[t].hot.empty();  // rounds the matrix by itself
    for (std::size_t use = 0; use < uses.size(); ++use) {
      add_vectors(
          shard.rank, cut,
          [&](std::size_t source) {
            const Count& vectors = held.vectors[use * kinds_.size() + source];
            return Count{vectors.value * columns, vectors.fixed};
          },
          cut && uses[use]->pooled);
      const std::span vectors(&held.vectors[use * kinds_.size()], kinds_.size());
      const FeatureUse* const in_place = has_hot ? nullptr : uses[use];
      add_wire(forward_, shard, vectors, {.own = !cut, .use = in_place});
      add_wire(backward_, shard, vectors, {.own = !cut || uses[use]->pooled, .use = in_place});
      if (ids_) {
        add_ids(shard.rank, *uses[use], held.shares[use], largest_cut(shard.rows, hot_use));
      }
    }
    memory.entries += held.entry_bytes;
    if (shard.cols.size() < table.embedding_dim && looks_at_whole_rows(table.optimizer)) {
      if (!held.unique) {
        held.unique = unique_rows(use_of_rows(joint.joined, shard.rows, table.num_embeddings),
                                  held.entries.value);
      }
      add_column_rows(memory, t, shard, {*held.unique, false});
    }
  }

  /// Floats that a shard has for every rank; for its own only where rows are cut.
  /// Of encoded ones those of split bags are decoded to where they are added from.
  template <typename Of>
  void add_vectors(std::int64_t rank, bool cut, const Of& of, bool of_split_bags) {
    const std::size_t own = kind_of_[at(rank)];
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const Count one = of(kind);
      const double ranks = kinds_[kind].ranks - (kind == own && !cut ? 1.0 : 0.0);
      served_[at(rank)] += {ranks * one.value, one.fixed};
      if (!forward_.is_on()) {
        asked_[kind] += one;
        asked_of_itself_[at(rank)] += kind == own ? one.value : 0.0;
      } else if (of_split_bags) {
        asked_[kind] += one;
      }
    }
  }

  /// What a rank does with its own vectors of a shard: `own` are rounded in the matrix of `use`,
  /// unless that is null.
  struct Kept {
    bool own = false;
    const FeatureUse* use = nullptr;
  };

  /// `vectors`: [kinds] of a rank's samples.
  void add_wire(Wire& wire,
                const spec::Shard& shard,
                std::span<const Count> vectors,
                const Kept& kept) {
    const auto width = static_cast<double>(
        encoded_bytes(wire.format, config_.codecs.group_size, shard.cols.size()));
    const std::size_t rank = at(shard.rank);
    const std::size_t own = kind_of_[rank];
    for (std::size_t kind = 0; kind < kinds_.size() && wire.relayed; ++kind) {
      wire.relayed->add(rank, kind, vectors[kind].value * width);
    }
    wire.slots[rank] += 1;
    for (std::size_t kind = 0; kind < kinds_.size() && wire.is_on(); ++kind) {
      const Count one{vectors[kind].value * width, vectors[kind].fixed};
      const bool stays = kind == own && kept.own;
      wire.at_shards[rank] += {(kinds_[kind].ranks - (stays ? 1.0 : 0.0)) * one.value, one.fixed};
      wire.at_samples[kind] += one;
      wire.kept[rank] += stays ? one.value : 0.0;
    }
    if (kept.own && kept.use != nullptr && wire.is_on()) {
      const Count rows = kept.use->pooled ? Count{kinds_[own].samples, true}
                                          : Count{kinds_[own].samples * kept.use->length,
                                                  has_fixed_length(*kept.use)};
      wire.in_place[rank] += {rows.value * width, rows.fixed};
    }
  }

  /// Relays do not lend.
  void lay_out_hosts() {
    const spec::CollectiveForms& forms = plan_.collectives;
    const bool vectors = forms.vectors == spec::CollectiveForm::kHierarchical;
    const bool ids = forms.ids == spec::CollectiveForm::kHierarchical;
    if (!(vectors || ids) || plan_.hosts.empty()) {
      return;
    }
    layout_.emplace(std::vector<int>(plan_.hosts.begin(), plan_.hosts.end()));
    if (layout_->is_flat()) {
      layout_.reset();
      return;
    }
    if (ids) {
      ids_.emplace(*layout_, kind_of_, kinds_.size());
    }
    if (vectors) {
      transport_ = Transport::kReceived;
      replica_rows_.resize(kinds_.size());
      statistics_.emplace(*layout_);
      for (Wire* wire : {&forward_, &backward_}) {
        wire->relayed.emplace(*layout_, kind_of_, kinds_.size());
      }
    }
  }

  void add_up_relays() {
    for (std::optional<RelayedLanes>* lanes : {&ids_, &forward_.relayed, &backward_.relayed}) {
      if (*lanes) {
        (*lanes)->add_up_hosts();
      }
    }
    if (statistics_) {
      replicas_.emplace(*layout_, kind_of_, replica_rows_);
    }
  }

  /// Of the communicator of ids, whose lanes are never one run, and of that of vectors, gradients,
  /// row statistics and replicas' rows. Vectors and what is encoded lie in one run, gradients that
  /// come in one per slot.
  [[nodiscard]] double relays_of(std::size_t rank) const {
    double bytes = ids_ ? ids_->of(rank).bytes() : 0.0;
    if (statistics_) {
      RelayBlocks blocks = backward_.relayed->of(rank);
      blocks.out = backward_.is_on() ? 0.0 : blocks.out;
      blocks.in = backward_.is_on() || backward_.slots[rank] < 2 ? 0.0 : blocks.in;
      blocks.cover({.crossing = forward_.relayed->of(rank).crossing});
      blocks.cover(replicas_->of(rank));
      blocks.cover(statistics_->of(rank));
      bytes += blocks.bytes();
    }
    return bytes;
  }

  /// Lengths of bags, as good as always in one byte, and ids of a feature that go to a shard.
  void add_ids(std::int64_t rank, const FeatureUse& use, double share, std::int64_t rows) {
    const bool all_of_one = share >= 1.0 && use.length == 1.0 && use.present == 1.0;
    const double id =
        static_cast<double>(spec::id_bytes(rows)) + (use.weighted ? cost::kFloatBytes : 0.0);
    const double sample = (all_of_one || share <= 0.0 ? 0.0 : 1.0) + use.length * share * id;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      ids_->add(at(rank), kind, kinds_[kind].samples * sample);
    }
  }

  /// Statistics of rows go from each shard of the same rows to each other; twice where there is a
  /// norm too, which takes the same memory.
  void add_statistics(std::size_t t, const FeatureUse& joined) {
    const spec::Table& table = config_.tables[t];
    const std::vector<spec::Shard>& shards = plan_.tables[t].shards;
    if (!looks_at_whole_rows(table.optimizer)) {
      return;
    }
    for (std::size_t i = 0; i < shards.size();) {
      std::size_t end = i;  // behind the shards of the same rows, which lie side by side
      while (end < shards.size() && shards[end].rows == shards[i].rows) {
        ++end;
      }
      if (end - i > 1) {
        const RowSet& rows = shards[i].rows;
        const double drawn =
            batch_ * joined.length * share_of_rows(joined, rows, table.num_embeddings);
        add_pairs({&shards[i], end - i},
                  unique_rows(use_of_rows(joined, rows, table.num_embeddings), drawn));
      }
      i = end;
    }
  }

  void add_pairs(std::span<const spec::Shard> beside, double rows) {
    for (const spec::Shard& from : beside) {
      for (const spec::Shard& to : beside) {
        statistics_->add(at(from.rank), at(to.rank),
                         cost::kFloatBytes * rows * blocks_of(from.cols.size()));
      }
    }
  }

  [[nodiscard]] double encoded_of(std::size_t rank) const {
    const auto of_samples = [&](const Wire& wire) {
      Count bytes = wire.at_samples[kind_of_[rank]];
      bytes.value -= wire.kept[rank];
      return bytes;
    };
    Count vectors = forward_.at_shards[rank];
    vectors += forward_.in_place[rank];
    vectors += forward_.to_itself[rank];
    Count gradients = of_samples(backward_);
    gradients += backward_.in_place[rank];
    gradients += backward_.to_itself[rank];
    double bytes = buffer_bytes(vectors, 1.0) + buffer_bytes(gradients, 1.0);
    if (transport_ == Transport::kReceived) {
      vectors = of_samples(forward_);
      vectors += forward_.to_itself[rank];
      gradients = backward_.at_shards[rank];
      gradients += backward_.to_itself[rank];
      bytes += buffer_bytes(vectors, 1.0) + buffer_bytes(gradients, 1.0);
    }
    return bytes;
  }

  static double blocks_of(std::int64_t columns) {
    return std::ceil(static_cast<double>(columns) / static_cast<double>(spec::kColumnBlock));
  }

  /// Sums of rows, and of blocks of 16 of their columns, which go to the other shards.
  void add_column_rows(StepMemory& memory,
                       std::size_t t,
                       const spec::Shard& shard,
                       const Count& rows) {
    const spec::Table& table = config_.tables[t];
    const double own = blocks_of(shard.cols.size());
    memory.rows += buffer_bytes(rows, cost::kFloatBytes * static_cast<double>(shard.cols.size())) +
                   buffer_bytes(rows, cost::kFloatBytes * own) +
                   buffer_bytes(rows, cost::kFloatBytes);
    if (transport_ == Transport::kReceived) {
      memory.rows += buffer_bytes(rows, cost::kFloatBytes * (blocks_of(table.embedding_dim) - own));
    }
  }

  void add_to_ranks(std::size_t kind, const StepMemory& more) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      if (kind_of_[rank] == kind) {
        memory_[rank].tables += more.tables;
        memory_[rank].entries += more.entries;
        memory_[rank].partials += more.partials;
        memory_[rank].rows += more.rows;
      }
    }
  }

  /// Copies of `rows` of a table, and how they are read. Where bags are added at the samples their
  /// entries are partial sums.
  void add_replicas(std::size_t t, std::int64_t rows, const JointUse& use, bool fetched) {
    const spec::Table& table = config_.tables[t];
    const auto columns = static_cast<double>(table.embedding_dim);
    std::vector<Partials> made;  // [kinds]
    double most = 0.0;
    double all = 0.0;
    for (const RankKind& kind : kinds_) {
      made.push_back(partials(kind, use.joined, ids(use, kind.samples).value));
      most = std::max(most, made.back().sums.value);
      all += made.back().sums.value * kind.ranks * static_cast<double>(plan_.groups);
    }
    for (std::size_t kind = 0; kind < replica_rows_.size() && plan_.groups == 1; ++kind) {
      replica_rows_[kind] += made[kind].sums.value * (12.0 + cost::kFloatBytes * columns);
    }
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      StepMemory memory{.tables = block_bytes(static_cast<double>(
                            cost::shard_bytes(table, rows, table.embedding_dim)))};
      const Count own = fetched ? made[kind].sums : ids(use, kinds_[kind].samples);
      const bool longer = plan_.world() > 1 && all > own.value;  // in the same buffers
      add_entries(memory, longer ? Count{all, false} : own, is_weighted(t) && !fetched);
      if (plan_.world() > 1) {
        add_partials(memory, made[kind], columns);
        memory.partials += buffer_bytes({most, false}, 8.0);
        const double others = all - made[kind].sums.value;
        memory.partials += transport_ == Transport::kReceived
                               ? kGrown * others * (16.0 + cost::kFloatBytes * columns)
                               : 0.0;
      }
      add_to_ranks(kind, memory);
    }
  }

  /// Vectors of hot rows for the rank itself: partial sums of bags, or, where these are added at
  /// the samples, rows and then partial gradients. Encoded and decoded as if they travelled;
  /// partial sums of bags then are decoded to where others' are, and of their gradients only the
  /// matrix is rounded.
  void add_hot_vectors(std::size_t t, const JointUse& use, bool fetched) {
    const spec::Table& table = config_.tables[t];
    const auto columns = static_cast<double>(table.embedding_dim);
    const auto width = [&](const Wire& wire) {
      return static_cast<double>(
          encoded_bytes(wire.format, config_.codecs.group_size, table.embedding_dim));
    };
    std::vector<HotVectors> of_kinds;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      of_kinds.push_back(hot_vectors(kinds_[kind], use, fetched));
      if (forward_.is_on()) {
        asked_[kind] += {of_kinds.back().bags * columns, false};
      }
    }
    for (std::size_t rank = 0; rank < served_.size(); ++rank) {
      const HotVectors& own = of_kinds[kind_of_[rank]];
      served_[rank] += {std::max(own.vectors, own.gradients) * columns, false};
      if (forward_.is_on()) {
        forward_.to_itself[rank] += {own.vectors * width(forward_), false};
      }
      if (backward_.is_on()) {
        backward_.to_itself[rank] += {own.gradients * width(backward_), own.gradients == 0.0};
        backward_.in_place[rank] += {own.rounded * width(backward_), true};
      }
    }
  }

  /// Of one rank's samples.
  struct HotVectors {
    double vectors = 0.0;
    double bags = 0.0;       ///< of them partial sums of bags
    double gradients = 0.0;  ///< that pass from the rank to itself
    double rounded = 0.0;    ///< rows of the matrix of gradients
  };

  static HotVectors hot_vectors(const RankKind& kind, const JointUse& use, bool fetched) {
    if (fetched) {
      const double own = ids(use, kind.samples).value;
      return {.vectors = unique_rows(use.joined, own),
              .gradients = partials(kind, use.joined, own).sums.value};
    }
    HotVectors made;
    for (const FeatureUse* one : use.features) {
      const double vectors = kind.samples * (one->pooled ? one->present : one->length);
      made.vectors += vectors;
      made.bags += one->pooled ? vectors : 0.0;
      made.gradients += one->pooled ? 0.0 : vectors;
      made.rounded += one->pooled ? kind.samples : 0.0;
    }
    return made;
  }

  /// Of the ranks that ask for rows of a fetched table.
  void add_fetched(std::size_t t) {
    const auto columns = static_cast<double>(config_.tables[t].embedding_dim);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const Count own = ids(uses_[t], kinds_[kind].samples);
      StepMemory memory;
      memory.rows = buffer_bytes({unique_rows(uses_[t].joined, own.value), false},
                                 cost::kFloatBytes * columns);
      add_entries(memory, own, is_weighted(t));
      add_partials(memory, partials(kinds_[kind], uses_[t].joined, own.value), columns);
      add_to_ranks(kind, memory);
    }
  }

  /// Partial sums of every rank come to a fetched shard; rows go out in the same memory.
  void add_fetched_shard(std::size_t t,
                         const spec::Shard& shard,
                         const FeatureUse& use,
                         std::span<const Asked> asked) {
    if (uses_[t].features.empty()) {
      return;
    }
    const std::int64_t rows = config_.tables[t].num_embeddings;
    const double all = share_of_rows(use, Range{0, rows}, rows);
    const double held = all > 0.0 ? share_of_rows(use, shard.rows, rows) / all : 0.0;
    Count entries{0.0, false};
    add_vectors(
        shard.rank, true,
        [&](std::size_t source) {
          const double sums = held * asked[source].sums;
          entries.value += sums * kinds_[source].ranks;
          return Count{sums * static_cast<double>(shard.cols.size()), false};
        },
        false);
    std::vector<Count> vectors;
    std::vector<Count> gradients;
    for (const Asked& one : asked) {
      vectors.push_back({held * one.rows, false});
      gradients.push_back({held * one.sums, false});
    }
    add_wire(forward_, shard, vectors, {});
    add_wire(backward_, shard, gradients, {});
    for (std::size_t kind = 0; kind < kinds_.size() && ids_; ++kind) {  // packed ones take no more
      const auto id = static_cast<double>(spec::id_bytes(shard.rows.size()));
      ids_->add(
          at(shard.rank), kind,
          8.0 * static_cast<double>(kinds_[kind].subtrees.size()) + id * gradients[kind].value);
    }
    add_entries(memory_[at(shard.rank)], entries, false);
  }

  [[nodiscard]] double matrices_of(const RankKind& kind) const {
    double pooled = 0.0;
    double sequences = 0.0;
    for (const JointUse& table : uses_) {
      for (const FeatureUse* use : table.features) {
        const auto dim = static_cast<double>(config_.tables[at(use->table)].embedding_dim);
        const Count ids{kind.samples * use->length * dim, has_fixed_length(*use)};
        pooled += use->pooled ? kind.samples * dim : 0.0;
        sequences += use->pooled ? 0.0 : 2.0 * buffer_bytes(ids, cost::kFloatBytes);
      }
    }
    return sequences + 2.0 * block_bytes(cost::kFloatBytes * pooled);
  }

  static constexpr std::size_t kMostHeld = 8;

  const spec::Config& config_;
  const spec::Plan& plan_;
  Transport transport_;
  const HotUses& hot_uses_;
  double batch_ = 0.0;          // samples of the group
  std::vector<JointUse> uses_;  // [tables]; of one that nobody reads no ids
  std::vector<RankKind> kinds_;
  std::vector<std::size_t> kind_of_;     // [ranks]
  std::vector<StepMemory> memory_;       // [ranks]
  std::vector<Count> served_;            // [ranks] floats
  std::vector<double> asked_of_itself_;  // [ranks]
  std::vector<Count> asked_;             // [kinds] of all shards
  std::vector<Held> held_;               // by the table in hand
  Wire forward_, backward_;
  std::optional<HostLayout> layout_;  // where relays stand between hosts
  std::optional<RelayedLanes> ids_;
  std::vector<double> replica_rows_;  // [kinds] bytes of partial sums, of hierarchical vectors
  std::optional<RelayedPairs> statistics_;  // likewise
  std::optional<RelayedGather> replicas_;   // likewise
};

}  // namespace

std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    Transport transport) {
  return step_memory(config, workload, plan, transport, HotUses(config, workload));
}

std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    Transport transport,
                                    const HotUses& hot_uses) {
  return BufferSizes(config, workload, plan, transport, hot_uses).run();
}

cost::DenseMemory dense_memory(const spec::Config& config,
                               const Workload& workload,
                               cost::DenseMemoryShape shape) {
  shape.elements.clear();
  for (const FeatureUse& use : workload.features) {
    shape.elements.push_back(use.pooled ? 0.0 : use.length);
  }
  return cost::dense_memory(config, shape);
}

}  // namespace weft::planner
