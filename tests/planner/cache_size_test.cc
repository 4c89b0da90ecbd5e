// How much memory the caches of a rank get where the configuration leaves it to the planner.
#include "weft/planner/cache_size.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "tests/topology/small_cluster.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/layout/tables.h"
#include "weft/planner/place.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/search.h"
#include "weft/planner/tier_use.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

constexpr double kReadRate = 2e5;  // blocks a second

/// Two tables on disks whose caches have no size, one in memory, and a model to compute beside.
spec::Config open_size_job(double zipf) {
  spec::Config config = testing::make_config({{.rows = 400'000, .dim = 64, .length = 2},
                                              {.rows = 300'000, .dim = 32, .length = 2},
                                              {.rows = 20'000, .dim = 32}},
                                             2048);
  for (std::size_t t = 0; t < 2; ++t) {
    config.data.synthetic.columns[t].zipf = zipf;
    config.tables[t].memory.tier = spec::MemoryTier::kSsd;
    config.tables[t].sharding = spec::Sharding::kRowWise;
  }
  config.tiers.directories = {"/rows"};
  config.train.steps = 100'000;
  config.pipeline.schedule = spec::PipelineSchedule::kPrefetch;
  config.model.top_mlp = {512, 256};
  config.numerics.parts = 8;
  return config;
}

topology::Cluster cluster_with_disks(double read_blocks, std::int64_t ranks = 2) {
  topology::Cluster cluster = topology::small_cluster({{1, ranks}});
  cluster.disk.read_blocks.value = read_blocks;
  return cluster;
}

SearchResult sized(const spec::Config& config, const topology::Cluster& cluster) {
  return search(config, cluster, make_workload(config));
}

/// The plan says the chosen size, and the caches of all ranks are in it.
std::int64_t chosen_bytes(const spec::Config& config, const SearchResult& found) {
  const spec::Plan& plan = found.best().plan;
  EXPECT_TRUE(found.best().fits());
  EXPECT_EQ(plan.cache_bytes, found.cache_size->bytes);
  check_plan(plan, config);
  const Workload workload = make_workload(config);
  for (const ShardTier& tier : shard_tiers(config, workload, plan, HotUses(config, workload))) {
    EXPECT_GE(tier.cache.slots(), tier.fewest_slots) << "table " << tier.table;
  }
  return plan.cache_bytes;
}

TEST(CacheSize, IsTheLeastWithWhichReadsAreShortEnough) {
  spec::Config config = open_size_job(1.05);
  const topology::Cluster cluster = cluster_with_disks(kReadRate);
  for (const auto& [schedule, share] : {std::pair(spec::PipelineSchedule::kPrefetch, kHiddenShare),
                                        std::pair(spec::PipelineSchedule::kSync, kExposedShare)}) {
    SCOPED_TRACE(to_string(schedule));
    config.pipeline.schedule = schedule;
    const SearchResult found = sized(config, cluster);
    const CacheSize& size = *found.cache_size;
    EXPECT_EQ(size.bound, CacheBound::kReads) << describe(size.bound);
    EXPECT_EQ(size.share, share);
    EXPECT_LE(size.read_s, share * size.rest_s);
    EXPECT_GT(size.bytes, size.smallest);
    EXPECT_LT(size.bytes, size.all);
    chosen_bytes(config, found);
    // A number has the same reads, and with a little less they take longer than is wanted.
    const auto disk_s = [&](std::int64_t bytes) {
      spec::Config given = config;
      given.tiers.cache_bytes = bytes;
      double most = 0.0;
      const SearchResult with_number = sized(given, cluster);
      for (const RankCost& rank : with_number.best().cost.ranks) {
        most = std::max(most, rank.fetch.disk_s);
      }
      return most;
    };
    EXPECT_DOUBLE_EQ(disk_s(size.bytes), size.read_s);
    EXPECT_GT(disk_s(size.bytes * 95 / 100), share * size.rest_s);
  }
}

TEST(CacheSize, ShrinksWithSkewAndGrowsWithSlowerDisks) {
  std::int64_t before = std::int64_t{1} << 60;
  for (const double zipf : {0.9, 1.0, 1.1, 1.2}) {
    const spec::Config config = open_size_job(zipf);
    const std::int64_t bytes = chosen_bytes(config, sized(config, cluster_with_disks(kReadRate)));
    EXPECT_LT(bytes, before) << zipf;
    before = bytes;
  }
  const spec::Config config = open_size_job(1.05);
  before = 0;
  for (const double rate : {3e5, 2e5, 1e5, 5e4}) {
    const std::int64_t bytes = chosen_bytes(config, sized(config, cluster_with_disks(rate)));
    EXPECT_GT(bytes, before) << rate;
    before = bytes;
  }
}

TEST(CacheSize, OfFastDisksIsTheSmallestThatTrains) {
  const spec::Config config = open_size_job(1.05);
  const SearchResult found = sized(config, cluster_with_disks(1e9));
  EXPECT_EQ(found.cache_size->bound, CacheBound::kSmallest);
  EXPECT_EQ(chosen_bytes(config, found), found.cache_size->smallest);
}

/// What the ranks have, predicted as it is for any plan, within the memory that there is.
double most_bytes(const SearchResult& found) {
  double most = 0.0;
  for (const RankCost& rank : found.best().cost.ranks) {
    most = std::max(most,
                    static_cast<double>(rank.table_bytes) + rank.buffer_bytes + rank.sample_bytes);
  }
  return most;
}

TEST(CacheSize, IsAtMostWhatMemoryLeaves) {
  const spec::Config config = open_size_job(1.05);
  topology::Cluster cluster = cluster_with_disks(1e5);
  const SearchResult wide = sized(config, cluster);
  ASSERT_EQ(wide.cache_size->bound, CacheBound::kReads);
  const double without = most_bytes(wide) - static_cast<double>(wide.cache_size->bytes);
  for (const spec::CacheDivision division :
       {spec::CacheDivision::kAuto, spec::CacheDivision::kBytes}) {
    spec::Config divided = config;
    divided.tiers.division = division;
    const std::int64_t smallest = sized(divided, cluster).cache_size->smallest;
    const double left = 0.5 * static_cast<double>(wide.cache_size->bytes + smallest);
    cluster.memory.ddr.value = (without + left) / (1.0 - cluster.memory.reserve.value);
    const SearchResult found = sized(divided, cluster);
    EXPECT_EQ(found.cache_size->bound, CacheBound::kMemory);
    EXPECT_LT(chosen_bytes(divided, found), wide.cache_size->bytes);
    EXPECT_GT(found.best().plan.cache_bytes, smallest);
    EXPECT_GT(found.cache_size->read_s, found.cache_size->share * found.cache_size->rest_s);
    const double capacity = topology::table_capacity(cluster);
    EXPECT_LE(most_bytes(found), capacity);
    EXPECT_GT(most_bytes(found), capacity - 0.1 * left) << "memory is left";
    cluster.memory.ddr.value = 1e10;
  }
}

/// A rank whose memory is full of other tables has less for its caches than the others.
TEST(CacheSize, OfARankWithLittleMemoryIsLess) {
  spec::Config config = open_size_job(1.05);
  config.tables[0].sharding = config.tables[1].sharding = spec::Sharding::kTableWise;
  config.tables[0].rank = 0;
  config.tables[1].rank = 1;
  config.tables[2].rank = 1;
  config.tables[2].sharding = spec::Sharding::kTableWise;
  config.tables[2].num_embeddings = 400'000;
  config.data.synthetic.columns[2].cardinality = 400'000;
  topology::Cluster cluster = cluster_with_disks(5e4);
  cluster.memory.ddr.value = 150e6;
  const SearchResult found = sized(config, cluster);
  EXPECT_EQ(found.cache_size->rank, 1);
  EXPECT_LT(found.cache_size->left, found.cache_size->bytes);
  chosen_bytes(config, found);
  const spec::Plan& plan = found.best().plan;
  EXPECT_LE(plan.tables[1].caches[0], found.cache_size->left);
  EXPECT_GT(plan.tables[0].caches[0], found.cache_size->left);
  EXPECT_LE(most_bytes(found), topology::table_capacity(cluster));
}

std::string refused(const spec::Config& config, const topology::Cluster& cluster) {
  const Workload workload = make_workload(config);
  try {
    const SearchResult found = search(config, cluster, workload);
    if (found.best().fits()) {
      return "it fits";
    }
    refuse(found, config, cluster, workload);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(CacheSize, ThatDoesNotFitNamesTheRankTheBytesAndWhatToChange) {
  const spec::Config config = open_size_job(0.0);
  topology::Cluster cluster = cluster_with_disks(1e9);
  const SearchResult wide = sized(config, cluster);
  const auto fewest = static_cast<double>(wide.cache_size->fewest[0]);
  const double without = most_bytes(wide) - static_cast<double>(wide.cache_size->bytes);
  const auto with = [&](double bytes) {
    cluster.memory.ddr.value = (without + bytes) / (1.0 - cluster.memory.reserve.value);
    return refused(config, cluster);
  };
  EXPECT_EQ(with(1.3 * fewest), "it fits");
  const std::string message = with(0.5 * fewest);
  for (const char* part :
       {"In the best plan rank ", " lacks ",
        "; the smallest caches of its tables on disks, which hold the rows of one batch, take ",
        "more memory per rank", "batch_size: 1024"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  }
}

TEST(CacheSize, NeedsTheRateOfDisks) {
  const std::string message = refused(open_size_job(1.05), cluster_with_disks(0.0));
  EXPECT_NE(message.find("tiers.cache_bytes is 0"), std::string::npos) << message;
  EXPECT_NE(message.find("cluster 'small' has no disk.read_blocks"), std::string::npos) << message;
}

TEST(CacheSize, ThatIsGivenStays) {
  spec::Config config = open_size_job(1.05);
  config.tiers.cache_bytes = 30'000'000;
  const SearchResult found = sized(config, cluster_with_disks(kReadRate));
  EXPECT_FALSE(found.cache_size.has_value());
  EXPECT_EQ(found.best().plan.cache_bytes, 0);
  EXPECT_EQ(spec::plan_to_yaml(found.best().plan).find("cache_bytes"), std::string::npos);
  // And overrides that of a plan.
  spec::Plan plan = found.best().plan;
  plan.cache_bytes = 1;
  EXPECT_EQ(spec::shared_cache_bytes(config.tiers, plan), 30'000'000);
  check_plan(plan, config);
}

TEST(CacheSize, IsInThePlansFileAndDecidesNoBit) {
  const spec::Config config = open_size_job(1.05);
  const SearchResult found = sized(config, cluster_with_disks(kReadRate));
  const spec::Plan& plan = found.best().plan;
  EXPECT_TRUE(spec::has_caches(plan));
  const std::string text = spec::plan_to_yaml(plan);
  EXPECT_EQ(spec::plan_from_yaml(text, "plan.yaml"), plan);
  EXPECT_EQ(text, spec::plan_to_yaml(sized(config, cluster_with_disks(kReadRate)).best().plan));
  spec::Plan other = plan;
  other.cache_bytes += 4096;
  EXPECT_NE(spec::plan_to_yaml(other), text);
  EXPECT_EQ(spec::plan_hash(other), spec::plan_hash(plan));
  other.cache_bytes = plan.cache_bytes / 2;
  try {
    check_plan(other, config);
    FAIL() << "caches that are larger than what they share";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("and cache_bytes of the plan is " + std::to_string(other.cache_bytes)),
              std::string::npos)
        << error.what();
  }
}

TEST(CacheSize, IsReportedWithWhatDecided) {
  const spec::Config config = open_size_job(1.05);
  const topology::Cluster cluster = cluster_with_disks(kReadRate);
  const Workload workload = make_workload(config);
  const SearchResult found = search(config, cluster, workload);
  const PlanReport report{config, cluster, workload, found};
  const std::string text = to_text(report);
  EXPECT_NE(text.find("chosen (tiers.cache_bytes: 0). The rate of the disks decided."),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rows of a step hit"), std::string::npos) << text;
  EXPECT_NE(to_json(report).find("\"cache_size\""), std::string::npos);
  EXPECT_NE(to_json(report).find("\"bound\": \"reads\""), std::string::npos);
  EXPECT_NE(to_html(report).find("Size of caches: "), std::string::npos);
}

/// The size is chosen for the schedule that the plan gets.
TEST(CacheSize, GoesWithAScheduleThatIsOpenToo) {
  spec::Config config = open_size_job(1.05);
  config.pipeline.schedule = spec::PipelineSchedule::kAuto;
  config.train.eval_every = 10;
  const SearchResult slow = sized(config, cluster_with_disks(kReadRate));
  EXPECT_EQ(slow.cache_size->share, kHiddenShare);
  EXPECT_NE(slow.best().plan.pipeline.schedule, spec::PipelineSchedule::kSync);
  EXPECT_EQ(slow.pipelines[slow.pipeline].pipeline, slow.best().plan.pipeline);
  chosen_bytes(config, slow);  // of two batches
  const SearchResult fast = sized(config, cluster_with_disks(1e9));
  EXPECT_EQ(fast.cache_size->bound, CacheBound::kSmallest);
  chosen_bytes(config, fast);
}

/// Popularity that nobody measured is guessed, for the size as for what a step takes.
TEST(CacheSize, OfUnknownPopularityIsDividedByTheCurvesThatChoseIt) {
  spec::Config config = open_size_job(1.05);
  config.data.format = spec::DataFormat::kCriteo;
  const SearchResult found = sized(config, cluster_with_disks(kReadRate));
  EXPECT_TRUE(spec::has_caches(found.best().plan));
  config.tiers.division = spec::CacheDivision::kBytes;
  EXPECT_FALSE(spec::has_caches(sized(config, cluster_with_disks(kReadRate)).best().plan));
}

}  // namespace
}  // namespace weft::planner
