#include "weft/planner/cache_size.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "weft/base/at.h"
#include "weft/cost/fetch.h"
#include "weft/layout/tables.h"
#include "weft/planner/cache_division.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/tier_use.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

// Spellings, in the order of the enumerators.
constexpr std::array<std::string_view, 4> kBounds = {"smallest", "reads", "all_rows", "memory"};
constexpr std::array<std::string_view, 4> kDescribed = {
    "The smallest caches that train suffice", "The rate of the disks decided",
    "All rows have a slot", "Memory decided: reads take longer than is wanted"};

constexpr std::int64_t kFineness = 64;              // of a size that is found
constexpr std::int64_t kLeastDifference = 1 << 16;  // bytes
constexpr int kMostRounds = 16;  // until blocks fit that are mapped in whole units

/// Bytes of a rank for all its caches that share.
struct RankNeeds {
  std::int64_t fewest = 0;
  std::int64_t safe = 0;
  std::int64_t all = 0;
};

/// So much for all shards of a rank that one has `need` where they share by bytes.
std::int64_t for_all(std::int64_t need, std::int64_t own, std::int64_t sharing) {
  return static_cast<std::int64_t>(std::ceil(
             static_cast<double>(need) * static_cast<double>(sharing) / static_cast<double>(own))) +
         1;
}

class Sizing {
 public:
  Sizing(const Estimator& estimator,
         const std::vector<double>& rank_bytes,
         const spec::Pipeline& pipeline,
         spec::Plan& plan)
      : estimator_(estimator),
        shape_(estimator.shape()),
        pipeline_(pipeline),
        plan_(plan),
        by_curves_(divides_by_curves(shape_.config, shape_.workload, plan)),
        needs_(rank_bytes.size()),
        rooms_(rank_bytes.size()),
        budgets_(rank_bytes.size()) {
    look_at_needs(rank_bytes);
  }

  CacheSize run() {
    CacheSize size = first_size();
    if (size.missing == 0) {
      fit_blocks();
      choose(size);
    } else {
      size.bytes = largest(&RankNeeds::fewest);
      size.bound = CacheBound::kMemory;
      budgets_.assign(budgets_.size(), size.bytes);
      size.rest_s = step_without_reads_s(shape_, estimator_.cost(plan_), pipeline_);
    }
    set_size(size.bytes);
    size.read_s = read_s();
    for (const ShardTier& tier : tiers_) {
      if (tier.tier == spec::MemoryTier::kSsd) {
        size.step_rows += tier.step_rows;
        size.missed += tier.missed;
      }
    }
    return size;
  }

 private:
  [[nodiscard]] const spec::Table& table_of(const ShardTier& tier) const {
    return shape_.config.tables[at(tier.table)];
  }

  [[nodiscard]] bool shares(const ShardTier& tier) const {
    return layout::shares_cache(table_of(tier));
  }

  /// What the caches need that share, and what memory leaves for them.
  void look_at_needs(const std::vector<double>& rank_bytes) {
    look_at_tiers();
    std::vector<std::int64_t> sharing(needs_.size());
    for (const ShardTier& tier : tiers_) {
      if (shares(tier)) {
        sharing[at(tier.rank)] += layout::shard_bytes(table_of(tier), tier.rows, tier.cols);
      }
    }
    for (const ShardTier& tier : tiers_) {
      if (shares(tier)) {
        add_needs(tier, sharing[at(tier.rank)]);
      }
    }
    const std::vector<double> caches = bytes_of_caches();
    const double capacity = topology::table_capacity(shape_.cluster);
    for (std::size_t r = 0; r < rooms_.size(); ++r) {
      rooms_[r] = capacity - (rank_bytes[r] - caches[r]);
      budgets_[r] = static_cast<std::int64_t>(std::floor(std::max(0.0, rooms_[r])));
    }
  }

  void add_needs(const ShardTier& tier, std::int64_t sharing) {
    const spec::Table& table = table_of(tier);
    const CacheNeeds slots = cache_needs(tier, table);
    const std::int64_t own = layout::shard_bytes(table, tier.rows, tier.cols);
    RankNeeds& rank = needs_[at(tier.rank)];
    const auto add = [&](std::int64_t& sum, std::int64_t count) {
      const std::int64_t bytes = cache_bytes_of(table, tier.cols, count);
      sum = by_curves_ ? sum + bytes : std::max(sum, for_all(bytes, own, sharing));
    };
    add(rank.fewest, slots.fewest);
    add(rank.safe, slots.safe);
    add(rank.all, slots.all);
  }

  /// Of all ranks.
  [[nodiscard]] std::int64_t largest(std::int64_t RankNeeds::* need) const {
    std::int64_t most = 0;
    for (const RankNeeds& rank : needs_) {
      most = std::max(most, rank.*need);
    }
    return most;
  }

  /// What some rank may have of `need`: by bytes every rank has the same.
  [[nodiscard]] std::int64_t within_memory(std::int64_t RankNeeds::* need) const {
    std::int64_t most = 0;
    std::int64_t least_budget = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < needs_.size(); ++r) {
      if (needs_[r].all > 0) {
        most =
            std::max(most, std::min(needs_[r].*need, by_curves_ ? budgets_[r] : needs_[r].*need));
        least_budget = std::min(least_budget, budgets_[r]);
      }
    }
    return by_curves_ ? most : std::min(most, least_budget);
  }

  /// What is known before a size is tried.
  [[nodiscard]] CacheSize first_size() const {
    CacheSize size{.smallest = largest(&RankNeeds::safe),
                   .all = largest(&RankNeeds::all),
                   .fewest = {},
                   .share = batches_in_flight(pipeline_) > 1 ? kHiddenShare : kExposedShare};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < needs_.size(); ++r) {
      const RankNeeds& need = needs_[r];
      const std::int64_t fewest = by_curves_ ? need.fewest : largest(&RankNeeds::fewest);
      size.fewest.push_back(need.all > 0 ? fewest : 0);
      const double beyond = rooms_[r] - static_cast<double>(fewest);
      if (need.all > 0 && beyond < least) {
        least = beyond;
        size.rank = static_cast<std::int64_t>(r);
        size.left = budgets_[r];
        size.missing = static_cast<std::int64_t>(std::ceil(std::max(0.0, -beyond)));
      }
    }
    return size;
  }

  /// Lowers budgets until the largest caches fit as devices count their blocks, which are mapped in
  /// units: by ever more, since less of a unit saves nothing.
  void fit_blocks() {
    for (int round = 0; round < kMostRounds; ++round) {
      set_size(within_memory(&RankNeeds::all));
      const std::vector<double> caches = bytes_of_caches();
      bool fits = true;
      for (std::size_t r = 0; r < caches.size(); ++r) {
        if (needs_[r].all > 0 && caches[r] > rooms_[r]) {
          const auto over = static_cast<std::int64_t>(std::ceil(caches[r] - rooms_[r]));
          budgets_[r] -= std::max(over, kLeastDifference << round);
          budgets_[r] = std::max(budgets_[r], needs_[r].fewest);
          fits = fits && budgets_[r] == needs_[r].fewest;
        }
      }
      if (fits) {
        return;
      }
    }
  }

  /// REQUIRES: the largest caches are set.
  void choose(CacheSize& size) {
    size.rest_s = step_without_reads_s(shape_, estimator_.cost(plan_), pipeline_);
    const double wanted = size.share * size.rest_s;
    std::int64_t low = within_memory(&RankNeeds::safe);
    std::int64_t high = std::max(low, within_memory(&RankNeeds::all));
    const bool has_all = high >= size.all && has_room_for_all();
    if (reads_with(low) <= wanted) {
      size.bytes = low;
      size.bound = low < size.smallest ? CacheBound::kMemory : CacheBound::kSmallest;
      return;
    }
    if (reads_with(high) > wanted) {
      size.bytes = high;
      size.bound = has_all ? CacheBound::kAllRows : CacheBound::kMemory;
      return;
    }
    while (high - low > std::max(low / kFineness, kLeastDifference)) {
      const auto mean = static_cast<std::int64_t>(
          std::sqrt(static_cast<double>(low) * static_cast<double>(high)));
      const std::int64_t middle = std::clamp(mean, low + 1, high - 1);
      (reads_with(middle) <= wanted ? high : low) = middle;
    }
    size.bytes = high;
    size.bound = CacheBound::kReads;
  }

  [[nodiscard]] bool has_room_for_all() const {
    for (std::size_t r = 0; r < needs_.size(); ++r) {
      if (budgets_[r] < needs_[r].all) {
        return false;
      }
    }
    return true;
  }

  double reads_with(std::int64_t bytes) {
    set_size(bytes);
    return read_s();
  }

  void set_size(std::int64_t bytes) {
    plan_.cache_bytes = bytes;
    if (by_curves_) {
      divide_caches(shape_.config, shape_.workload, estimator_.hot_uses(), plan_, budgets_);
    }
    look_at_tiers();
  }

  void look_at_tiers() {
    tiers_ = shard_tiers(shape_.config, shape_.workload, plan_, estimator_.hot_uses());
  }

  /// [ranks] of those that share, as a device counts them.
  [[nodiscard]] std::vector<double> bytes_of_caches() const {
    std::vector<double> bytes(needs_.size());
    for (const ShardTier& tier : tiers_) {
      if (shares(tier)) {
        bytes[at(tier.rank)] += device_bytes(tier, table_of(tier));
      }
    }
    return bytes;
  }

  /// Of the disk of the rank that reads most.
  [[nodiscard]] double read_s() const {
    std::vector<double> blocks(needs_.size());
    for (const ShardTier& tier : tiers_) {
      blocks[at(tier.rank)] += tier.blocks;
    }
    return cost::disk_s(shape_.cluster,
                        {.blocks = *std::max_element(blocks.begin(), blocks.end())});
  }

  const Estimator& estimator_;
  const StepShape& shape_;
  const spec::Pipeline& pipeline_;
  spec::Plan& plan_;
  const bool by_curves_;
  std::vector<ShardTier> tiers_;       // with the size that is set
  std::vector<RankNeeds> needs_;       // [ranks]
  std::vector<double> rooms_;          // [ranks] bytes that memory leaves, as devices count blocks
  std::vector<std::int64_t> budgets_;  // [ranks] bytes that a rank may divide
};

}  // namespace

std::string_view to_string(CacheBound bound) {
  return kBounds[static_cast<std::size_t>(bound)];
}

std::string_view describe(CacheBound bound) {
  return kDescribed[static_cast<std::size_t>(bound)];
}

bool leaves_cache_size_open(const spec::Config& config) {
  return config.tiers.cache_bytes == 0 &&
         std::any_of(config.tables.begin(), config.tables.end(),
                     [](const spec::Table& table) { return layout::shares_cache(table); });
}

CacheSize choose_cache_size(const Estimator& estimator,
                            const std::vector<double>& rank_bytes,
                            const spec::Pipeline& pipeline,
                            spec::Plan& plan) {
  return Sizing(estimator, rank_bytes, pipeline, plan).run();
}

}  // namespace weft::planner
