// Same bits: weights and state after training are a function of data, seed and configuration, not
// of ranks, threads, schedule, device or, where no bag is split, of sharding.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/planner/place.h"
#include "weft/tensor/stream.h"

namespace weft::train {
namespace {

void expect_same(const Summary& got, const Summary& expected, const std::string& what) {
  EXPECT_EQ(got.weights_hash, expected.weights_hash) << what;
  EXPECT_EQ(got.state_hash, expected.state_hash) << what;
  EXPECT_EQ(got.window.front().ne, expected.window.front().ne) << what;
  EXPECT_EQ(got.window.front().auc, expected.window.front().auc) << what;
  ASSERT_TRUE(got.eval.has_value());
  EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc) << what;
  EXPECT_EQ(got.eval->tasks.front().ne, expected.eval->tasks.front().ne) << what;
}

TEST(SameBits, TwoRunsAndAnyNumberOfThreads) {
  const Summary expected = train_on(1, job_options(make_job()));
  EXPECT_NE(expected.weights_hash, 0U);
  for (const int threads : {1, 2, 3}) {
    JobOptions options = job_options(make_job());
    options.threads = threads;
    expect_same(train_on(2, options), expected, std::to_string(threads) + " threads");
  }
}

TEST(SameBits, SeedsDiffer) {
  EXPECT_NE(train_on(1, job_options(make_job({"seed=4"}))).weights_hash,
            train_on(1, job_options(make_job())).weights_hash);
}

class Sharded : public ::testing::TestWithParam<std::string> {};

TEST_P(Sharded, AnyNumberOfRanksGivesOneHash) {
  const bool splits = GetParam() == "row_wise";
  const int longest = splits ? 1 : 3;
  const Summary expected = train_on(1, job_options(make_job({}, longest)));
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const spec::Config config = make_job(all_tables("sharding", GetParam()), longest);
    expect_same(train_on(ranks, job_options(config)), expected,
                GetParam() + " on " + std::to_string(ranks) + " ranks");
  }
}

TEST_P(Sharded, OnTheCheckDevice) {
  const int longest = GetParam() == "row_wise" ? 1 : 3;
  const Summary expected = train_on(1, job_options(make_job({}, longest)));
  std::vector<std::string> overrides = all_tables("sharding", GetParam());
  overrides.emplace_back("train.device=check");
  expect_same(train_on(2, job_options(make_job(overrides, longest))), expected, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Shardings,
    Sharded,
    ::testing::Values("table_wise", "row_wise", "column_wise", "data_parallel"),
    [](const auto& test) { return test.param; });

TEST(SameBits, EveryModelAndOptimizerOverRanks) {
  const std::vector<std::vector<std::string>> jobs = {
      {"model.type=dcnv2", "model.cross_layers=2", "model.cross_rank=8",
       "sparse_optimizer.type=adam", "sparse_optimizer.weight_decay=0.01",
       "sparse_optimizer.weight_decay_mode=decoupled"},
      {"model.type=deepfm", "sparse_optimizer.type=adagrad", "sparse_optimizer.max_norm=0.3",
       "dense_optimizer.type=sgd"},
      {"sparse_optimizer.type=row_wise_adam", "model.sequence=mean",
       "dense_optimizer.type=adagrad"},
      {"sparse_optimizer.type=sgd", "tables.item.dtype=bf16", "tables.tags.dtype=fp16"},
  };
  for (const auto& overrides : jobs) {
    const Summary expected = train_on(1, job_options(make_job(overrides)));
    for (const char* sharding : {"table_wise", "column_wise", "data_parallel"}) {
      std::vector<std::string> sharded = overrides;
      for (const std::string& entry : all_tables("sharding", sharding)) {
        sharded.push_back(entry);
      }
      expect_same(train_on(3, job_options(make_job(sharded))), expected,
                  overrides.front() + ", " + sharding);
    }
  }
}

TEST(SameBits, PartsThatAreNoPowerOfTwo) {
  const std::vector<std::string> parts = {"numerics.parts=7"};
  const Summary expected = train_on(1, job_options(make_job(parts)));
  for (const int ranks : {2, 3, 5, 7}) {
    expect_same(train_on(ranks, job_options(make_job(parts))), expected, std::to_string(ranks));
  }
  EXPECT_NE(expected.weights_hash, train_on(1, job_options(make_job())).weights_hash)
      << "the number of parts is part of the configuration's meaning";
}

TEST(SameBits, FewerSamplesThanRanksAndAPartialBatch) {
  const std::vector<std::string> small = {"data.synthetic.samples=10", "batch_size=7"};
  const Summary expected = train_on(1, job_options(make_job(small)));
  EXPECT_EQ(expected.steps, 2);
  EXPECT_EQ(expected.samples, 10);
  expect_same(train_on(8, job_options(make_job(small))), expected, "8 ranks");
}

TEST(Overlap, ChangesNothing) {
  const Summary expected = train_on(2, job_options(make_job({"train.overlap=false"})));
  expect_same(train_on(2, job_options(make_job())), expected, "cpu");
  expect_same(train_on(2, job_options(make_job({"train.device=check"}))), expected, "check");
}

TEST(Overlap, ALateAllReduceIsWaitedFor) {
  const Summary expected = train_on(2, job_options(make_job()));
  for (const char* device : {"cpu", "check"}) {
    JobOptions options = job_options(make_job({std::string("train.device=") + device}));
    options.engine.dense_delay = std::chrono::milliseconds(10);
    expect_same(train_on(2, options), expected, device);
  }
}

TEST(Overlap, WithoutTheWaitTheCheckDeviceSeesIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point";
#endif
  const Summary expected = train_on(2, job_options(make_job()));
  JobOptions options = job_options(make_job({"train.device=check"}));
  options.engine.dense_wait = DenseWait::kLeftOut;
  options.engine.dense_delay = std::chrono::milliseconds(10);
  try {
    EXPECT_NE(train_on(2, options).weights_hash, expected.weights_hash);
  } catch (const Error& error) {  // the NaN of fresh memory
    EXPECT_EQ(error.code(), ErrorCode::kNonFinite) << error.what();
  }
}

/// The vectors of the first batch, from initial rows.
struct StepValues {
  std::vector<float> pooled;
};

StepValues first_lookup(const spec::Config& config, int ranks) {
  StepValues values;
  const spec::Plan plan = planner::make_plan(config, ranks);
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    sharding::ShardedEmbeddings embeddings(config, plan, world, *device, {});
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, {},
                        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts));
    data::Batch batch;
    loader.next(batch);
    const std::vector<std::byte> control(8);
    embeddings.exchange_counts(ctx,
                               {.sparse = &batch.sparse,
                                .step = 1,
                                .global_size = batch.global_size,
                                .sample_ids = batch.sample_ids},
                               control);
    embeddings.exchange_ids(ctx);
    embeddings.lookup(ctx);
    embeddings.output_dist(ctx);
    const Matrix<float>& pooled = embeddings.outputs().pooled;
    std::vector<std::int64_t> bytes;
    for (int r = 0; r < ranks; ++r) {
      bytes.push_back(rank_samples(batch.global_size, plan.parts, ranks, r).size() * pooled.cols *
                      4);
    }
    std::vector<float> all(static_cast<std::size_t>(batch.global_size * pooled.cols));
    world.all_gather_v(ctx, {.send = pooled.data,
                             .send_bytes = bytes[static_cast<std::size_t>(world.rank())],
                             .recv = all.data(),
                             .recv_bytes = bytes});
    if (world.rank() == 0) {
      values.pooled = std::move(all);
    }
  });
  return values;
}

TEST(RowWise, SplitBagsStayWithinRoundingOfTheWholeSum) {
  // A bag of L rows of magnitude m added in another order differs by at most (L - 1) ulps of the
  // sum of magnitudes: here L <= 12, weights below 1.5, rows below 1/sqrt(40).
  const std::vector<float> whole = first_lookup(make_job({}, 12), 1).pooled;
  const std::vector<float> split =
      first_lookup(make_job(all_tables("sharding", "row_wise"), 12), 4).pooled;
  ASSERT_EQ(whole.size(), split.size());
  const float bound = 12 * 12 * 1.5F * 0.16F * 0x1.0p-24F * 2;
  std::int64_t different = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    ASSERT_NEAR(whole[i], split[i], bound) << "element " << i;
    different += whole[i] != split[i] ? 1 : 0;
  }
  EXPECT_GT(different, 0) << "no bag was split: the test shows nothing";
}

TEST(RowWise, SplitBagsTrainTheSameModelWithinABound) {
  const Summary whole = train_on(1, job_options(make_job({}, 12)));
  const Summary split = train_on(4, job_options(make_job(all_tables("sharding", "row_wise"), 12)));
  EXPECT_NEAR(split.eval->tasks.front().log_loss, whole.eval->tasks.front().log_loss, 1e-4);
}

}  // namespace
}  // namespace weft::train
