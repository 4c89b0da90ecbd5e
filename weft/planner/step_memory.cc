#include "weft/planner/step_memory.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/cost/row_sums.h"
#include "weft/layout/cache_shares.h"
#include "weft/layout/feature_vectors.h"
#include "weft/layout/paths.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"
#include "weft/planner/exchange_lengths.h"
#include "weft/planner/owner_cost.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/relay_traffic.h"
#include "weft/planner/step_counts.h"
#include "weft/planner/tier_use.h"

namespace weft::planner {
namespace {

bool looks_at_whole_rows(const spec::SparseOptimizer& optimizer) {
  return traits(optimizer.type).is_row_wise || optimizer.max_norm > 0.0;
}

class StepLengths {
 public:
  StepLengths(const spec::Config& config,
              const Workload& workload,
              const spec::Plan& plan,
              const StepMemoryOptions& options,
              const HotUses& hot_uses)
      : config_(config),
        plan_(plan),
        growth_(options.growth),
        hot_uses_(hot_uses),
        pipeline_(options.pipeline ? *options.pipeline : spec::pipeline_of(config.pipeline, plan)),
        uses_(config.tables.size()),
        ranks_(rank_kinds(config, plan, pipeline_.cuts())),
        memory_(at(plan.ranks)),
        caches_(config, plan),
        replica_rows_(memory_.size()),
        owner_rows_(memory_.size()) {
    for (const FeatureUse& use : workload.features) {
      uses_[at(use.table)].features.push_back(&use);
    }
    for (JointUse& table : uses_) {
      table.joined = table.features.empty() ? unread() : joined(table.features);
    }
    lay_out_hosts();
    const bool relayed = relays_ && plan.collectives.vectors == spec::CollectiveForm::kHierarchical;
    exchange_.emplace(
        config.codecs, ranks_,
        ExchangeLengths::Options{
            .copied = relayed || options.transport == Transport::kReceived,  // relays do not lend
            .has_cuts = pipeline_.cuts().count() > 1});
  }

  std::vector<StepMemory> run() {
    for (std::size_t t = 0; t < plan_.tables.size(); ++t) {
      add_table(t);
    }
    if (relays_) {
      relays_->add_up(exchange_->slots());
    }
    std::vector<double> matrices;  // [kinds]
    for (const RankKind& kind : ranks_.kinds) {
      matrices.push_back(matrices_of(kind));
    }
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      memory_[rank].matrices = matrices[ranks_.kind_of[rank]];
      add_exchanges(rank);
    }
    return std::move(memory_);
  }

 private:
  [[nodiscard]] double held(const auto& lengths) const {
    return layout::held_bytes(lengths, growth_);
  }

  [[nodiscard]] std::size_t kinds() const { return ranks_.kinds.size(); }

  [[nodiscard]] std::int64_t dim(std::size_t t) const { return config_.tables[t].embedding_dim; }

  void lay_out_hosts() {
    const spec::CollectiveForms& forms = plan_.collectives;
    const bool vectors = forms.vectors == spec::CollectiveForm::kHierarchical;
    const bool ids = forms.ids == spec::CollectiveForm::kHierarchical;
    if (!(vectors || ids) || plan_.hosts.empty()) {
      return;
    }
    HostLayout hosts(std::vector<int>(plan_.hosts.begin(), plan_.hosts.end()));
    if (hosts.is_flat()) {
      return;
    }
    relays_.emplace(std::move(hosts), ranks_,
                    RelayTraffic::Options{.ids = ids,
                                          .vectors = vectors,
                                          .codecs = config_.codecs,
                                          .micro_batches = pipeline_.cuts().count() > 1});
  }

  void add_table(std::size_t t) {
    const spec::TablePlan& plan = plan_.tables[t];
    const std::int64_t rows = config_.tables[t].num_embeddings;
    if (plan.sharding == spec::Sharding::kDataParallel) {
      add_replicas(t, rows, uses_[t], false);
      if (config_.tables[t].memory.tier != spec::MemoryTier::kDense) {
        add_copies_of_tier(t);
      }
      return;
    }
    const layout::Path path = layout::path_of(plan);
    const bool fetched = path == layout::Path::kUniqueRows;
    const auto hot_use = hot_uses_.of(static_cast<std::int64_t>(t), plan.hot);
    if (hot_use) {
      add_replicas(t, hot_use->rows->size(), hot_use->hot, fetched);
      add_hot_vectors(t, hot_use->hot, path);
      const double numbers =
          held(layout::row_numbers(Expected{static_cast<double>(hot_use->rows->size())}));
      for (StepMemory& memory : memory_) {
        memory.tables += numbers;
      }
    }
    const JointUse& use = hot_use ? hot_use->tail : uses_[t];
    CutCounts cuts(ranks_, use, rows, path != layout::Path::kWholeBags);
    std::vector<AskedRows> asked;  // [kinds] of a fetched table
    for (const RankKind& kind : ranks_.kinds) {
      asked.push_back(fetched ? asked_rows(kind, use.joined, rows) : AskedRows{});
    }
    for (std::size_t i = 0; i < plan.shards.size(); ++i) {
      const spec::Shard& shard = plan.shards[i];
      const Expected entries = fetched ? add_fetched_shard(t, shard, use.joined, asked)
                                       : add_shard(t, shard, cuts, use, hot_use.get());
      add_rows(t, i, use, entries);
    }
    if (fetched) {
      add_fetched(t);
    }
    add_statistic_traffic(t, cuts);
  }

  /// The rows of a shard, and where they are not all in memory, what a batch of so many entries
  /// holds of them.
  void add_rows(std::size_t t, std::size_t i, const JointUse& use, const Expected& entries) {
    const spec::Table& table = config_.tables[t];
    const spec::Shard& shard = plan_.tables[t].shards[i];
    StepMemory& memory = memory_[at(shard.rank)];
    if (table.memory.tier == spec::MemoryTier::kDense) {
      memory.tables += layout::block_bytes(
          static_cast<double>(layout::shard_bytes(table, shard.rows.size(), shard.cols.size())));
      return;
    }
    const ShardTier tier = tier_of(t, i, use);
    memory.tables += device_bytes(tier, table) + made_list_bytes(tier, growth_);
    memory.slots += batch_bytes(
        tier, {.ids = entries, .rows = tier.step_rows, .moved = tier.step_rows}, growth_);
    memory.places += tier.place_bytes;
  }

  [[nodiscard]] ShardTier tier_of(std::size_t t, std::size_t i, const JointUse& use) const {
    return shard_tier({.config = config_,
                       .plan = plan_,
                       .batch = ranks_.batch,
                       .caches = caches_,
                       .pipeline = pipeline_},
                      t, i, use);
  }

  /// The rows of a data_parallel table that are not all in memory: what the rank's batch holds of
  /// them, and what the update does, of the rows of all ranks.
  void add_copies_of_tier(std::size_t t) {
    const spec::Table& table = config_.tables[t];
    for (std::size_t i = 0; i < plan_.tables[t].shards.size(); ++i) {
      const std::size_t rank = at(plan_.tables[t].shards[i].rank);
      const ShardTier tier = tier_of(t, i, uses_[t]);
      const Expected ids = ids_of(uses_[t], ranks_.kinds[ranks_.kind_of[rank]].samples);
      const double own = unique_rows(uses_[t].joined, ids.value);
      StepMemory& memory = memory_[rank];
      memory.tables += device_bytes(tier, table) + made_list_bytes(tier, growth_);
      memory.slots += batch_bytes(tier, {.ids = ids, .rows = own, .moved = own}, growth_) +
                      batch_bytes(tier,
                                  {.ids = {tier.step_rows, true},
                                   .rows = tier.step_rows,
                                   .moved = tier.step_rows - own},
                                  growth_) +
                      held(layout::bag_offsets(Expected{1.0}));
      memory.places += tier.place_bytes;
    }
  }

  [[nodiscard]] bool is_weighted(std::size_t t) const {
    return std::any_of(uses_[t].features.begin(), uses_[t].features.end(),
                       [](const FeatureUse* use) { return use->weighted && use->pooled; });
  }

  [[nodiscard]] double held_entries(const Expected& entries, bool weighted) const {
    return held(layout::run_lengths(entries, weighted ? entries : Expected{}));
  }

  [[nodiscard]] double held_partials(const Partials& partials, std::int64_t columns) const {
    return held(layout::partial_cut_lengths(partials.segments)) +
           held(layout::vectors(partials.sums, columns));
  }

  void add_slot(std::size_t rank, const VectorSlot& slot, std::span<const VectorBlock> blocks) {
    exchange_->add_slot(rank, slot, blocks);
    for (std::size_t kind = 0; kind < kinds() && relays_; ++kind) {
      const VectorBlock& block = blocks[kind];
      const auto vectors = static_cast<double>(exchange_->vector_bytes(slot.columns));
      const auto gradients = static_cast<double>(exchange_->gradient_bytes(slot.columns));
      relays_->add_vectors(rank, kind, block.cut_of_vectors * block.vectors.value * vectors,
                           block.cut_of_gradients * block.gradients.value * gradients);
    }
  }

  /// Returns its entries.
  Expected add_shard(std::size_t t,
                     const spec::Shard& shard,
                     CutCounts& cuts,
                     const JointUse& joint,
                     const HotUse* hot_use) {
    const std::size_t rank = at(shard.rank);
    const HeldRows& rows = cuts.of(shard.rows);
    std::vector<VectorBlock> blocks(kinds());
    for (std::size_t use = 0; use < joint.features.size(); ++use) {
      const FeatureUse& feature = *joint.features[use];
      const VectorSlot slot{.path = layout::path_of(plan_.tables[t]),
                            .sequence = !feature.pooled,
                            .columns = shard.cols.size()};
      for (std::size_t kind = 0; kind < kinds(); ++kind) {
        const Expected& vectors = rows.vectors[use * kinds() + kind];
        const double cut = ranks_.kinds[kind].largest_cut;
        blocks[kind] = {.vectors = vectors,
                        .gradients = vectors,
                        .cut_of_vectors = cut,
                        .cut_of_gradients = cut};
      }
      add_slot(rank, slot, blocks);
      if (hot_use == nullptr) {  // the matrix is rounded with the slot of hot rows
        exchange_->add_rounding(rank, slot, feature);
      }
      if (relays_) {
        relays_->add_ids(rank, feature, rows.shares[use], largest_cut(shard.rows, hot_use),
                         slot.path == layout::Path::kSplitBags);
      }
    }
    const Expected entries = rows.entries;  // `rows` may go
    memory_[rank].entries += held_entries(entries, is_weighted(t));
    const spec::Table& table = config_.tables[t];
    if (shard.cols.size() < table.embedding_dim && looks_at_whole_rows(table.optimizer)) {
      add_statistics(t, shard, {cuts.unique_rows(shard.rows), true});
    }
    return entries;
  }

  /// Sums of rows, and of blocks of their columns, which go to the other shards.
  void add_statistics(std::size_t t, const spec::Shard& shard, const Expected& rows) {
    const std::int64_t own = layout::column_blocks(shard.cols.size());
    const std::int64_t others = layout::column_blocks(dim(t)) - own;
    memory_[at(shard.rank)].rows +=
        held(layout::vectors(rows, shard.cols.size())) +
        held(layout::statistic_lengths(rows, own, exchange_->copied() ? others : 0));
  }

  /// Statistics of rows go from each shard of the same rows to each other; twice where there is a
  /// norm too, which takes the same memory.
  void add_statistic_traffic(std::size_t t, CutCounts& cuts) {
    const spec::Shards& shards = plan_.tables[t].shards;
    if (!relays_ || !looks_at_whole_rows(config_.tables[t].optimizer)) {
      return;
    }
    for (std::size_t i = 0; i < shards.size();) {
      std::size_t end = i;  // after the shards of the same rows, which lie side by side
      while (end < shards.size() && shards[end].rows == shards[i].rows) {
        ++end;
      }
      if (end - i > 1) {
        const auto first = shards.begin() + static_cast<std::ptrdiff_t>(i);
        const std::vector<spec::Shard> beside(first,
                                              shards.begin() + static_cast<std::ptrdiff_t>(end));
        relays_->add_statistics(beside, cuts.unique_rows(shards[i].rows));
      }
      i = end;
    }
  }

  void add_to_ranks(std::size_t kind, const StepMemory& more) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      if (ranks_.kind_of[rank] == kind) {
        memory_[rank].tables += more.tables;
        memory_[rank].entries += more.entries;
        memory_[rank].partials += more.partials;
        memory_[rank].rows += more.rows;
      }
    }
  }

  /// What ranks hold as owners of rows of which all have copies: as long as a batch's update.
  void add_owners(const cost::SummedTable& table) {
    const auto world = static_cast<double>(plan_.world());
    const double bytes =
        owner_memory(table, world, exchange_->copied() ? Transport::kReceived : Transport::kLent);
    for (double& of_rank : owner_rows_) {
      of_rank += bytes;
    }
    if (relays_ && plan_.groups == 1) {
      relays_->add_owned_rows(table.partials * cost::partial_row_bytes(table.cols) / world,
                              table.touched * cost::summed_row_bytes(table.cols) / world);
    }
  }

  /// Copies of `rows` of a table, and how they are read. Where bags are added at the samples their
  /// entries are partial sums.
  void add_replicas(std::size_t t, std::int64_t rows, const JointUse& use, bool fetched) {
    const bool owned = layout::row_sums(plan_.world()) == layout::RowSums::kOwned;
    std::vector<Partials> made;  // [kinds]
    Expected most, all;
    double ids = 0.0;
    for (const RankKind& kind : ranks_.kinds) {
      ids += ids_of(use, kind.samples).value * static_cast<double>(kind.ranks * plan_.groups);
      made.push_back(partials_of(kind, use.joined, ids_of(use, kind.samples).value));
      const Expected& sums = made.back().sums;
      most = layout::larger(most, sums);
      all += sums * (kind.ranks * plan_.groups);
      if (relays_ && plan_.groups == 1 && !owned) {
        relays_->add_replica_rows(
            made.size() - 1, layout::total_bytes(layout::partial_row_lengths(sums, dim(t))).value);
      }
    }
    if (owned) {
      const double partials = all.value / static_cast<double>(plan_.world());
      all = {unique_rows(use.joined, ids), true};
      add_owners({.rows = rows, .cols = dim(t), .partials = partials, .touched = all.value});
    }
    const bool has_tier = plan_.tables[t].sharding == spec::Sharding::kDataParallel &&
                          config_.tables[t].memory.tier != spec::MemoryTier::kDense;
    for (std::size_t kind = 0; kind < kinds(); ++kind) {
      StepMemory memory{.tables = has_tier
                                      ? 0.0
                                      : layout::block_bytes(static_cast<double>(
                                            layout::shard_bytes(config_.tables[t], rows, dim(t))))};
      const Expected own = fetched ? made[kind].sums : ids_of(use, ranks_.kinds[kind].samples);
      const bool merges = plan_.world() > 1;
      memory.entries = held(layout::run_lengths(  // of the own ones, then of all ranks' sums
          merges ? layout::larger(own, all) : own, is_weighted(t) && !fetched ? own : Expected{}));
      if (merges) {
        memory.partials = held_partials(made[kind], dim(t)) + held(layout::bag_offsets(most));
      }
      add_to_ranks(kind, memory);
    }
    for (std::size_t rank = 0; rank < memory_.size() && exchange_->copied() && !owned; ++rank) {
      replica_rows_[rank] += layout::total_bytes(
          layout::partial_row_lengths(all - made[ranks_.kind_of[rank]].sums, dim(t)));
    }
  }

  /// Vectors of hot rows for the rank itself: partial sums of bags, or, where these are added at
  /// the samples, rows and then partial gradients. They go as if they travelled.
  void add_hot_vectors(std::size_t t, const JointUse& use, layout::Path path) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      const RankKind& kind = ranks_.kinds[ranks_.kind_of[rank]];
      if (path == layout::Path::kUniqueRows) {
        const double ids = ids_of(use, kind.samples).value;
        const AskedRows asked = asked_rows(kind, use.joined, config_.tables[t].num_embeddings);
        exchange_->add_own(rank, {.path = path, .sequence = true, .columns = dim(t)},
                           {.vectors = {unique_rows(use.joined, ids), true},
                            .gradients = partials_of(kind, use.joined, ids).sums,
                            .cut_of_vectors = asked.largest_cut});
        continue;
      }
      for (const FeatureUse* one : use.features) {
        const VectorSlot slot{.path = path, .sequence = !one->pooled, .columns = dim(t)};
        const Expected vectors{kind.samples * (one->pooled ? one->present : one->length), true};
        exchange_->add_own(rank, slot,
                           {.vectors = vectors,
                            .gradients = vectors,
                            .cut_of_vectors = kind.largest_cut,
                            .cut_of_gradients = kind.largest_cut});
        exchange_->add_rounding(rank, slot, *one);
      }
    }
  }

  /// Of the ranks that ask for rows of a fetched table.
  void add_fetched(std::size_t t) {
    for (std::size_t kind = 0; kind < kinds(); ++kind) {
      const Expected ids = ids_of(uses_[t], ranks_.kinds[kind].samples);
      const Expected rows{unique_rows(uses_[t].joined, ids.value), true};
      StepMemory memory;
      memory.rows = held(layout::vectors(rows, dim(t)));
      memory.entries = held_entries(ids, is_weighted(t));
      memory.partials =
          held_partials(partials_of(ranks_.kinds[kind], uses_[t].joined, ids.value), dim(t));
      add_to_ranks(kind, memory);
    }
  }

  /// Partial sums of every rank come to a fetched shard; rows go out in the same memory. Returns
  /// how many sums.
  Expected add_fetched_shard(std::size_t t,
                             const spec::Shard& shard,
                             const FeatureUse& use,
                             std::span<const AskedRows> asked) {
    if (uses_[t].features.empty()) {
      return {};
    }
    const std::int64_t rows = config_.tables[t].num_embeddings;
    const double all = share_of_rows(use, Range{0, rows}, rows);
    const double share = all > 0.0 ? share_of_rows(use, shard.rows, rows) / all : 0.0;
    std::vector<VectorBlock> blocks;
    Expected entries;
    for (std::size_t kind = 0; kind < kinds(); ++kind) {
      blocks.push_back({.vectors = {share * asked[kind].rows, true},
                        .gradients = {share * asked[kind].sums, true},
                        .cut_of_vectors = asked[kind].largest_cut});
      entries += blocks.back().gradients * ranks_.kinds[kind].ranks;
      if (relays_) {
        relays_->add_unique_rows(at(shard.rank), kind, shard.rows.size(),
                                 blocks.back().gradients.value);
      }
    }
    const VectorSlot slot{
        .path = layout::Path::kUniqueRows, .sequence = true, .columns = shard.cols.size()};
    add_slot(at(shard.rank), slot, blocks);
    memory_[at(shard.rank)].entries += held_entries(entries, false);
    return entries;
  }

  /// The buffers of a rank that are added up over all tables.
  void add_exchanges(std::size_t rank) {
    StepMemory& memory = memory_[rank];
    memory.served = exchange_->held_vectors(rank, growth_);
    memory.encoded = exchange_->held_encoded(rank, growth_);
    const auto batches = static_cast<double>(batches_in_flight(pipeline_));
    for (double* const bytes : {&memory.matrices, &memory.served, &memory.encoded, &memory.entries,
                                &memory.partials, &memory.rows, &memory.slots}) {
      *bytes *= batches;
    }
    memory.partials += held(replica_rows_[rank]) + owner_rows_[rank];
    memory.relays = relays_ ? relays_->held_bytes(rank) : 0.0;
  }

  [[nodiscard]] double matrices_of(const RankKind& kind) const {
    Expected pooled;  // floats
    double sequences = 0.0;
    for (const JointUse& table : uses_) {
      for (const FeatureUse* use : table.features) {
        const std::int64_t columns = dim(at(use->table));
        if (use->pooled) {
          pooled += Expected{kind.samples} * columns;
        } else {
          sequences += held(layout::vectors(
              Expected{kind.samples * use->length, !has_fixed_length(*use)}, columns));
        }
      }
    }
    return static_cast<double>(layout::kMatrixKinds) *
           (sequences + held(layout::vectors(pooled, 1)));
  }

  const spec::Config& config_;
  const spec::Plan& plan_;
  double growth_;
  const HotUses& hot_uses_;
  spec::Pipeline pipeline_;
  std::vector<JointUse> uses_;  // [tables]; of one that nobody reads no ids
  RankKinds ranks_;
  std::vector<StepMemory> memory_;  // [ranks]
  layout::CacheShares caches_;
  std::vector<Expected> replica_rows_;  // [ranks] bytes of other ranks' partial sums
  std::vector<double> owner_rows_;      // [ranks] what they hold to add up rows for all
  std::optional<ExchangeLengths> exchange_;
  std::optional<RelayTraffic> relays_;  // between hosts
};

}  // namespace

std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    const StepMemoryOptions& options) {
  return step_memory(config, workload, plan, options, HotUses(config, workload));
}

std::vector<StepMemory> step_memory(const spec::Config& config,
                                    const Workload& workload,
                                    const spec::Plan& plan,
                                    const StepMemoryOptions& options,
                                    const HotUses& hot_uses) {
  return StepLengths(config, workload, plan, options, hot_uses).run();
}

}  // namespace weft::planner
