// The sparse engine over ranks, alone: ids go in, integer gradients come back, rows are updated.
// With small integers every order of addition is exact, so every sharding, also one that splits
// bags, must give the same bits as one rank.
#include "weft/sharding/sharded_embeddings.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/base/count_allocations.h"
#include "tests/sharding/sparse_run.h"
#include "weft/base/at.h"
#include "weft/base/philox.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/comm/local/local.h"
#include "weft/planner/place.h"
#include "weft/tensor/stream.h"

namespace weft::sharding {
namespace {

class Exact : public ::testing::TestWithParam<SparseOptimizerKind> {};

TEST_P(Exact, EveryShardingAndNumberOfRanksGivesOneHash) {
  const spec::SparseOptimizer optimizer = make_optimizer(GetParam());
  const RunResult expected = run(make_config(spec::Sharding::kTableWise, optimizer), {});
  ASSERT_NE(expected.hash.weights, 0U);
  for (const spec::Sharding sharding : kShardings) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      const RunResult got = run(make_config(sharding, optimizer), {.ranks = ranks});
      EXPECT_EQ(got.hash, expected.hash)
          << "sharding " << static_cast<int>(sharding) << " on " << ranks << " ranks";
    }
  }
}

TEST_P(Exact, DecayAndMaxNormToo) {
  for (const auto decay : {spec::WeightDecayMode::kL2, spec::WeightDecayMode::kDecoupled}) {
    spec::SparseOptimizer optimizer = make_optimizer(GetParam());
    optimizer.weight_decay = 0.1;
    optimizer.weight_decay_mode = decay;
    optimizer.max_norm = 0.5;
    const RunResult expected = run(make_config(spec::Sharding::kTableWise, optimizer), {});
    for (const spec::Sharding sharding : kShardings) {
      for (const int ranks : {3, 4}) {
        EXPECT_EQ(run(make_config(sharding, optimizer), {.ranks = ranks}).hash, expected.hash)
            << "sharding " << static_cast<int>(sharding) << " on " << ranks << " ranks";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Exact, ::testing::ValuesIn(kSparseOptimizers));

TEST(ShardedEmbeddings, IntegerRowsGiveEqualVectorsUnderEverySharding) {
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const spec::Sharding sharding : kShardings) {
    for (const int ranks : {1, 2, 4, 5, 8}) {
      expect_equal(run(make_integer_config(sharding), {.ranks = ranks}), expected,
                   fmt::format("sharding {}, {} ranks", static_cast<int>(sharding), ranks));
    }
  }
  EXPECT_NE(
      std::count_if(expected.pooled.begin(), expected.pooled.end(), [](float v) { return v != 0; }),
      0);
}

TEST(ShardedEmbeddings, MixturesOverBatchesOfAllSizesGiveEqualVectors) {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const auto draw = [seed](std::uint64_t what) {
      return philox(random_key(seed, RandomPurpose::kTest), what, 1)[0];
    };
    RunOptions options;
    for (std::uint64_t step = 0; step < 5; ++step) {
      const std::int64_t most = draw(20 + step) % 3 == 0 ? 5 : 60;
      options.sizes.push_back(1 + draw(30 + step) % most);
    }
    spec::Config config = make_integer_config(spec::Sharding::kTableWise);
    const RunResult expected = run(config, options);
    for (std::size_t t = 0; t < config.tables.size(); ++t) {
      config.tables[t].sharding = kShardings[draw(10 + t) % kShardings.size()];
    }
    options.ranks = static_cast<int>(1 + draw(3) % 8);
    options.device = draw(4) % 4 == 0 ? DeviceKind::kCheck : DeviceKind::kCpu;
    expect_equal(run(config, options), expected,
                 fmt::format("seed {}, {} ranks", seed, options.ranks));
  }
}

/// The same job by plain loops over one batch after the other: tables as maps of integers.
class PlainJob {
 public:
  explicit PlainJob(const spec::Config& config) : config_(config) {
    for (const spec::Table& table : config.tables) {
      tables_.emplace_back(static_cast<std::size_t>(table.num_embeddings * table.embedding_dim));
    }
  }

  void step(const KeyedJaggedTensor& batch, std::int64_t number) {
    look_up(batch);
    for (std::size_t f = 0, column = 0; f < config_.sparse_features.size(); ++f) {
      update(batch, number, f, static_cast<std::int64_t>(column));
      const bool has_columns = config_.sparse_features[f].pooling != spec::Pooling::kNone;
      column += has_columns ? static_cast<std::size_t>(dim(f)) : 0;
    }
  }

  std::vector<float> pooled, sequences;  ///< of all steps, as in RunResult

 private:
  [[nodiscard]] std::size_t table(std::size_t f) const {
    return static_cast<std::size_t>(spec::table_index(config_, config_.sparse_features[f]));
  }

  [[nodiscard]] std::int64_t dim(std::size_t f) const {
    return config_.tables[table(f)].embedding_dim;
  }

  float& value(std::size_t f, std::int64_t row, std::int64_t c) {
    return tables_[table(f)][static_cast<std::size_t>(row * dim(f) + c)];
  }

  void look_up(const KeyedJaggedTensor& batch) {
    for (std::int64_t b = 0; b < batch.batch; ++b) {
      for (std::size_t f = 0; f < config_.sparse_features.size(); ++f) {
        const spec::SparseFeature& feature = config_.sparse_features[f];
        const JaggedView view = batch.feature(static_cast<std::int64_t>(f));
        for (std::int64_t c = 0; c < dim(f) && feature.pooling != spec::Pooling::kNone; ++c) {
          float sum = 0.0F;
          for (std::int64_t i = view.offsets[at(b)]; i < view.offsets[at(b) + 1]; ++i) {
            sum += (feature.weighted ? view.weights[i] : 1.0F) * value(f, view.values[i], c);
          }
          const bool mean = feature.pooling == spec::Pooling::kMean && view.length(b) > 0;
          pooled.push_back(mean ? sum / static_cast<float>(view.length(b)) : sum);
        }
      }
    }
    for (std::size_t f = 0; f < config_.sparse_features.size(); ++f) {
      if (config_.sparse_features[f].pooling == spec::Pooling::kNone) {
        const JaggedView view = batch.feature(static_cast<std::int64_t>(f));
        for (std::int64_t i = view.offsets.front(); i < view.offsets.back(); ++i) {
          for (std::int64_t c = 0; c < dim(f); ++c) {
            sequences.push_back(value(f, view.values[i], c));
          }
        }
      }
    }
  }

  void update(const KeyedJaggedTensor& batch,
              std::int64_t number,
              std::size_t f,
              std::int64_t column) {
    const spec::SparseFeature& feature = config_.sparse_features[f];
    const JaggedView view = batch.feature(static_cast<std::int64_t>(f));
    for (std::int64_t b = 0; b < batch.batch; ++b) {
      for (std::int64_t k = 0; k < view.length(b); ++k) {
        const std::int64_t i = view.offsets[at(b)] + k;
        for (std::int64_t c = 0; c < dim(f); ++c) {
          float gradient = feature.pooling == spec::Pooling::kNone
                               ? gradient_value(number, b, 500 + 7 * k + c)
                               : gradient_value(number, b, column + c);
          gradient *= feature.weighted ? view.weights[i] : 1.0F;
          gradient /=
              feature.pooling == spec::Pooling::kMean ? static_cast<float>(view.length(b)) : 1.0F;
          value(f, view.values[i], c) -= gradient;
        }
      }
    }
  }

  const spec::Config& config_;
  std::vector<std::vector<float>> tables_;
};

TEST(ShardedEmbeddings, IsThePlainFormula) {
  for (const spec::Sharding sharding : kShardings) {
    const spec::Config config = make_integer_config(sharding);
    PlainJob plain(config);
    for (std::int64_t step = 1; step <= 3; ++step) {
      plain.step(make_batch(config, step, {0, 29}), step);
    }
    for (const int ranks : {1, 3, 4}) {
      const RunResult got = run(config, {.ranks = ranks});
      EXPECT_EQ(got.pooled, plain.pooled) << "sharding " << static_cast<int>(sharding);
      EXPECT_EQ(got.sequences, plain.sequences) << "sharding " << static_cast<int>(sharding);
    }
  }
}

TEST(ShardedEmbeddings, ARankMayHoldSeveralRowShards) {
  const spec::Config config = make_integer_config(spec::Sharding::kRowWise);
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  spec::Plan plan = planner::make_plan(config, 2);
  for (spec::TablePlan& table : plan.tables) {
    const std::int64_t rows = table.shards.back().rows.end;
    const Range cols = table.shards.back().cols;
    if (rows >= 3) {
      // Rank 1 holds the middle, rank 0 what is around it; cuts where nothing is a power of two.
      table.shards = {{.rank = 0, .rows = {0, rows / 3}, .cols = cols},
                      {.rank = 1, .rows = {rows / 3, rows - 1}, .cols = cols},
                      {.rank = 0, .rows = {rows - 1, rows}, .cols = cols}};
    }
  }
  expect_equal(run(config, {.ranks = 2, .plan = &plan}), expected, "two of three");
  for (spec::TablePlan& table : plan.tables) {
    table.shards.edit([](auto& shards) {
      for (spec::Shard& shard : shards) {
        shard.rank = 1;
      }
    });
  }
  expect_equal(run(config, {.ranks = 2, .plan = &plan}), expected, "all");
}

TEST(ShardedEmbeddings, AnyMixtureOfShardingsGivesTheSameBits) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const auto draw = [seed](std::uint64_t what) {
      return philox(random_key(seed, RandomPurpose::kTest), what, 0)[0];
    };
    spec::SparseOptimizer optimizer = make_optimizer(static_cast<SparseOptimizerKind>(draw(0) % 5));
    optimizer.max_norm = draw(1) % 2 == 0 ? 0.4 : 0.0;
    const std::int64_t samples = 1 + draw(2) % 40;
    const RunResult expected =
        run(make_config(spec::Sharding::kTableWise, optimizer), {.samples = samples});
    spec::Config config = make_config(spec::Sharding::kTableWise, optimizer);
    for (std::size_t t = 0; t < config.tables.size(); ++t) {
      config.tables[t].sharding = kShardings[draw(10 + t) % kShardings.size()];
    }
    const auto ranks = static_cast<int>(1 + draw(3) % 8);
    EXPECT_EQ(run(config, {.ranks = ranks, .samples = samples}).hash, expected.hash)
        << "seed " << seed << ", " << ranks << " ranks, " << samples << " samples";
  }
}

/// How often the ranks' steps allocate once their batches have been seen.
std::int64_t allocations_of_steps(const spec::Config& config, int ranks) {
  constexpr std::int64_t kSamples = 300;
  std::int64_t count = 0;
  spec::Plan plan = planner::make_plan(config, two_hosts(ranks));
  plan.parts = kParts;
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    // One thread: kernels keep scratch per thread, which one of several may first need late.
    const auto device = make_device({.threads = 1});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    const Range positions = rank_samples(kSamples, kParts, ranks, world.rank());
    const std::array<KeyedJaggedTensor, 2> batches = {make_batch(config, 1, positions),
                                                      make_batch(config, 2, positions)};
    const std::vector<std::byte> control(8);
    const auto run_steps = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t step = first; step <= last; ++step) {
        const KeyedJaggedTensor& batch = batches[static_cast<std::size_t>(step % 2)];
        embeddings.exchange_counts(
            ctx, *sparse,
            {.sparse = batch, .step = step, .global_size = kSamples, .sample_ids = {}}, control);
        embeddings.exchange_ids(ctx, *sparse);
        embeddings.lookup(ctx, *sparse);
        embeddings.output_dist(ctx, *sparse);
        fill_gradients(*sparse, batch, step, positions.begin);
        embeddings.coalesce(ctx, *sparse);
        embeddings.grad_dist(ctx, *sparse);
        embeddings.update(ctx, *sparse,
                          {.learning_rate_factor = 1.0, .step = step, .seed = config.seed});
      }
    };
    run_steps(1, 4);
    world.barrier(ctx);
    if (world.rank() == 0) {
      weft::test::watch_allocations();
    }
    world.barrier(ctx);
    run_steps(5, 8);
    world.barrier(ctx);
    if (world.rank() == 0) {
      count = weft::test::stop_watching().own;
    }
    world.barrier(ctx);
  });
  return count;
}

TEST(ShardedEmbeddings, AStepAllocatesNothing) {
  spec::SparseOptimizer optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  optimizer.max_norm = 0.5;  // column shards exchange twice
  for (const spec::Sharding sharding : kShardings) {
    for (const int ranks : {1, 3, 4}) {
      EXPECT_EQ(allocations_of_steps(make_config(sharding, optimizer), ranks), 0)
          << "sharding " << static_cast<int>(sharding) << ", " << ranks
          << " ranks:" << weft::test::describe_allocations();
    }
  }
}

TEST(ShardedEmbeddings, AStepOfSeveralSetsAllocatesNothing) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  for (const spec::Sharding sharding : {spec::Sharding::kTableWise, spec::Sharding::kRowWise}) {
    spec::Config config = make_config(sharding, optimizer);
    config.mesh.groups = 4;
    config.tables[0].groups = 1;
    config.tables[2].groups = 2;
    EXPECT_EQ(allocations_of_steps(config, 4), 0)
        << "sharding " << static_cast<int>(sharding) << ":" << weft::test::describe_allocations();
  }
}

TEST(ShardedEmbeddings, AnEncodedStepAllocatesNothing) {
  const spec::SparseOptimizer optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  for (const spec::Sharding sharding : {spec::Sharding::kColumnWise, spec::Sharding::kRowWise}) {
    spec::Config config = make_config(sharding, optimizer);
    config.codecs = {
        .forward = CodecFormat::kInt4, .backward = CodecFormat::kFp8E5m2, .group_size = 16};
    for (const auto rounding : {CodecRounding::kNearest, CodecRounding::kStochastic}) {
      config.codecs.rounding = rounding;
      for (const int ranks : {1, 3}) {
        EXPECT_EQ(allocations_of_steps(config, ranks), 0)
            << "sharding " << static_cast<int>(sharding) << " on " << ranks
            << " ranks:" << weft::test::describe_allocations();
      }
    }
  }
}

TEST(ShardedEmbeddings, AStepThatPoolsAtTheSampleAllocatesNothing) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kGridShard}) {
    for (const int ranks : {1, 3, 4}) {
      spec::Config config = make_config(sharding, optimizer);
      for (spec::Table& table : config.tables) {
        table.pooled_at = spec::PooledAt::kSample;
      }
      EXPECT_EQ(allocations_of_steps(config, ranks), 0)
          << "sharding " << static_cast<int>(sharding) << ", " << ranks
          << " ranks:" << weft::test::describe_allocations();
    }
  }
}

TEST(ShardedEmbeddings, FewerSamplesThanRanks) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  for (const std::int64_t samples : {1, 3}) {
    const RunResult expected =
        run(make_config(spec::Sharding::kTableWise, optimizer), {.samples = samples});
    for (const spec::Sharding sharding : kShardings) {
      EXPECT_EQ(run(make_config(sharding, optimizer), {.ranks = 8, .samples = samples}).hash,
                expected.hash)
          << samples << " samples, sharding " << static_cast<int>(sharding);
    }
  }
}

TEST(ShardedEmbeddings, HalfPrecisionRowsRoundTheSameEverywhere) {
  for (const spec::RowDType dtype :
       {spec::RowDType::kBf16, spec::RowDType::kFp16, spec::RowDType::kSplitBf16}) {
    const auto optimizer = make_optimizer(SparseOptimizerKind::kAdagrad);
    checkpoint::StateHash expected;
    for (const spec::Sharding sharding : kShardings) {
      for (const int ranks : {1, 3, 4}) {
        spec::Config config = make_config(sharding, optimizer);
        for (spec::Table& table : config.tables) {
          table.dtype = dtype;
          table.row_split = ranks == 4 ? spec::RowSplit::kModulo : spec::RowSplit::kRange;
        }
        const RunResult got = run(config, {.ranks = ranks});
        expected = expected == checkpoint::StateHash{} ? got.hash : expected;
        EXPECT_EQ(got.hash, expected) << "sharding " << static_cast<int>(sharding);
      }
    }
  }
}

TEST(ShardedEmbeddings, CheckDeviceGivesTheSameBits) {
  const auto optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdam);
  for (const spec::Sharding sharding : kShardings) {
    const spec::Config config = make_config(sharding, optimizer);
    EXPECT_EQ(run(config, {.ranks = 4, .device = DeviceKind::kCheck}).hash, run(config, {}).hash)
        << "sharding " << static_cast<int>(sharding);
  }
}

TEST(ShardedEmbeddings, IdOutsideItsTableIsNamed) {
  const spec::Config config =
      make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kSgd));
  const spec::Plan plan = planner::make_plan(config, 2);
  const auto body = [&](comm::Communicator& world) {
    const auto device = make_device({});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    const Range positions = rank_samples(8, plan.parts, 2, world.rank());
    KeyedJaggedTensor batch = make_batch(config, 1, positions);
    const std::vector<std::int64_t> ids = {100, 101, 102, 103};
    if (world.rank() == 1) {
      batch.values.back() = -1;  // of a later feature, which is not the first to be named
      const JaggedView feature = batch.feature(0);
      std::int64_t b = 0;
      while (feature.length(b) == 0) {
        ++b;
      }
      batch.values[static_cast<std::size_t>(feature.offsets[static_cast<std::size_t>(b)])] = 97;
    }
    const std::vector<std::byte> control(8);
    embeddings.exchange_counts(
        ctx, *sparse, {.sparse = batch, .step = 1, .global_size = 8, .sample_ids = ids}, control);
  };
  try {
    comm::run_local(2, {.timeout_s = 20}, body);
    FAIL() << "the id was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_EQ(error.origin_rank(), 1);
    EXPECT_NE(std::string(error.what()).find("feature a, sample 10"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("id 97"), std::string::npos) << error.what();
  }
}

/// What ranks of a mesh say where rank `late` of the world is a step behind.
std::string message_of_a_late_rank(int groups, spec::MeshLayout layout, int late) {
  spec::Config config =
      make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kSgd));
  config.mesh = {.groups = groups, .layout = layout};
  const int ranks = 2 * groups;
  const spec::Plan plan = planner::make_plan(config, ranks);
  const auto body = [&](comm::Communicator& launched) {
    const auto position = spec::mesh_position(layout, groups, plan.ranks, launched.rank());
    const auto world = launched.split(0, static_cast<int>(position), "mesh");
    const auto device = make_device({});
    ShardedEmbeddings embeddings(config, plan, *world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    const KeyedJaggedTensor batch =
        make_batch(config, 1, rank_samples(8, plan.parts, ranks, world->rank()));
    const std::vector<std::byte> control(8);
    embeddings.exchange_counts(ctx, *sparse,
                               {.sparse = batch,
                                .step = launched.rank() == late ? 1 : 2,
                                .global_size = 8,
                                .sample_ids = {}},
                               control);
  };
  try {
    comm::run_local(ranks, {.timeout_s = 20}, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kComm) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ShardedEmbeddings, RanksAtDifferentStepsAreNamedByTheirRanksOfTheWorld) {
  using spec::MeshLayout;

  struct Case {
    int groups;
    MeshLayout layout;
    int late, peer;  // of its group
  };

  for (const Case& one :
       {Case{1, MeshLayout::kLocalAllToAll, 0, 1}, Case{2, MeshLayout::kLocalAllToAll, 3, 2},
        Case{2, MeshLayout::kLocalAllReduce, 3, 1}}) {
    const std::string message = message_of_a_late_rank(one.groups, one.layout, one.late);
    for (const int rank : {one.late, one.peer}) {
      EXPECT_NE(message.find("rank " + std::to_string(rank) + " "), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace weft::sharding
