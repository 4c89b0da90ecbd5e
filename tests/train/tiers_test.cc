// Where rows lie changes no bit: jobs with rows that exist in memory, or behind a cache on disks,
// end with the bits of the same job with all rows in memory, under `sync` on the cpu device.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "tests/train/all_pairs.h"
#include "tests/train/job_fixture.h"
#include "weft/pipeline/schedule.h"
#include "weft/spec/plan.h"
#include "weft/topology/yaml.h"

namespace weft::train {
namespace {

// A cache holds the rows of one batch, and with evaluations between two begun ones those of two.
// The largest table has 300 rows of 24 columns, of which a batch of 61 may ask for most.
constexpr const char* kTightCache = "70000";
constexpr const char* kWideCache = "400000";
// Of a batch of three samples: one set of 32 slots, or four of 8.
constexpr const char* kOneSet = "9000";

std::vector<Level> memory_levels() {
  const Overrides ssd = joined(all_tables("memory.tier", "ssd"),
                               {"tiers.segment_bytes=65536", "tiers.write_buffer_bytes=65536"});
  return {{"lazy", all_tables("memory.tier", "lazy")},
          {"a tight cache", joined(ssd, all_tables("memory.cache_bytes", kTightCache))},
          {"a wide cache", joined(ssd, all_tables("memory.cache_bytes", kWideCache))},
          {"a shared cache", joined(ssd, {"tiers.cache_bytes=1000000"})},
          {"one set of a small batch", joined(ssd, joined(all_tables("memory.cache_bytes", kOneSet),
                                                          {"batch_size=3", "train.steps=40"}))},
          {"one table on disks, one lazy",
           joined({"tables.item.memory.tier=ssd", "tables.rare.memory.tier=lazy"},
                  {"tables.item.memory.cache_bytes=70000", "tiers.segment_bytes=65536"})}};
}

std::vector<Factor> tier_factors() {
  std::vector<Factor> all;
  all.push_back({"memory", memory_levels()});
  all.push_back(
      {"ways", {{"8", all_tables("memory.ways", "8")}, {"32", all_tables("memory.ways", "32")}}});
  Factor& policy = all.emplace_back(Factor{"policy", {}});
  for (const char* value : {"lru", "lfu", "ahead"}) {
    policy.levels.push_back({value, all_tables("memory.policy", value)});
  }
  all.push_back({"reads", {{"auto", {}}, {"threads", {"tiers.reads=threads"}}}});
  all.push_back({"directories", {{"one", {}}, {"two", {}}}});
  Factor& schedule = all.emplace_back(Factor{"schedule", {}});
  for (const pipeline::Schedule& one : pipeline::schedules()) {
    schedule.levels.push_back(
        {std::string(one.name), {"pipeline.schedule=" + std::string(one.name)}});
  }
  all.push_back(
      {"ranks",
       {{"1", {}, 1},
        {"2", {}, 2},
        {"3", {}, 3},
        {"2 groups of 2 dense", mesh(2, "dense"), 4},
        {"2 groups of 2, touched, every 4, local_all_reduce",
         joined(mesh(2, "touched"), {"mesh.sync_every=4", "mesh.layout=local_all_reduce"}), 4},
        {"2 groups of 1, gradients", mesh(2, "gradients"), 2},
        {"4 groups of 1", mesh(4, "dense"), 4},
        {"2 groups of 2, int8 syncs every 2",
         joined(mesh(2, "touched"), {"mesh.sync_every=2", "codecs.sync=int8"}), 4},
        {"3 groups of 1, dense, fp16 syncs", joined(mesh(3, "dense"), {"codecs.sync=fp16"}), 3}}});
  Factor& sharding = all.emplace_back(Factor{"sharding", {{"as planned", {}}}});
  for (const char* value :
       {"table_wise", "row_wise", "column_wise", "grid_shard", "data_parallel"}) {
    sharding.levels.push_back({value, all_tables("sharding", value)});
  }
  const Overrides rows = all_tables("sharding", "row_wise");
  sharding.levels.push_back(
      {"row_wise, pooled at the sample", joined(rows, all_tables("pooled_at", "sample"))});
  sharding.levels.push_back({"row_wise, modulo", joined(rows, all_tables("row_split", "modulo"))});
  Factor& optimizer = all.emplace_back(Factor{"optimizer", {}});
  for (const char* value : {"sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam"}) {
    optimizer.levels.push_back({value, {std::string("sparse_optimizer.type=") + value}});
  }
  optimizer.levels.push_back(
      {"row_wise_adagrad, max_norm, accumulator",
       {"sparse_optimizer.type=row_wise_adagrad", "sparse_optimizer.max_norm=0.2",
        "sparse_optimizer.initial_accumulator=0.1"}});
  Factor& rows_of = all.emplace_back(Factor{"rows", {}});
  for (const char* value : {"fp32", "fp16", "bf16", "split_bf16"}) {
    rows_of.levels.push_back({value, all_tables("dtype", value)});
  }
  all.push_back({"codecs",
                 {{"none", {}},
                  {"stochastic",
                   {"codecs.forward=fp8_e4m3", "codecs.backward=int8", "codecs.rounding=stochastic",
                    "codecs.group_size=8"}}}});
  all.push_back({"run",
                 {{"plain", {}},
                  {"check device", {"train.device=check"}},
                  {"skipped steps",
                   {"dense_optimizer.type=sgd", "dense_optimizer.learning_rate=1e30",
                    "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0",
                    "train.on_non_finite=skip", "data.synthetic.eval_samples=0"}},
                  {"evaluations", {"train.eval_every=4"}}}});
  return all;
}

/// What tiers have done in all rows together.
struct Seen {
  storage::TierCounts rows;
  std::int64_t stored = 0, moved = 0, read = 0;
};

void note(const TierFigures& figures, Seen& seen) {
  for (const TableTier& one : figures.tables) {
    EXPECT_GT(one.counts.asked, 0) << one.table;
    seen.rows.hits += one.counts.hits;
    seen.rows.made += one.counts.made;
    seen.rows.late += one.counts.late;
    seen.rows.spilled += one.counts.spilled;
    seen.rows.evicted += one.counts.evicted;
    seen.rows.written += one.counts.written;
  }
  seen.stored += figures.disks.rows_stored;
  seen.moved += figures.disks.rows_moved;
  seen.read += figures.disks.rows_read;
}

void expect_bits_of_memory(const std::vector<Factor>& all,
                           const Row& row,
                           std::uint64_t number,
                           Seen& seen) {
  SCOPED_TRACE(name_of(all, row));
  const TemporaryFolder folder;
  Overrides overrides;
  int ranks = 1;
  for (std::size_t f = 0; f < all.size(); ++f) {
    const Level& level = all[f].levels[row[f]];
    overrides = joined(overrides, level.sets);
    ranks = std::max(ranks, level.ranks);
  }
  const bool two = name_of(all, row).find("directories two") != std::string::npos;
  overrides.push_back("tiers.directories=[" + folder.path() + "/a" +
                      (two ? ", " + folder.path() + "/b]" : std::string("]")));
  JobOptions options = job_options(make_job(overrides));
  options.threads = 1 + static_cast<int>(number % 2);
  if (number % 3 == 0) {
    options = with_hot_rows(options, ranks, {5, 12}, folder.path());
  }
  JobOptions plain = options;
  plain.config = in_memory(plain.config);
  options.engine.random_delay = std::chrono::microseconds(100);
  const Summary expected = train_on(ranks, plain);
  const Summary got = train_on(ranks, options);
  note(got.tiers, seen);
  EXPECT_EQ(got.weights_hash, expected.weights_hash);
  EXPECT_EQ(got.state_hash, expected.state_hash);
  EXPECT_EQ(got.lifetime_ne, expected.lifetime_ne);
  EXPECT_EQ(got.skipped_steps, expected.skipped_steps);
  ASSERT_EQ(got.eval.has_value(), expected.eval.has_value());
  if (got.eval) {
    EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc);
    EXPECT_EQ(got.eval->tasks.front().ne, expected.eval->tasks.front().ne);
  }
}

// A sanitizer makes rows several times as long: then one of so many is trained.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kOneOf = 5;
#else
constexpr std::uint64_t kOneOf = 1;
#endif

/// WEFT_TIER_SEEDS: how many sets of all pairs are trained, each drawn anew; WEFT_TIER_FIRST_SEED:
/// from which on.
TEST(Tiers, AllPairsHaveTheBitsOfAllRowsInMemory) {
  const std::vector<Factor> all = tier_factors();
  const char* const asked = std::getenv("WEFT_TIER_SEEDS");
  const std::uint64_t seeds = asked == nullptr ? 1 : std::strtoull(asked, nullptr, 10);
  std::uint64_t number = 0;
  Seen seen;
  const char* const from = std::getenv("WEFT_TIER_FIRST_SEED");
  const std::uint64_t first = from == nullptr ? 1 : std::strtoull(from, nullptr, 10);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    for (const Row& row : all_pairs(all, seed)) {
      if (number++ % kOneOf != 0) {
        continue;
      }
      expect_bits_of_memory(all, row, number, seen);
      if (HasFatalFailure() || HasNonfatalFailure()) {
        FAIL() << "row " << number << " of seed " << seed;
      }
    }
    if (seeds > 1) {  // hours by hand, which may be ended at any time
      fmt::print(stderr, "seed {}: {} rows so far\n", seed, number);
    }
  }
  RecordProperty("rows", static_cast<int>(number));
  EXPECT_GT(seen.rows.hits, 0);
  EXPECT_GT(seen.rows.made, 0);
  EXPECT_GT(seen.rows.spilled, 0);
  EXPECT_GT(seen.rows.evicted, seen.rows.written);
  EXPECT_GT(seen.rows.written, 0);
  EXPECT_GT(seen.stored, 0);
  EXPECT_GT(seen.read, 0);
}

/// The bits of a size that the planner chose are those of a number, and of all rows in memory; its
/// plan has it, for a job without the cluster and for a resume.
TEST(Tiers, AChosenCacheHasTheBitsOfAllRowsInMemory) {
  const TemporaryFolder folder;
  topology::Cluster cluster = topology::small_cluster({{.count = 1, .ranks = 2}});
  cluster.disk.read_blocks.value = 1e5;
  const std::string cluster_file = folder.path() + "/cluster.yaml";
  std::ofstream(cluster_file) << topology::to_yaml(cluster);
  const auto job = [&](const Overrides& more) {
    return make_job(
        joined(joined(all_tables("memory.tier", "ssd"), all_tables("sharding", "row_wise")),
               joined({"tiers.directories=[" + folder.path() + "/rows]",
                       "tiers.segment_bytes=65536", "tables.tags.memory.policy=lru"},
                      more)),
        1);
  };
  JobOptions chosen = job_options(job({}));
  chosen.cluster_file = cluster_file;
  chosen.out_dir = folder.path() + "/out";
  const Summary expected = train_on(2, job_options(in_memory(chosen.config)));
  const Summary got = train_on(2, chosen);
  expect_same(got, expected, "chosen");
  expect_same(train_on(2, job_options(job({"tiers.cache_bytes=600000"}))), expected, "a number");

  JobOptions given = job_options(job({}));
  EXPECT_NE(message_of([&] {
              train_on(2, given);
            }).find("the cache of table 'one' has no size: tiers.cache_bytes is 0"),
            std::string::npos);
  given.plan_file = chosen.out_dir + "/plan.yaml";
  std::ifstream file(given.plan_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_GT(spec::plan_from_yaml(text, given.plan_file).cache_bytes, 0);
  const Summary with_plan = train_on(2, given);
  expect_same(with_plan, expected, "its plan");
  EXPECT_EQ(with_plan.plan_hash, got.plan_hash);

  chosen.config.train.steps = 3;
  chosen.out_dir.clear();
  chosen.checkpoint_dir = folder.path() + "/ck";
  train_on(2, chosen);
  JobOptions rest = job_options(job({}));
  rest.resume = chosen.checkpoint_dir;
  expect_same(train_on(2, rest), expected, "resumed without the cluster");
}

/// Where rows lie before and after a resume.
class TierResume : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(TierResume, HasTheBitsOfOneRun) {
  const TemporaryFolder folder;
  const auto job = [&](const char* tier) {
    return make_job(
        joined(
            joined(all_tables("memory.tier", tier), all_tables("sharding", "row_wise")),
            {"tables.tags.sharding=data_parallel", "tiers.directories=[" + folder.path() + "/rows]",
             "tiers.cache_bytes=600000", "tiers.segment_bytes=65536"}),
        1);  // bags of one id, which no sharding cuts
  };
  const Summary expected = train_on(2, job_options(in_memory(job("dense"))));
  JobOptions first = job_options(job(GetParam().first));
  first.config.train.steps = 3;
  first.checkpoint_dir = folder.path() + "/ck";
  train_on(2, first);
  JobOptions second = job_options(job(GetParam().second));
  second.resume = first.checkpoint_dir;
  expect_same(train_on(3, second), expected, "after the resume");
}

INSTANTIATE_TEST_SUITE_P(Tiers,
                         TierResume,
                         ::testing::Values(std::pair("dense", "lazy"),
                                           std::pair("lazy", "dense"),
                                           std::pair("lazy", "ssd"),
                                           std::pair("ssd", "lazy"),
                                           std::pair("ssd", "ssd"),
                                           std::pair("dense", "ssd")));

/// What syncs have lost goes with the rows of which it is lost, in checkpoints and chains of them.
TEST_P(TierResume, HasWhatSyncsHaveLost) {
  Warnings warnings("rounded away");
  const TemporaryFolder folder;
  const auto [from, to] = GetParam();
  const std::string sync = std::string(from) == "dense" ? "dense" : "touched";
  const auto job = [&](const std::string& tier) {
    return make_job(
        joined(joined(all_tables("memory.tier", tier), mesh(2, sync)),
               {"tiers.directories=[" + folder.path() + "/rows]", "tiers.cache_bytes=600000",
                "tiers.segment_bytes=65536", "codecs.sync=int8", "sparse_optimizer.type=adam",
                "tables.item.sharding=column_wise", "tables.tags.dtype=bf16",
                "tables.rare.dtype=split_bf16", "tables.rare.sharding=row_wise"}));
  };
  const Summary expected = train_on(4, job_options(in_memory(job("dense"))));
  JobOptions first = job_options(job(from));
  first.config.train.steps = 4;
  first.checkpoint_dir = folder.path() + "/ck";
  first.checkpoint_every = 2;
  train_on(4, first);
  JobOptions second = job_options(job(to));
  second.resume = first.checkpoint_dir;
  expect_same(train_on(4, second), expected, "after the resume, " + sync);
  EXPECT_TRUE(warnings.take().empty());
}

/// What a job of two groups has saved is trained on by others, whose Adagrad sums are other
/// multiples.
Summary resumed_with(const std::string& tier, const std::string& accumulator, const Overrides& to) {
  const TemporaryFolder folder;
  const Overrides job = joined(
      all_tables("memory.tier", tier),
      {"tiers.directories=[" + folder.path() + "/rows]", "tiers.cache_bytes=400000",
       "tiers.segment_bytes=65536", "sparse_optimizer.type=row_wise_adagrad",
       "sparse_optimizer.initial_accumulator=" + accumulator, "tables.item.sharding=column_wise",
       "tables.rare.sharding=row_wise", "tables.rare.optimizer.type=adagrad"});
  JobOptions first = job_options(make_job(joined(job, mesh(2, "dense")), 1));
  first.config.train.steps = 3;
  first.checkpoint_dir = folder.path() + "/ck";
  first.config = tier == "dense" ? in_memory(first.config) : first.config;
  train_on(4, first);
  JobOptions second = job_options(make_job(joined(job, to), 1));
  second.config = tier == "dense" ? in_memory(second.config) : second.config;
  second.resume = first.checkpoint_dir;
  return train_on(4, second);
}

TEST(Tiers, AResumeWithOtherGroupsHasTheBitsOfAllRowsInMemory) {
  for (const std::string accumulator : {"0", "0.1"}) {
    for (const Overrides& to :
         {mesh(4, "touched"), mesh(2, "gradients"), Overrides{"mesh.groups=1"}}) {
      const Summary expected = resumed_with("dense", accumulator, to);
      expect_same(resumed_with("lazy", accumulator, to), expected, "lazy, " + to.back());
      expect_same(resumed_with("ssd", accumulator, to), expected, "ssd, " + to.back());
    }
  }
}

/// Caches of half a table: an average goes by rounds, and the sum of gradients has no room.
TEST(Tiers, AveragesTakeRoundsWhereAllTouchedRowsHaveNoRoom) {
  const TemporaryFolder folder;
  const auto job = [&](const std::string& sync) {
    return make_job(
        joined(joined(all_tables("memory.tier", "ssd"), mesh(4, sync)),
               {"tiers.directories=[" + folder.path() + "]", "tiers.cache_bytes=400000",
                "tables.item.memory.cache_bytes=8000", "tables.item.memory.ways=8",
                "tables.item.sharding=table_wise", "batch_size=24", "pipeline.schedule=dbp"}),
        1);
  };
  const JobOptions averaged = job_options(job("dense"));
  JobOptions plain = averaged;
  plain.config = in_memory(plain.config);
  expect_same(train_on(4, averaged), train_on(4, plain), "averaged");
  JobOptions coded = averaged;
  coded.config.codecs.sync = CodecFormat::kInt8;
  JobOptions plain_coded = plain;
  plain_coded.config.codecs.sync = CodecFormat::kInt8;
  expect_same(train_on(4, coded), train_on(4, plain_coded), "averaged in codes");
  try {
    train_on(4, job_options(job("gradients")));
    FAIL() << "the cache holds the rows of all groups";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_NE(std::string(error.what()).find("item"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("cache_bytes"), std::string::npos) << error.what();
  }
}

TEST(Tiers, ATooSmallCacheIsNamed) {
  const TemporaryFolder folder;
  const JobOptions options = job_options(
      make_job(joined(all_tables("memory.tier", "ssd"),
                      {"tiers.directories=[" + folder.path() + "]", "tiers.cache_bytes=400000",
                       "tables.item.memory.cache_bytes=1000", "tables.item.memory.ways=8"})));
  try {
    train_on(1, options);
    FAIL() << "a cache of eight rows trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_NE(std::string(error.what()).find("item"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("cache_bytes"), std::string::npos) << error.what();
  }
}

TEST(Tiers, ABillionRowsTakeTheSpaceOfThoseThatTrain) {
  spec::Config config = make_job({"tables.item.num_embeddings=1000000000",
                                  "tables.item.memory.tier=lazy", "tables.item.init_scale=0.1"});
  const Summary got = train_on(1, job_options(config));
  config.tables[2].num_embeddings = 300;  // no id is larger
  config.tables[2].memory = {};
  const Summary expected = train_on(1, job_options(config));
  EXPECT_EQ(got.weights_hash, expected.weights_hash);
  EXPECT_EQ(got.state_hash, expected.state_hash);
}

}  // namespace
}  // namespace weft::train
