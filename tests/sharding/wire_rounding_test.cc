// Vectors and gradients that are rounded stochastically on the wire: what is drawn depends on
// samples and rows alone, and is right on average.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/coded_run.h"
#include "tests/sharding/sparse_run.h"
#include "weft/sharding/vector_draws.h"

namespace weft::sharding {
namespace {

constexpr std::array<CodecFormat, 4> kFormats = {CodecFormat::kInt8, CodecFormat::kFp8E4m3,
                                                 CodecFormat::kBf16, CodecFormat::kInt4};

spec::Config stochastic(spec::Config config, CodecFormat forward, CodecFormat backward) {
  config = coded(std::move(config), forward, backward);
  config.codecs.rounding = CodecRounding::kStochastic;
  return config;
}

TEST(StochasticWire, WholeBagsKeepOneHashOverRanksAndColumnShards) {
  for (const CodecFormat format : kFormats) {
    const auto run_with = [format](spec::Sharding sharding, RunOptions options) {
      options.gradients = Gradients::kRounded;
      return run(stochastic(adagrad_job(sharding), format, format), options);
    };
    const RunResult expected = run_with(spec::Sharding::kTableWise, {});
    EXPECT_NE(run(coded(adagrad_job(spec::Sharding::kTableWise), format, format),
                  {.gradients = Gradients::kRounded})
                  .hash,
              expected.hash)
        << format_name(format);
    for (const spec::Sharding sharding : {spec::Sharding::kTableWise, spec::Sharding::kColumnWise,
                                          spec::Sharding::kTableColumnWise}) {
      for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
        expect_equal(run_with(sharding, {.ranks = ranks, .threads = 1 + ranks % 3}), expected,
                     fmt::format("{}, sharding {}, {} ranks", format_name(format),
                                 static_cast<int>(sharding), ranks));
      }
    }
    expect_equal(run_with(spec::Sharding::kColumnWise, {.ranks = 3, .device = DeviceKind::kCheck}),
                 expected, format_name(format) + " on the check device");
  }
}

TEST(StochasticWire, ReplicaGroupsDrawByTheGlobalSample) {
  const auto run_with = [](int groups, int ranks) {
    spec::Config config = stochastic(make_integer_config(spec::Sharding::kTableWise),
                                     CodecFormat::kInt8, CodecFormat::kFp8E5m2);
    config.mesh.groups = groups;
    config.mesh.sync = spec::SyncForm::kGradients;
    return run(config, {.ranks = groups * ranks, .gradients = Gradients::kRounded});
  };
  expect_equal(run_with(2, 2), run_with(1, 4), "2 groups of 2 ranks");
  expect_equal(run_with(2, 3), run_with(1, 2), "2 groups of 3 ranks");
}

// A bag of one id lies in one cut of rows, wherever rows are cut, and a sequence is rows.
TEST(StochasticWire, ABagInOneCutIsRoundedAsWhereNoneAreCut) {
  const auto options = [](int ranks) {
    return RunOptions{.ranks = ranks, .gradients = Gradients::kRounded, .most_ids = 1};
  };
  const auto config = [](spec::Sharding sharding) {
    return stochastic(adagrad_job(sharding), CodecFormat::kInt8, CodecFormat::kInt8);
  };
  const RunResult expected = run(config(spec::Sharding::kTableWise), options(1));
  for (const int ranks : {2, 3, 4}) {
    for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kGridShard}) {
      expect_equal(run(config(sharding), options(ranks)), expected,
                   fmt::format("sharding {}, {} ranks", static_cast<int>(sharding), ranks));
    }
    spec::Plan plan = planner::make_plan(config(spec::Sharding::kTableWise), two_hosts(ranks));
    for (std::size_t t = 0; t < plan.tables.size(); ++t) {
      plan.tables[t].hot = {{0, 1}};
    }
    plan.tables[2].hot = {{0, 2}, {5, 9}, {50, 51}};
    RunOptions hot = options(ranks);
    hot.plan = &plan;
    expect_equal(run(config(spec::Sharding::kTableWise), hot), expected,
                 fmt::format("hot rows on {} ranks", ranks));
  }
}

TEST(StochasticWire, FetchedRowsDoNotDependOnWhereTheyAreCut) {
  const auto rows = [](int ranks) {
    spec::Config config =
        stochastic(adagrad_job(spec::Sharding::kRowWise), CodecFormat::kInt8, CodecFormat::kFp32);
    for (spec::Table& table : config.tables) {
      table.pooled_at = spec::PooledAt::kSample;
    }
    return run(config, {.ranks = ranks, .gradients = Gradients::kRounded});
  };
  expect_equal(rows(4), rows(2), "int8 rows");
}

TEST(StochasticWire, PartialSumsAreTheSameTwice) {
  for (const spec::PooledAt place : {spec::PooledAt::kOwner, spec::PooledAt::kSample}) {
    const auto run_on = [place](DeviceKind device, int threads) {
      spec::Config config =
          stochastic(adagrad_job(spec::Sharding::kRowWise), CodecFormat::kInt8, CodecFormat::kInt8);
      for (spec::Table& table : config.tables) {
        table.pooled_at = place;
      }
      return run(
          config,
          {.ranks = 3, .device = device, .gradients = Gradients::kRounded, .threads = threads});
    };
    const RunResult expected = run_on(DeviceKind::kCpu, 1);
    expect_equal(run_on(DeviceKind::kCpu, 3), expected, "3 threads");
    expect_equal(run_on(DeviceKind::kCheck, 2), expected, "the check device");
  }
}

/// Two ranks, one table of 16 columns, one id in every bag, the same batch again and again.
struct Repeated {
  std::vector<double> vectors;    ///< [samples, 16] mean of what arrived
  std::vector<double> gradients;  ///< [rows, 16] mean of what rows were moved by
  std::vector<float> row;         ///< [2, 16] row 0 as its two samples got it in the last step
};

constexpr std::int64_t kRepeatedRows = 12;
constexpr std::int64_t kRepeatedCols = 16;
constexpr std::int64_t kRepeatedSamples = 2 * kRepeatedRows;
constexpr int kRepeatedSteps = 600;

float gradient_of(std::int64_t sample, std::int64_t col) {
  return std::sin(static_cast<float>(7 * sample + col));
}

Repeated repeat(const spec::Codecs& codecs, spec::PooledAt pooled_at, double learning_rate) {
  spec::Config config;
  config.seed = 5;
  config.tables = {make_table("t", kRepeatedRows, kRepeatedCols)};
  config.tables[0].optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  config.tables[0].optimizer.learning_rate = learning_rate;
  config.tables[0].sharding = spec::Sharding::kRowWise;
  config.tables[0].pooled_at = pooled_at;
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  config.codecs = codecs;
  Repeated result;
  result.vectors.resize(kRepeatedSamples * kRepeatedCols);
  result.row.resize(2 * kRepeatedCols);
  result.gradients.resize(kRepeatedRows * kRepeatedCols);
  std::vector<float> before(kRepeatedRows * kRepeatedCols);
  std::vector<float> after(kRepeatedRows * kRepeatedCols);
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    spec::Plan plan = planner::make_plan(config, 2);
    const auto device = make_device({.threads = 1});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    const auto read_rows = [&](std::vector<float>& rows) {
      for (embedding::TableShard* shard : embeddings.shards()) {
        const StateItem item = shard->state_items().front();
        shard->read_state(0, item.row_begin, item.held().size(),
                          rows.data() + item.row_begin * kRepeatedCols);
      }
    };
    read_rows(before);
    const Range own = rank_samples(kRepeatedSamples, plan.parts, 2, world.rank());
    KeyedJaggedTensor batch;
    batch.batch = own.size();
    batch.keys = {"f"};
    for (std::int64_t i = 0; i < own.size(); ++i) {
      batch.offsets.push_back(i);
      batch.values.push_back((own.begin + i) % kRepeatedRows);
    }
    batch.offsets.push_back(own.size());
    for (int step = 1; step <= kRepeatedSteps; ++step) {
      embeddings.exchange_counts(
          ctx, *sparse,
          {.sparse = batch, .step = step, .global_size = kRepeatedSamples, .sample_ids = {}},
          std::vector<std::byte>(8));
      embeddings.exchange_ids(ctx, *sparse);
      embeddings.lookup(ctx, *sparse);
      embeddings.output_dist(ctx, *sparse);
      for (std::int64_t b = 0; b < own.size(); ++b) {
        const float* const vector = sparse->outputs().pooled.row(b);
        for (std::int64_t c = 0; c < kRepeatedCols; ++c) {
          result.vectors[static_cast<std::size_t>((own.begin + b) * kRepeatedCols + c)] +=
              static_cast<double>(vector[c]) / kRepeatedSteps;
          sparse->gradients().pooled.row(b)[c] = gradient_of(own.begin + b, c);
        }
        if (step == kRepeatedSteps && (own.begin + b) % kRepeatedRows == 0) {
          std::copy_n(vector, kRepeatedCols,
                      result.row.data() + (own.begin + b) / kRepeatedRows * kRepeatedCols);
        }
      }
      embeddings.coalesce(ctx, *sparse);
      embeddings.grad_dist(ctx, *sparse);
      embeddings.update(ctx, *sparse,
                        {.learning_rate_factor = 1.0, .step = step, .seed = config.seed});
    }
    read_rows(after);
    world.barrier(ctx);
  });
  for (std::size_t i = 0; i < before.size(); ++i) {
    result.gradients[i] = static_cast<double>(before[i] - after[i]) /
                          (kRepeatedSteps * std::max(learning_rate, 1e-30));
  }
  return result;
}

/// The largest distance between means in steps of int8, of numbers up to `most`.
double distance(const std::vector<double>& a, const std::vector<double>& b, double most) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(a[i] - b[i]) / (most / 127));
  }
  return largest;
}

TEST(StochasticWire, IsRightOnAverage) {
  // A mean of 600 steps has a deviation of at most 0.5 / sqrt(600) = 0.02 of a step of int8. Of two
  // samples a row, so twice as much variance; the table's rows are below 1/sqrt(12).
  for (const spec::PooledAt place : {spec::PooledAt::kOwner, spec::PooledAt::kSample}) {
    const spec::Codecs plain;
    const spec::Codecs nearest{
        .forward = CodecFormat::kInt8, .backward = CodecFormat::kInt8, .group_size = 16};
    spec::Codecs stochastic = nearest;
    stochastic.rounding = CodecRounding::kStochastic;
    const double most = 1.0 / std::sqrt(static_cast<double>(kRepeatedRows));
    const Repeated exact = repeat(plain, place, 0.0);
    EXPECT_GT(distance(repeat(nearest, place, 0.0).vectors, exact.vectors, most), 0.3);
    EXPECT_LT(distance(repeat(stochastic, place, 0.0).vectors, exact.vectors, most), 0.13);
    const double rate = 1.0 / 1024;
    const Repeated moved = repeat(plain, place, rate);
    EXPECT_GT(distance(repeat(nearest, place, rate).gradients, moved.gradients, 2.0), 0.25);
    EXPECT_LT(distance(repeat(stochastic, place, rate).gradients, moved.gradients, 2.0), 0.13);
  }
}

TEST(StochasticWire, SamplesWithTheSameBagDrawByThemselves) {
  spec::Codecs codecs{.forward = CodecFormat::kInt4, .group_size = 16};
  const auto differ = [&](spec::PooledAt place) {
    const std::vector<float> row = repeat(codecs, place, 0.0).row;
    return !std::equal(row.begin(), row.begin() + kRepeatedCols, row.begin() + kRepeatedCols);
  };
  EXPECT_FALSE(differ(spec::PooledAt::kOwner));
  codecs.rounding = CodecRounding::kStochastic;
  EXPECT_TRUE(differ(spec::PooledAt::kOwner));
  EXPECT_FALSE(differ(spec::PooledAt::kSample)) << "a fetched row travels once";
}

/// All vectors at once and in pieces.
std::vector<std::int64_t> numbers(const VectorDraws& draws, std::int64_t vectors) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(vectors));
  draws.number({0, vectors}, all.data());
  for (const std::int64_t piece : {1, 3}) {
    std::vector<std::int64_t> pieces(all.size(), -1);
    for (std::int64_t v = 0; v < vectors; v += piece) {
      draws.number({v, std::min(v + piece, vectors)}, pieces.data() + v);
    }
    EXPECT_EQ(pieces, all) << "pieces of " << piece;
  }
  EXPECT_EQ(std::set<std::int64_t>(all.begin(), all.end()).size(), all.size());
  return all;
}

TEST(VectorDraws, AreThoseOfSamplesAndRows) {
  using Of = VectorDraws::Of;
  const auto pair = [](std::int64_t a, std::int64_t b) { return (a << 36) + b; };
  const std::vector<std::int64_t> ids = {4, 1, 0, 2, 2};
  const std::vector<std::int64_t> offsets = {0, 2, 2, 4, 5};
  const std::vector<std::int32_t> places = {1, 3, 4, 7};
  const std::vector<std::int64_t> list = {10, 20, 30, 40, 50};
  using Numbers = std::vector<std::int64_t>;
  VectorDraws bags{.of = Of::kBags,
                   .first_sample = 100,
                   .ids = ids.data(),
                   .offsets = offsets.data(),
                   .rows = {7, 1000, 2}};
  EXPECT_EQ(numbers(bags, 4), (Numbers{pair(100, 15), pair(101, 0), pair(102, 7), pair(103, 11)}));
  bags.places = places.data();
  bags.row_list = list.data();
  EXPECT_EQ(numbers(bags, 4), (Numbers{pair(101, 50), pair(103, 0), pair(104, 10), pair(107, 30)}));
  VectorDraws samples{.of = Of::kSamples, .first_sample = 5, .places = places.data()};
  EXPECT_EQ(numbers(samples, 4), (Numbers{pair(6, 0), pair(8, 0), pair(9, 0), pair(12, 0)}));
  const std::vector<std::int64_t> from_3 = {1, 4};
  VectorDraws rows{
      .of = Of::kRows, .ids = ids.data(), .offsets = from_3.data(), .rows = {100, 200}};
  EXPECT_EQ(numbers(rows, 2), (Numbers{101, 100}));
  // Bags of 2, 0, 2, 1 ids, of which the batch has 10 before.
  const std::vector<std::int64_t> behind = {10, 12, 12, 14, 15};
  const std::vector<std::int32_t> some = {1, 2, 4};
  VectorDraws of_ids{.of = Of::kPlaces, .first_sample = 5, .offsets = behind.data(), .bags = 4};
  EXPECT_EQ(numbers(of_ids, 5),
            (Numbers{pair(5, 0), pair(5, 1), pair(7, 0), pair(7, 1), pair(8, 0)}));
  of_ids.places = some.data();
  EXPECT_EQ(numbers(of_ids, 3), (Numbers{pair(5, 1), pair(7, 0), pair(8, 0)}));
  const std::vector<std::int32_t> runs = {2, 0, 0, 1};
  const std::vector<std::int32_t> parts = {2, 3, 2, 3};
  VectorDraws sums{.of = Of::kPartialSums,
                   .ids = ids.data(),
                   .rows = {0, 10},
                   .runs = runs,
                   .run_parts = parts.data()};
  EXPECT_EQ(numbers(sums, 3), (Numbers{pair(2, 4), pair(2, 1), pair(3, 0)}));
}

}  // namespace
}  // namespace weft::sharding
