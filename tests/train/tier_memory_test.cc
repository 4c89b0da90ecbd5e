// What the planner predicts of rows that are not all in memory, against what jobs use: bytes of
// rows, of their places and files, the smallest cache, and misses.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "tests/train/job_fixture.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/data/loader.h"
#include "weft/data/vocabulary.h"
#include "weft/kernels/target.h"
#include "weft/planner/cache_division.h"
#include "weft/planner/cache_size.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/estimate.h"
#include "weft/planner/mesh_cluster.h"
#include "weft/planner/place.h"
#include "weft/planner/search.h"
#include "weft/planner/step_memory.h"
#include "weft/planner/tier_use.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER
#include "weft/topology/rates.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

struct TierCase {
  std::string tier = "lazy";
  std::string optimizer = "row_wise_adagrad";
  std::string sharding = "row_wise";
  std::string policy = "lru";
  std::string zipf = "0";
  std::string schedule = "sync";
  std::int64_t ranks = 2;
  std::int64_t steps = 12;
  std::int64_t cache_bytes = 0;  ///< of each shard; 0: half of its rows
};

constexpr std::int64_t kTierRows = 60'000;

spec::Config tier_config(const TierCase& one, const std::string& folder) {
  spec::Config config = spec::parse_config(
      "version: 1\n"
      "batch_size: 2048\n"
      "data: {format: synthetic, synthetic: {samples: 400000, eval_samples: 0, dense_columns: 2, "
      "columns: [{name: 'C{1..2}', cardinality: 60000, min_length: 8, max_length: 8, zipf: " +
          one.zipf +
          "}]}}\n"
          "dense_features: [{name: 'd{1..2}', transform: log}]\n"
          "sparse_features: [{name: 'C{1..2}', mapping: identity}]\n"
          "tables: [{name: 'C{1..2}', num_embeddings: 60000, embedding_dim: 32, sharding: " +
          one.sharding + ", memory: {tier: " + one.tier + ", policy: " + one.policy +
          "}}]\n"
          "sparse_optimizer: {type: " +
          one.optimizer +
          ", learning_rate: 0.01}\n"
          "model: {type: dlrm, bottom_mlp: [32, 32], top_mlp: [32]}\n"
          "dense_optimizer: {type: sgd, learning_rate: 0.01}\n"
          "pipeline: {schedule: " +
          one.schedule + "}\ntiers: {directories: [" + folder +
          "], segment_bytes: 262144, write_buffer_bytes: 262144, cache_bytes: 1, division: "
          "bytes}\n",
      "job.yaml");
  config.train.steps = one.steps;
  if (!kernels::has_bf16_products(kernels::current_target())) {
    config.numerics.target = spec::Target::kAvx512;  // bf16 is widened
  }
  for (spec::Table& table : config.tables) {
    table.memory.cache_bytes = one.cache_bytes;
  }
  if (one.cache_bytes == 0 && one.tier == "ssd") {
    config.tiers.cache_bytes = layout::shard_bytes(config.tables[0], kTierRows, 32) /
                               (one.sharding == "data_parallel" ? 1 : one.ranks);  // both tables
  }
  return config;
}

/// What a job has used: of all ranks.
struct TierUsed {
  std::vector<double> peaks;        ///< of devices
  std::vector<std::int64_t> bytes;  ///< of the tiers of both tables, after drain()
  storage::StoreCounts disks;       ///< summed
  std::int64_t most_rows = 0;       ///< of one table's largest batch on a rank
  double missed = 0.0;              ///< rows of a step of one table on a rank, in the last third
  double asked = 0.0;
};

struct ShardCounts {
  std::int64_t asked = 0, missed = 0;
};

ShardCounts counts_of(const storage::RowTier& tier) {
  const storage::TierCounts counts = tier.counts();
  return {.asked = counts.asked, .missed = counts.asked - counts.hits};
}

TierUsed use_tiers(const TierCase& one, const spec::Config& config, const spec::Plan& plan) {
  TierUsed used;
  used.peaks.resize(at(one.ranks));
  used.bytes.resize(at(one.ranks));
  std::vector<storage::StoreCounts> disks(at(one.ranks));
  std::vector<std::int64_t> most(at(one.ranks));
  std::vector<ShardCounts> late(at(one.ranks));
  comm::run_local(static_cast<int>(one.ranks), {}, [&](comm::Communicator& world) {
    const std::size_t rank = at(world.rank());
    const auto device = make_device({.threads = 1});
    data::LoaderOptions reading =
        data::LoaderOptions::train(config, world.rank(), world.size(), plan.parts);
    reading.epochs = 0;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config,
                        data::Vocabularies{}, reading);
    Engine engine(config, plan, world, *device);
    const auto shards = engine.embeddings().shards();
    std::array<data::Batch, 2> batches;
    loader.next(batches[1]);
    std::vector<ShardCounts> before(shards.size());
    for (std::int64_t step = 1; step <= one.steps; ++step) {
      loader.next(batches[at((step + 1) % 2)]);
      const StepInput now{.batch = batches[at(step % 2)], .step = step};
      const StepInput next{.batch = batches[at((step + 1) % 2)], .step = step + 1};
      engine.train_step(now, engine.looks_ahead() && step < one.steps ? &next : nullptr);
      for (std::size_t i = 0; i < shards.size(); ++i) {
        const ShardCounts counts = counts_of(*shards[i]->tier());
        if (!engine.looks_ahead()) {  // else of two batches
          most[rank] = std::max(most[rank], counts.asked - before[i].asked);
        }
        if (3 * step > 2 * one.steps) {
          late[rank].asked += counts.asked - before[i].asked;
          late[rank].missed += counts.missed - before[i].missed;
        }
        before[i] = counts;
      }
    }
    engine.await_sync();  // which writes rows
    used.peaks[rank] = static_cast<double>(device->memory_peak());
    for (const embedding::TableShard* shard : shards) {
      shard->tier()->drain();
      used.bytes[rank] += shard->tier()->bytes();
    }
    if (engine.embeddings().disk_rows() != nullptr) {
      disks[rank] = engine.embeddings().disk_rows()->counts();
    }
  });
  used.most_rows = *std::max_element(most.begin(), most.end());
  const auto late_steps = static_cast<double>(one.steps - 2 * one.steps / 3);
  for (std::size_t r = 0; r < late.size(); ++r) {
    used.asked += static_cast<double>(late[r].asked) / late_steps;
    used.missed += static_cast<double>(late[r].missed) / late_steps;
    used.disks.index_bytes += disks[r].index_bytes;
    used.disks.rows_held += disks[r].rows_held;
    used.disks.live_bytes += disks[r].live_bytes;
    used.disks.segment_bytes += disks[r].segment_bytes;
    used.disks.segments += disks[r].segments;
    used.disks.bytes_written += disks[r].bytes_written;
    used.disks.rows_stored += disks[r].rows_stored;
    used.disks.rows_moved += disks[r].rows_moved;
  }
  return used;
}

/// All that is predicted of a job.
struct TierPrediction {
  spec::Config config;
  spec::Plan plan;
  std::vector<planner::ShardTier> shards;
  std::vector<double> devices;  ///< [ranks]
};

TierPrediction predict_tiers(const spec::Config& config, const spec::Plan& plan) {
  TierPrediction made{.config = config, .plan = plan, .shards = {}, .devices = {}};
  const planner::Workload workload = planner::make_workload(made.config);
  made.shards = planner::shard_tiers(made.config, workload, made.plan,
                                     planner::HotUses(made.config, workload));
  const auto memory = planner::step_memory(made.config, workload, made.plan, {});
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    const planner::DenseMemory dense =
        planner::dense_memory(made.config, workload,
                              {.parts = made.plan.parts,
                               .ranks = made.plan.ranks,
                               .rank = static_cast<std::int64_t>(rank),
                               .threads = 1,
                               .packing = kernels::current_packing()});
    made.devices.push_back(memory[rank].matrices + memory[rank].buffers() + memory[rank].tables +
                           dense.device());
  }
  return made;
}

TierPrediction predict_tiers(const spec::Config& config, std::int64_t ranks) {
  spec::Plan plan = planner::make_plan(config, ranks);
  const planner::Workload workload = planner::make_workload(config);
  if (planner::divides_by_curves(config, workload, plan)) {
    planner::divide_caches(config, workload, planner::HotUses(config, workload), plan);
  }
  return predict_tiers(config, plan);
}

TierPrediction predict_tiers(const TierCase& one, const std::string& folder) {
  return predict_tiers(tier_config(one, folder), one.ranks);
}

template <typename Of>
double sum_over(const std::vector<planner::ShardTier>& shards, const Of& of) {
  double sum = 0.0;
  for (const planner::ShardTier& shard : shards) {
    sum += static_cast<double>(of(shard));
  }
  return sum;
}

void expect_within(double share, double predicted, double used, const char* what) {
  EXPECT_NEAR(predicted, used, share * used) << what;
}

class TierMemory : public testing::Test {
 protected:
  void SetUp() override {
#if defined(WEFT_ADDRESS_SANITIZER)
    GTEST_SKIP() << "large blocks are not mapped by themselves, so other bytes are counted";
#endif
  }

  TemporaryFolder folder_;
};

TEST_F(TierMemory, OfRowsThatExist) {
  for (const char* optimizer : {"row_wise_adagrad", "adam"}) {
    for (const char* sharding : {"row_wise", "table_wise", "data_parallel"}) {
      for (const char* schedule : {"sync", "prefetch"}) {
        SCOPED_TRACE(std::string(optimizer) + " " + sharding + " " + schedule);
        const TierCase one{
            .optimizer = optimizer, .sharding = sharding, .schedule = schedule, .steps = 8};
        const TierPrediction predicted = predict_tiers(one, folder_.path());
        const TierUsed used = use_tiers(one, predicted.config, predicted.plan);
        std::vector<double> tiers(at(one.ranks));
        for (const planner::ShardTier& shard : predicted.shards) {
          tiers[at(shard.rank)] += shard.slot_bytes + shard.place_bytes;
        }
        for (std::size_t r = 0; r < tiers.size(); ++r) {
          expect_within(0.03, tiers[r], static_cast<double>(used.bytes[r]), "tiers");
          expect_within(0.03, predicted.devices[r], used.peaks[r], "device");
        }
      }
    }
  }
}

TEST_F(TierMemory, OfRowsOnDisks) {
  for (const auto& [optimizer, schedule, sharding] :
       {std::tuple("row_wise_adagrad", "sync", "row_wise"),
        std::tuple("adam", "prefetch", "row_wise"),
        std::tuple("row_wise_adagrad", "prefetch", "data_parallel")}) {
    SCOPED_TRACE(std::string(optimizer) + " " + schedule + " " + sharding);
    const TierCase one{.tier = "ssd",
                       .optimizer = optimizer,
                       .sharding = sharding,
                       .schedule = schedule,
                       .steps = 8};
    const TierPrediction predicted = predict_tiers(one, folder_.path());
    const TierUsed used = use_tiers(one, predicted.config, predicted.plan);
    std::vector<double> tiers(at(one.ranks));
    for (const planner::ShardTier& shard : predicted.shards) {
      tiers[at(shard.rank)] += shard.slot_bytes;
    }
    for (std::size_t r = 0; r < tiers.size(); ++r) {
      EXPECT_EQ(tiers[r], static_cast<double>(used.bytes[r]));
      expect_within(0.03, predicted.devices[r], used.peaks[r], "device");
    }
    expect_within(0.03, sum_over(predicted.shards, [](const auto& s) { return s.place_bytes; }),
                  static_cast<double>(used.disks.index_bytes), "index");
    expect_within(0.03, sum_over(predicted.shards, [](const auto& s) { return s.existing; }),
                  static_cast<double>(used.disks.rows_held), "rows that exist");
    // Of a row, of all that was ever written; what is not sealed yet is not counted.
    const auto written = static_cast<double>(used.disks.bytes_written);
    const auto appended = static_cast<double>(used.disks.rows_stored + used.disks.rows_moved);
    const double open = 4.0 * static_cast<double>(predicted.config.tiers.segment_bytes);
    const double of_row = planner::stored_row_bytes(predicted.shards[0].row_bytes);
    EXPECT_LE(written, 1.03 * of_row * appended);
    EXPECT_GE(written + open, 0.97 * of_row * appended);
    // At most space_factor times what the rows take, and two segments a rank.
    const double disk = sum_over(predicted.shards, [](const auto& s) { return s.disk_bytes; });
    EXPECT_LE(static_cast<double>(used.disks.segment_bytes),
              1.03 * predicted.config.tiers.space_factor * disk + open);
    EXPECT_GE(static_cast<double>(used.disks.segment_bytes) + open, 0.97 * disk);
  }
}

TEST_F(TierMemory, TheSmallestCacheThatTrains) {
  TierCase one{.tier = "ssd", .steps = 6};
  const TierPrediction first = predict_tiers(one, folder_.path());
  const planner::ShardTier& shard = first.shards[0];
  one.cache_bytes = shard.fewest_bytes;
  const TierPrediction fits = predict_tiers(one, folder_.path());
  EXPECT_GE(fits.shards[0].cache.slots(), shard.fewest_slots);
  const TierUsed used = use_tiers(one, fits.config, fits.plan);
  expect_within(0.03, static_cast<double>(shard.fewest_slots), static_cast<double>(used.most_rows),
                "rows of the largest batch");
  one.cache_bytes = 95 * shard.fewest_bytes / 100;
  const TierPrediction lacks = predict_tiers(one, folder_.path());
  try {
    use_tiers(one, lacks.config, lacks.plan);
    FAIL() << "a cache of " << lacks.shards[0].cache.slots() << " slots trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
  }
}

/// What a codec of syncs keeps of two groups' rows, and its buffers.
TEST_F(TierMemory, OfRowsThatSyncsKeep) {
  topology::Cluster cluster;
  cluster.name = "made up";
  cluster.hosts = {{.count = 1, .ranks = 2}};
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.compute.gemm_fp32.value = cluster.compute.copy.value = 1e10;
  cluster.links.self.rank.value = cluster.links.host.rank.value = 1e9;
  for (const char* tier : {"lazy", "ssd"}) {
    for (const bool has_feedback : {true, false}) {
      SCOPED_TRACE(std::string(tier) + (has_feedback ? " with feedback" : ""));
      const TierCase one{.tier = tier, .optimizer = "adam", .steps = 12};
      std::array<double, 2> predicted{};  // without a codec, and with one
      std::array<double, 2> used{};
      for (const bool is_coded : {false, true}) {
        spec::Config config = tier_config(one, folder_.path());
        config.batch_size = 256;
        config.mesh = {.groups = 2, .sync = spec::SyncForm::kTouched};
        config.codecs.sync = is_coded ? CodecFormat::kInt8 : CodecFormat::kFp32;
        config.codecs.error_feedback = has_feedback;
        const spec::Plan plan = planner::make_plan(config, one.ranks);
        const planner::MeshCluster mesh = planner::mesh_cluster(cluster, config.mesh);
        const planner::Workload workload = planner::make_workload(config);
        predicted[is_coded ? 1 : 0] = planner::Estimator(config, mesh, workload, plan.parts)
                                          .cost(plan)
                                          .ranks.front()
                                          .buffer_bytes;
        used[is_coded ? 1 : 0] = use_tiers(one, config, plan).peaks.front();
      }
      // How long rows have losses is an estimate; without feedback there are none.
      expect_within(has_feedback ? 0.2 : 0.03, predicted[1] - predicted[0], used[1] - used[0],
                    "kept rows");
    }
  }
}

/// Rows that are asked for often leave a cache later under lfu than is predicted, never earlier.
TEST_F(TierMemory, Misses) {
  for (const auto& [zipf, policy] : {std::pair("0", "lru"), std::pair("1.05", "lru"),
                                     std::pair("1.05", "ahead"), std::pair("1.05", "lfu")}) {
    SCOPED_TRACE(std::string("zipf ") + zipf + " " + policy);
    const TierCase one{.tier = "ssd", .policy = policy, .zipf = zipf, .steps = 15};
    const TierPrediction predicted = predict_tiers(one, folder_.path());
    const TierUsed used = use_tiers(one, predicted.config, predicted.plan);
    const double rows = sum_over(predicted.shards, [](const auto& s) { return s.step_rows; });
    const double missed = sum_over(predicted.shards, [](const auto& s) { return s.missed; });
    expect_within(0.03, rows, used.asked, "rows of a step");
    EXPECT_GT(missed, 0.97 * used.missed);
    EXPECT_LT(missed, (std::string(policy) == "lfu" ? 1.15 : 1.03) * used.missed);
  }
}

struct SizeCase {
  std::string schedule;
  double read_blocks = 0.0;
  double share_of_memory = 0.0;  ///< of what the size has beyond the smallest; 0: all there is
};

/// Caches whose size the planner has chosen, by the rate of the disks and by memory.
TEST_F(TierMemory, OfAChosenSize) {
  for (const auto& [schedule, read_blocks, share_of_memory] :
       {SizeCase{"sync", 3e6}, SizeCase{"prefetch", 4e5}, SizeCase{"sync", 3e6, 0.5},
        SizeCase{"prefetch", 3e5, 0.7}}) {
    SCOPED_TRACE(schedule + " " + std::to_string(share_of_memory));
    const TierCase one{.tier = "ssd", .zipf = "1.05", .schedule = schedule, .steps = 36};
    spec::Config config = tier_config(one, folder_.path());
    config.tiers.cache_bytes = 0;
    config.tiers.division = spec::CacheDivision::kAuto;
    config.data.synthetic.columns[1].zipf = 0.9;
    topology::Cluster cluster = topology::small_cluster({{.count = 1, .ranks = 2}});
    cluster.disk.read_blocks.value = read_blocks;
    const planner::Workload workload = planner::make_workload(config);
    planner::SearchResult found = planner::search(config, cluster, workload);
    EXPECT_EQ(found.cache_size->bound, planner::CacheBound::kReads);
    if (share_of_memory > 0.0) {
      const planner::RankCost& rank = found.best().cost.ranks[0];
      const auto beyond = static_cast<double>(found.cache_size->bytes - found.cache_size->smallest);
      cluster.memory.ddr.value = (static_cast<double>(rank.table_bytes) + rank.buffer_bytes +
                                  rank.sample_bytes - (1.0 - share_of_memory) * beyond) /
                                 (1.0 - cluster.memory.reserve.value);
      found = planner::search(config, cluster, workload);
      EXPECT_EQ(found.cache_size->bound, planner::CacheBound::kMemory);
    }
    const planner::CacheSize& size = *found.cache_size;
    EXPECT_GT(size.bytes, size.smallest);
    const TierPrediction predicted = predict_tiers(config, found.best().plan);
    const TierUsed used = use_tiers(one, config, predicted.plan);
    std::vector<double> caches(at(one.ranks));
    for (const planner::ShardTier& shard : predicted.shards) {
      caches[at(shard.rank)] += shard.slot_bytes;
    }
    for (std::size_t r = 0; r < caches.size(); ++r) {
      EXPECT_EQ(caches[r], static_cast<double>(used.bytes[r]));
      EXPECT_LE(used.bytes[r], size.bytes);
      expect_within(0.03, predicted.devices[r], used.peaks[r], "device");
      EXPECT_LE(used.peaks[r], 1.03 * topology::table_capacity(cluster));
    }
    if (schedule == "sync") {  // else the steps that are counted have a fetch less
      expect_within(0.03, size.missed, used.missed, "misses");
      expect_within(0.03, size.step_rows, used.asked, "rows of a step");
    }
  }
}

/// A table of few popular rows and one whose rows are all alike. Every cache is full before the
/// steps that are counted.
TEST_F(TierMemory, MissesOfCachesDividedByCurves) {
  const TierCase one{.tier = "ssd", .zipf = "1.2", .steps = 36};
  spec::Config config = tier_config(one, folder_.path());
  config.data.synthetic.columns[1].zipf = 0.0;
  config.tiers.cache_bytes = config.tiers.cache_bytes * 3 / 4;
  double missed_by_bytes = 0.0;
  for (const spec::CacheDivision division :
       {spec::CacheDivision::kBytes, spec::CacheDivision::kAuto}) {
    config.tiers.division = division;
    const TierPrediction predicted = predict_tiers(config, one.ranks);
    EXPECT_EQ(spec::has_caches(predicted.plan), division == spec::CacheDivision::kAuto);
    const TierUsed used = use_tiers(one, config, predicted.plan);
    expect_within(0.03, sum_over(predicted.shards, [](const auto& s) { return s.missed; }),
                  used.missed, "misses");
    if (division == spec::CacheDivision::kBytes) {
      missed_by_bytes = used.missed;
    } else {
      EXPECT_LT(used.missed, 0.95 * missed_by_bytes);
    }
  }
}

}  // namespace
}  // namespace weft::train
