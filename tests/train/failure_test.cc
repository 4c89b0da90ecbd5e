// Non-finite values and overflows end the job on every rank with the cause, and change nothing.
#include <string>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"

namespace weft::train {
namespace {

/// The error a run ends with; fails when it does not end with one.
Error error_of(int ranks, const spec::Config& config) {
  try {
    train_on(ranks, job_options(config));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "the run succeeded";
  return Error(ErrorCode::kInternal, "");
}

TEST(NonFinite, StopsNamingStepRankAndSample) {
  // A learning rate that throws the first step's weights out of range makes step 2 overflow.
  const Error error =
      error_of(3, make_job({"dense_optimizer.type=sgd", "dense_optimizer.learning_rate=1e30",
                            "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0"}));
  EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
  EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("sample"), std::string::npos) << error.what();
  EXPECT_GE(error.origin_rank(), 0);
}

TEST(NonFinite, SkipLeavesTheStepOut) {
  // From step 2 on every loss is NaN, so all later steps are skipped and nothing changes.
  const std::vector<std::string> wild = {
      "dense_optimizer.type=sgd",    "dense_optimizer.learning_rate=1e30",
      "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0",
      "train.on_non_finite=skip",    "data.synthetic.eval_samples=0"};
  std::vector<std::string> once = wild;
  once.emplace_back("train.steps=1");
  const Summary one = train_on(2, job_options(make_job(once)));
  const Summary all = train_on(2, job_options(make_job(wild)));
  EXPECT_EQ(one.skipped_steps, 0);
  EXPECT_EQ(all.skipped_steps, all.steps - 1);
  EXPECT_EQ(all.weights_hash, one.weights_hash);
}

TEST(NonFinite, ARowThatOverflowsAtItsOwnerIsNamed) {
  // Gradients of about 1e20 are finite, their squares in the row's statistic are not.
  spec::Config config = make_job();
  config.tasks[0].weight = 1e22;
  const Error error = error_of(2, config);
  EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
  EXPECT_NE(std::string(error.what()).find("table "), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("row "), std::string::npos) << error.what();
}

TEST(NonFinite, AReplicatedRowThatOverflowsIsCountedOnce) {
  spec::Config config = make_job(all_tables("sharding", "data_parallel"));
  config.tasks[0].weight = 1e22;
  EXPECT_STREQ(error_of(3, config).what(), error_of(1, config).what());
}

TEST(Failure, TheSameErrorOnEveryRank) {
  spec::Config config = make_job();
  config.sparse_features[2].mapping = spec::IdMapping::kIdentity;
  config.tables[2].num_embeddings = 5;  // ids up to 299 follow
  const Error error = error_of(3, config);
  EXPECT_EQ(error.code(), ErrorCode::kData) << error.what();
  EXPECT_NE(std::string(error.what()).find("item"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace weft::train
