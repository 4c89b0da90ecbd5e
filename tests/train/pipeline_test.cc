// Schedules and micro-batches change no bit: pairs of everything that a step depends on, trained
// under a schedule with random delays and under `sync`; failures, stops and resumes in
// mid-pipeline.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/train/all_pairs.h"
#include "tests/train/job_fixture.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/pipeline/schedule.h"

namespace weft::train {
namespace {

Level pipeline_level(const std::string& key, const std::string& value) {
  return {value, {"pipeline." + key + "=" + value}};
}

std::vector<Factor> factors() {
  std::vector<Factor> all;
  Factor& schedule = all.emplace_back(Factor{"schedule", {}});
  for (const pipeline::Schedule& one : pipeline::schedules()) {
    if (one.name != "sync") {
      schedule.levels.push_back(pipeline_level("schedule", std::string(one.name)));
    }
  }
  Factor& cuts = all.emplace_back(Factor{"micro_batches", {}});
  for (const char* value : {"1", "2", "4", "64", "[1, 2, 4, 4, 4, 1]"}) {
    cuts.levels.push_back(pipeline_level("micro_batches", value));
  }
  Factor& ahead = all.emplace_back(Factor{"lookahead", {}});
  for (const char* value : {"1", "2", "3", "100"}) {
    ahead.levels.push_back(pipeline_level("lookahead", value));
  }
  all.push_back(
      {"ranks",
       {{"1", {}, 1},
        {"2", {}, 2},
        {"3", {}, 3},
        {"4", {}, 4},
        {"2 groups of 2", mesh(2, "dense"), 4},
        {"2 groups of 2, touched, every 4",
         joined(mesh(2, "touched"), {"mesh.sync_every=4", "mesh.layout=local_all_reduce"}), 4},
        {"2 groups of 1, gradients", mesh(2, "gradients"), 2},
        {"4 groups of 1", mesh(4, "dense"), 4}}});
  Factor& sharding = all.emplace_back(Factor{"sharding", {{"as planned", {}}}});
  for (const char* value :
       {"table_wise", "row_wise", "column_wise", "data_parallel", "grid_shard"}) {
    sharding.levels.push_back({value, all_tables("sharding", value)});
  }
  Overrides fetched = all_tables("sharding", "row_wise");
  for (const std::string& one : all_tables("pooled_at", "sample")) {
    fetched.push_back(one);
  }
  sharding.levels.push_back({"row_wise, pooled at the sample", fetched});
  Factor& optimizer = all.emplace_back(Factor{"optimizer", {}});
  for (const char* value : {"sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam"}) {
    optimizer.levels.push_back({value, {std::string("sparse_optimizer.type=") + value}});
  }
  all.push_back({"codecs",
                 {{"none", {}},
                  {"fp16 and bf16", {"codecs.forward=fp16", "codecs.backward=bf16"}},
                  {"stochastic",
                   {"codecs.forward=fp8_e4m3", "codecs.backward=int8", "codecs.rounding=stochastic",
                    "codecs.group_size=8"}},
                  {"dense", {"codecs.dense=bf16"}},
                  {"packed ids", {"codecs.ids=packed"}}}});
  all.push_back({"batch",
                 {{"61", {}},
                  {"3: ranks and cuts without samples", {"batch_size=3", "train.steps=9"}},
                  {"200, a short last one", {"batch_size=200"}}}});
  all.push_back({"parts",
                 {{"default", {}},
                  {"7", {"numerics.parts=7"}},
                  {"12", {"numerics.parts=12"}},
                  {"64", {"numerics.parts=64"}}}});
  all.push_back({"model",
                 {{"dlrm", {}},
                  {"dcnv2 in bf16", {"model.type=dcnv2", "model.compute=bf16"}},
                  {"deepfm", {"model.type=deepfm"}}}});
  all.push_back({"run",
                 {{"plain", {}},
                  {"overlap off", {"train.overlap=false"}},
                  {"check device", {"train.device=check"}},
                  {"skipped steps",
                   {"dense_optimizer.type=sgd", "dense_optimizer.learning_rate=1e30",
                    "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0",
                    "train.on_non_finite=skip", "data.synthetic.eval_samples=0"}},
                  {"evaluations", {"train.eval_every=4"}}}});
  return all;
}

/// Trains a row under its schedule, every stage late by chance, and under `sync`.
void expect_bits_of_sync(const std::vector<Factor>& all, const Row& row, std::uint64_t number) {
  SCOPED_TRACE(name_of(all, row));
  Overrides overrides;
  int ranks = 1;
  for (std::size_t f = 0; f < all.size(); ++f) {
    const Level& level = all[f].levels[row[f]];
    overrides = joined(overrides, level.sets);
    ranks = std::max(ranks, level.ranks);
  }
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(overrides));
  options.threads = 1 + static_cast<int>(number % 2);
  const bool copied = std::find(overrides.begin(), overrides.end(),
                                "tables.item.sharding=data_parallel") != overrides.end();
  if (number % 3 == 0 && !copied) {
    options = with_hot_rows(options, ranks, {5, 12}, folder.path());
  }
  JobOptions plain = options;
  plain.config.pipeline = {.schedule = spec::PipelineSchedule::kSync};
  plain.config.train.device = spec::DeviceChoice::kCpu;
  options.engine.random_delay = std::chrono::microseconds(200);
  const Summary expected = train_on(ranks, plain);
  const Summary got = train_on(ranks, options);
  EXPECT_EQ(got.weights_hash, expected.weights_hash);
  EXPECT_EQ(got.state_hash, expected.state_hash);
  EXPECT_EQ(got.lifetime_ne, expected.lifetime_ne);
  EXPECT_EQ(got.skipped_steps, expected.skipped_steps);
  EXPECT_EQ(got.last_step, expected.last_step);
  EXPECT_EQ(got.window.front().ne, expected.window.front().ne);
  EXPECT_EQ(got.window.front().auc, expected.window.front().auc);
  ASSERT_EQ(got.eval.has_value(), expected.eval.has_value());
  if (got.eval) {
    EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc);
    EXPECT_EQ(got.eval->tasks.front().ne, expected.eval->tasks.front().ne);
  }
}

// A sanitizer makes rows several times as long: then one of so many is trained.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kEach = 5;
#else
constexpr std::uint64_t kEach = 1;
#endif

/// WEFT_PIPELINE_SEEDS: how many sets of all pairs are trained, each drawn anew;
/// WEFT_PIPELINE_FIRST_SEED: from which on.
TEST(Pipeline, AllPairsHaveTheBitsOfSync) {
  const std::vector<Factor> all = factors();
  const char* const asked = std::getenv("WEFT_PIPELINE_SEEDS");
  const std::uint64_t seeds = asked == nullptr ? 1 : std::strtoull(asked, nullptr, 10);
  std::uint64_t number = 0;
  const char* const from = std::getenv("WEFT_PIPELINE_FIRST_SEED");
  const std::uint64_t first = from == nullptr ? 1 : std::strtoull(from, nullptr, 10);
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    for (const Row& row : all_pairs(all, seed)) {
      if (number++ % kEach != 0) {
        continue;
      }
      expect_bits_of_sync(all, row, number);
      if (HasFatalFailure() || HasNonfatalFailure()) {
        FAIL() << "row " << number << " of seed " << seed;
      }
    }
    if (seeds > 1) {  // hours by hand, which may be ended at any time
      fmt::print(stderr, "seed {}: {} rows so far\n", seed, number);
    }
  }
  RecordProperty("rows", static_cast<int>(number));
}

TEST(Pipeline, EveryScheduleHasTheBitsOfOneRankUnderSync) {
  const Summary expected = train_on(1, job_options(make_job()));
  for (const pipeline::Schedule& schedule : pipeline::schedules()) {
    for (const int ranks : {1, 2, 3, 4}) {
      const JobOptions options = job_options(make_job(
          {"pipeline.schedule=" + std::string(schedule.name), "pipeline.micro_batches=3"}));
      expect_same(train_on(ranks, options), expected,
                  fmt::format("{} on {} ranks", schedule.name, ranks));
    }
  }
}

/// The hash that a training ends with, or its error: one whose lookups may see anything has either.
std::string hash_or_error(int ranks, const JobOptions& options) {
  try {
    return fmt::format("{:016x}", train_on(ranks, options).weights_hash);
  } catch (const Error& error) {
    return error.what();
  }
}

// The negative controls: what the equality above rests on.
TEST(Pipeline, WithADependencyLeftOutTheHashDiffers) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point";
#endif
  using pipeline::Resource;

  struct Control {
    std::vector<pipeline::LeftOut> left_out;
    StepPart late;
    const char* what;
  };

  const std::vector<Control> controls = {
      {{{StepPart::kForwardBackward, Resource::kVectors}},
       StepPart::kOutputDist,
       "a micro-batch is computed before its vectors have come"},
      {{{StepPart::kUpdateRows, Resource::kVectors},
        {StepPart::kUpdateRows, Resource::kGradients},
        {StepPart::kUpdateRows, Resource::kRuns}},
       StepPart::kGradDist,
       "rows are updated before all gradients have come"},
      {{{StepPart::kUpdateDense, Resource::kDenseGradients}},
       StepPart::kReduce,
       "parameters are updated before gradients have been summed"}};
  for (const char* schedule : {"fwp", "nested"}) {
    const std::string asked = std::string("pipeline.schedule=") + schedule;
    const Summary expected = train_on(2, job_options(make_job({asked, "train.steps=3"})));
    for (const Control& control : controls) {
      JobOptions options = job_options(make_job({asked, "train.steps=3"}));
      options.engine.delays = {{control.late, std::chrono::milliseconds(60)}};
      EXPECT_EQ(train_on(2, options).weights_hash, expected.weights_hash) << control.what;
      options.engine.left_out = control.left_out;
      EXPECT_NE(hash_or_error(2, options), fmt::format("{:016x}", expected.weights_hash))
          << schedule << ": " << control.what;
    }
  }
}

/// The error of a training, which rank 0 has as all ranks do, and the checkpoints that it leaves.
struct Ended {
  std::string error;
  std::vector<std::string> checkpoints;
};

Ended end_of(int ranks,
             const JobOptions& options,
             const std::function<void(int, JobOptions&)>& of) {
  Ended ended;
  std::mutex mutex;
  try {
    comm::run_local(ranks, {.timeout_s = 10}, [&](comm::Communicator& world) {
      JobOptions own = options;
      of(world.rank(), own);
      try {
        run_train(world, own);
      } catch (const Error& error) {
        const std::scoped_lock lock(mutex);
        EXPECT_TRUE(ended.error.empty() || ended.error == error.what()) << ended.error << "\n"
                                                                        << error.what();
        ended.error = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  std::filesystem::create_directories(options.checkpoint_dir);  // there may be none
  for (const auto& entry : std::filesystem::directory_iterator(options.checkpoint_dir)) {
    if (entry.is_directory()) {
      ended.checkpoints.push_back(entry.path().filename().string());
    }
  }
  std::sort(ended.checkpoints.begin(), ended.checkpoints.end());
  return ended;
}

// A stage of step 4 that fails, however far ahead it runs: all ranks end at once, with the cause,
// and a checkpoint is there: that of step 2 where the stage runs in step 3.
TEST(Pipeline, AStageThatFailsEndsAllRanksWithItsCause) {
  for (const pipeline::Schedule& schedule : pipeline::schedules()) {
    for (std::size_t i = 1; i < kStepParts; ++i) {
      const auto part = static_cast<StepPart>(i);
      if (part == StepPart::kSyncReplicas) {
        continue;  // there is one group
      }
      SCOPED_TRACE(fmt::format("{}: {}", schedule.name, to_string(part)));
      const TemporaryFolder folder;
      JobOptions options =
          job_options(make_job({"pipeline.schedule=" + std::string(schedule.name)}));
      options.checkpoint_dir = folder.path() + "/ck";
      options.checkpoint_every = 1;
      const Ended ended = end_of(2, options, [&](int rank, JobOptions& own) {
        if (rank == 1) {
          own.engine.failures = {{part, 4}};
        }
      });
      EXPECT_NE(ended.error.find(fmt::format("step 4: {} was told to fail", to_string(part))),
                std::string::npos)
          << ended.error;
      ASSERT_FALSE(ended.checkpoints.empty());
      const std::string& last = ended.checkpoints.back();
      EXPECT_TRUE(last.ends_with("3") || (schedule.looks_ahead && last.ends_with("2"))) << last;
    }
  }
}

/// A job whose reader finds an id outside its table, in some step.
JobOptions job_with_a_bad_id(std::uint64_t seed, const Overrides& more, const std::string& dir) {
  JobOptions options =
      job_options(make_job(joined({fmt::format("seed={}", seed), "batch_size=16",
                                   "tables.item.num_embeddings=299", "data.shuffle.enabled=false"},
                                  more)));
  options.checkpoint_dir = dir;
  options.checkpoint_every = 1;
  return options;
}

// The batch is read ahead, and the job ends in its step: the step before is finished, evaluated and
// saved. With replica groups the other group learns of it too.
TEST(Pipeline, ABadIdEndsTheStepOfItsBatch) {
  const auto run = [](std::uint64_t seed, int ranks, const Overrides& more) {
    const TemporaryFolder folder;
    return end_of(ranks, job_with_a_bad_id(seed, more, folder.path() + "/ck"),
                  [](int, JobOptions&) {});
  };
  const std::vector<std::pair<int, Overrides>> jobs = {
      {2, {}}, {2, {"train.eval_every=1"}}, {4, joined(mesh(2, "dense"), {"train.eval_every=1"})}};
  for (const auto& [ranks, more] : jobs) {
    Ended expected;
    std::uint64_t seed = 0;
    while (expected.error.empty() || expected.checkpoints.size() < 3) {  // one in a later step
      ASSERT_LT(++seed, 50U);
      expected = run(seed, ranks, joined(more, {"pipeline.schedule=sync"}));
    }
    EXPECT_NE(expected.error.find("holds id 299, but table 'item'"), std::string::npos)
        << expected.error;
    for (const pipeline::Schedule& schedule : pipeline::schedules()) {
      const Ended ended =
          run(seed, ranks, joined(more, {"pipeline.schedule=" + std::string(schedule.name)}));
      EXPECT_EQ(ended.error, expected.error) << schedule.name << " on " << ranks;
      EXPECT_EQ(ended.checkpoints, expected.checkpoints) << schedule.name << " on " << ranks;
    }
  }
}

// Stopped, saved and resumed in mid-pipeline, under any two schedules.
TEST(Pipeline, AStopAndAResumeChangeNoBit) {
  const Summary expected = train_on(2, job_options(make_job({"train.epochs=2"})));
  const std::vector<std::pair<std::string, std::string>> pairs = {{"nested", "sync"},
                                                                  {"sync", "nested"},
                                                                  {"prefetch", "dbp"},
                                                                  {"dbp", "fwp"},
                                                                  {"fwp", "prefetch"}};
  for (const auto& [first, second] : pairs) {
    SCOPED_TRACE(first + ", then " + second);
    const TemporaryFolder folder;
    std::atomic<bool> stop = false;
    JobOptions options = job_options(
        make_job({"train.epochs=2", "pipeline.schedule=" + first, "train.eval_every=3"}));
    options.checkpoint_dir = folder.path();
    options.checkpoint_every = 2;
    options.stop = &stop;
    options.progress.on_window = [&](const WindowFigures& window) { stop = window.step >= 4; };
    const Summary stopped = train_on(2, options);
    EXPECT_TRUE(stopped.stopped);
    EXPECT_LT(stopped.last_step, expected.last_step);
    JobOptions rest = job_options(make_job({"train.epochs=2", "pipeline.schedule=" + second}));
    rest.resume = folder.path();
    expect_same(train_on(3, rest), expected, "resumed");
  }
}

}  // namespace
}  // namespace weft::train
