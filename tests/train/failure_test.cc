// Non-finite values and overflows end the job on every rank with the cause, and change nothing.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/job_fixture.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/train/skip_limit.h"

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

/// From step 2 on every loss is NaN, so all later steps are skipped and nothing changes.
std::vector<std::string> wild_job(const std::vector<std::string>& more) {
  std::vector<std::string> wild = {
      "dense_optimizer.type=sgd",    "dense_optimizer.learning_rate=1e30",
      "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0",
      "train.on_non_finite=skip",    "data.synthetic.eval_samples=0"};
  wild.insert(wild.end(), more.begin(), more.end());
  return wild;
}

TEST(NonFinite, SkipLeavesTheStepOut) {
  const Summary one = train_on(2, job_options(make_job(wild_job({"train.steps=1"}))));
  const Summary all = train_on(2, job_options(make_job(wild_job({}))));
  EXPECT_EQ(one.skipped_steps, 0);
  EXPECT_EQ(all.skipped_steps, all.steps - 1);
  EXPECT_EQ(all.weights_hash, one.weights_hash);
}

TEST(NonFinite, SkippingEndsAtItsLimitAndKeepsTheCheckpointFromBefore) {
  for (const int ranks : {1, 3}) {
    const TemporaryFolder folder;
    JobOptions options = job_options(make_job(wild_job({"train.max_skipped=3"})));
    options.checkpoint_dir = folder.path();
    options.checkpoint_every = 1;
    options.checkpoint_keep = 1;
    std::vector<std::string> messages(static_cast<std::size_t>(ranks));
    EXPECT_THROW(comm::run_local(ranks, {.timeout_s = 60},
                                 [&](comm::Communicator& world) {
                                   try {
                                     run_train(world, options);
                                   } catch (const Error& error) {
                                     EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
                                     messages[static_cast<std::size_t>(world.rank())] =
                                         error.what();
                                     throw;
                                   }
                                 }),
                 Error);
    for (const std::string& message : messages) {
      EXPECT_NE(message.find("step 4: skipped"), std::string::npos) << message;
      EXPECT_NE(message.find("3 of the 4 steps"), std::string::npos) << message;
      EXPECT_NE(message.find("train.max_skipped 3"), std::string::npos) << message;
    }
    EXPECT_NE(checkpoint::find_checkpoint(folder.path()).find("step-00000001"), std::string::npos)
        << checkpoint::find_checkpoint(folder.path());
  }
}

TEST(NonFinite, AResumedJobSkipsNoMoreThanTheWholeOne) {
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(wild_job({"train.max_skipped=3", "train.steps=3"})));
  options.checkpoint_dir = folder.path();
  EXPECT_EQ(train_on(2, options).skipped_steps, 2);
  options.config.train.steps = 0;
  options.resume = folder.path();
  options.checkpoint_dir.clear();
  try {
    train_on(2, options);
    ADD_FAILURE() << "the run succeeded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 4: skipped"), std::string::npos) << error.what();
  }
}

TEST(SkipLimit, TrainedStepsMakeUpForSkippedOnes) {
  SkipLimit limit(3);
  for (std::int64_t step = 0; step < 100; ++step) {  // one in two for ever
    limit.add_skipped(step, "rank 0 for sample 1");
    EXPECT_EQ(limit.owed(), 1);
    limit.add_trained();
  }
  EXPECT_EQ(limit.owed(), 0);
  EXPECT_EQ(limit.skipped(), 100);
  std::int64_t pairs = 0;
  EXPECT_THROW(
      for (;; ++pairs) {  // two in three
        limit.add_skipped(2 * pairs, "rank 0 for sample 1");
        limit.add_skipped(2 * pairs + 1, "rank 0 for sample 1");
        limit.add_trained();
      },
      Error);
  EXPECT_EQ(pairs, 1);
  limit.restore(-4);
  EXPECT_EQ(limit.owed(), 0);
  limit.restore(2);
  EXPECT_THROW(limit.add_skipped(7, "rank 0 for sample 1"), Error);
}

// The squares of factorization machines that have overflowed are subtracted: NaN, behind which no
// ReLU makes 0 of it.
TEST(NonFinite, AnEvaluationHasNoFiguresAndTheTrainingGoesOn) {
  const spec::Config job = make_job(
      wild_job({"data.synthetic.eval_samples=150", "train.eval_every=2", "model.type=deepfm"}));
  for (const int ranks : {1, 3}) {
    JobOptions options = job_options(job);
    std::vector<std::string> lines;
    options.progress.on_eval = [&](const EvalFigures& eval) {
      lines.push_back(eval_to_json_line(eval));
    };
    const Summary summary = train_on(ranks, options);
    ASSERT_TRUE(summary.eval.has_value());
    const TaskFigures& figures = summary.eval->tasks.front();
    EXPECT_EQ(figures.samples, 150);
    EXPECT_TRUE(std::isnan(figures.auc)) << "no logit is NaN: the test shows nothing";
    EXPECT_TRUE(std::isnan(figures.ne));
    EXPECT_EQ(lines.size(), 4U);
    for (const std::string& line : lines) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_TRUE(json.at("auc").is_null());
      EXPECT_TRUE(json.at("loss").is_null());
      EXPECT_EQ(json.at("samples"), 150);
    }
    EXPECT_TRUE(nlohmann::json::parse(to_json(summary)).at("eval").at("ne").is_null());
  }
}

TEST(NonFinite, WithStopAnEvaluationEndsTheJob) {
  const Error error =
      error_of(3, make_job(wild_job({"train.on_non_finite=stop", "train.steps=1",
                                     "data.synthetic.eval_samples=150", "model.type=deepfm"})));
  EXPECT_EQ(error.code(), ErrorCode::kNonFinite);
  EXPECT_NE(std::string(error.what()).find("evaluation: "), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find(" of 150 logits of task 'click' are NaN"),
            std::string::npos)
      << error.what();
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
