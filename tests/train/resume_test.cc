// Resuming gives the bits of never having stopped, on other ranks and another sharding too.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/manifest.h"

namespace weft::train {
namespace {

/// Trains four steps with a checkpoint of each pair, then returns the folder's path.
void train_some(const spec::Config& config, const std::string& folder, int ranks) {
  spec::Config first = config;
  first.train.steps = 4;
  JobOptions options = job_options(first);
  options.checkpoint_dir = folder;
  options.checkpoint_every = 2;
  train_on(ranks, options);
}

TEST(Resume, GivesTheBitsOfNeverHavingStopped) {
  const spec::Config config = make_job({"train.epochs=2", "sparse_optimizer.type=adam"});
  const Summary expected = train_on(2, job_options(config));
  const TemporaryFolder folder;
  train_some(config, folder.path(), 2);
  for (const int ranks : {2, 1, 3, 5}) {
    for (const char* sharding : {"table_wise", "column_wise", "data_parallel"}) {
      std::vector<std::string> overrides = all_tables("sharding", sharding);
      overrides.insert(overrides.end(), {"train.epochs=2", "sparse_optimizer.type=adam"});
      JobOptions options = job_options(make_job(overrides));
      options.resume = folder.path();
      const Summary got = train_on(ranks, options);
      EXPECT_EQ(got.state_hash, expected.state_hash) << ranks << " ranks, " << sharding;
      EXPECT_EQ(got.weights_hash, expected.weights_hash);
      EXPECT_EQ(got.last_step, expected.last_step);
      EXPECT_EQ(got.lifetime_ne, expected.lifetime_ne);
      EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc);
    }
  }
}

/// Rows in 16 bits go on to be rounded by the rule that the job was begun with, in updates and in
/// averages of groups. Checkpoints that do not say which mean 1 (EarlierVersions).
TEST(Resume, KeepsTheDrawsOfRows) {
  std::vector<std::string> halves = all_tables("dtype", "bf16");
  halves.emplace_back("mesh.groups=2");
  halves.emplace_back("mesh.sync_every=2");
  std::vector<std::uint64_t> hashes;
  for (const char* rule :
       {"numerics.row_draws=1", "numerics.row_draws=2", "numerics.row_draws=3"}) {
    const Summary expected = train_on(4, job_options(make_job(joined(halves, {rule}))));
    hashes.push_back(expected.state_hash);
    const TemporaryFolder folder;
    train_some(make_job(joined(halves, {rule})), folder.path(), 4);
    JobOptions options = job_options(make_job(halves));
    options.resume = folder.path();
    EXPECT_EQ(train_on(4, options).state_hash, expected.state_hash) << rule;
  }
  EXPECT_NE(hashes[0], hashes[1]) << "the rules round alike";
  EXPECT_NE(hashes[1], hashes[2]) << "the rules round alike";
  EXPECT_EQ(train_on(4, job_options(make_job(halves))).state_hash, hashes[2]) << "of a new job";
}

/// A checkpoint that was written by a later build, with a rule that this one does not know.
TEST(Resume, RefusesDrawsThatItDoesNotKnow) {
  const spec::Config config = make_job({});
  const TemporaryFolder folder;
  train_some(config, folder.path(), 1);
  const std::string path = checkpoint::find_checkpoint(folder.path());
  checkpoint::Manifest manifest = checkpoint::read_manifest(path);
  EXPECT_EQ(manifest.metadata.row_draws, 3);
  manifest.metadata.row_draws = 4;
  std::ofstream(path + "/manifest.json") << checkpoint::manifest_to_json(manifest);
  JobOptions options = job_options(config);
  options.resume = folder.path();
  EXPECT_EQ(message_of([&] { train_on(1, options); }, ErrorCode::kCheckpoint),
            fmt::format("resume from {}: numerics.row_draws is 4 there, and this build knows 1 to "
                        "3: use a build that knows it",
                        path));
}

TEST(Resume, ResidualsOfDenseGradientsGoOnOnTheSameRanks) {
  Warnings warnings("rounded away");
  const spec::Config config = make_job({"codecs.dense=int4", "codecs.group_size=48"});
  const TemporaryFolder folder;
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{}, {0, 0, 1}}) {
    JobOptions whole = job_options(config);
    whole.config.collectives =
        hosts.empty() ? spec::Collectives::kFlat : spec::Collectives::kHierarchical;
    const Summary expected = train_on(3, whole, hosts);
    JobOptions first = whole;
    first.config.train.steps = 4;
    first.checkpoint_dir = folder.path() + "/on-" + std::to_string(hosts.size());
    train_on(3, first, hosts);
    JobOptions second = whole;
    second.resume = first.checkpoint_dir;
    const Summary got = train_on(3, second, hosts);
    EXPECT_EQ(got.state_hash, expected.state_hash);
    EXPECT_EQ(got.weights_hash, expected.weights_hash);
    EXPECT_TRUE(warnings.take().empty());
  }
}

TEST(Resume, ResidualsOfOtherRanksFormsAndCodecsAreDroppedWithAWarning) {
  Warnings warnings("rounded away");
  const TemporaryFolder folder;
  const auto job = [](const std::string& dense, std::int64_t steps) {
    JobOptions options = job_options(make_job({"codecs.dense=" + dense}));
    options.config.train.steps = steps;
    return options;
  };
  JobOptions first = job("int8", 4);
  first.checkpoint_dir = folder.path();
  train_on(3, first);
  JobOptions second = job("int8", 6);
  second.resume = folder.path();
  train_on(2, second);
  EXPECT_EQ(warnings.take().size(), 1U);
  second.config.collectives = spec::Collectives::kHierarchical;
  train_on(3, second, {0, 0, 1});
  const std::vector<std::string> of_form = warnings.take();
  ASSERT_EQ(of_form.size(), 1U);
  EXPECT_NE(of_form.front().find("int8 in groups of 128, 3 ranks in the checkpoint"),
            std::string::npos)
      << of_form.front();
  EXPECT_NE(of_form.front().find("3 ranks on hosts 0 0 1"), std::string::npos) << of_form.front();
  JobOptions plain = job("fp32", 6);
  plain.resume = folder.path();
  train_on(3, plain);
  EXPECT_EQ(warnings.take().size(), 1U);
  // And a checkpoint without any has nothing to drop.
  const TemporaryFolder without;
  JobOptions bare = job("fp32", 4);
  bare.checkpoint_dir = without.path();
  train_on(3, bare);
  JobOptions coded = job("int8", 6);
  coded.resume = without.path();
  train_on(3, coded);
  EXPECT_TRUE(warnings.take().empty());
}

TEST(Resume, FromEveryShardingToEveryOther) {
  const std::vector<std::string> shardings = {
      "table_wise", "row_wise",      "column_wise",     "table_row_wise",   "table_column_wise",
      "grid_shard", "data_parallel", "row_wise modulo", "grid_shard modulo"};
  const auto job = [](const std::string& sharding) {
    const std::string scheme = sharding.substr(0, sharding.find(' '));
    std::vector<std::string> overrides = all_tables("sharding", scheme);
    for (const std::string& entry : all_tables("row_split", "modulo")) {
      if (scheme != sharding) {
        overrides.push_back(entry);
      }
    }
    overrides.insert(overrides.end(), {"sparse_optimizer.type=row_wise_adam", "train.steps=4",
                                       "data.synthetic.eval_samples=0"});
    return job_options(make_job(overrides, 1));
  };
  const Summary expected = train_on(1, job("table_wise"));
  const TemporaryFolder plans;
  for (const std::string& from : shardings) {
    const TemporaryFolder folder;
    JobOptions first = job(from);
    first.checkpoint_dir = folder.path();
    EXPECT_EQ(train_on_hosts({0, 0, 1, 1}, first, plans.path()).state_hash, expected.state_hash);
    for (const std::string& to : shardings) {
      JobOptions options = job(to);
      options.resume = folder.path();
      const Summary got = train_on_hosts({0, 0, 0, 1, 1}, options, plans.path());
      EXPECT_EQ(got.steps, 0);
      EXPECT_EQ(got.state_hash, expected.state_hash) << from << " to " << to;
    }
  }
}

TEST(Resume, WithAndWithoutHotRowsGivesTheSameBits) {
  const TemporaryFolder plans;
  for (const char* optimizer : {"row_wise_adam", "adagrad"}) {
    for (const char* sharding : {"table_wise", "column_wise", "row_wise"}) {
      std::vector<std::string> overrides = all_tables("sharding", sharding);
      overrides.push_back(std::string("sparse_optimizer.type=") + optimizer);
      const JobOptions whole = job_options(make_job(overrides, 1));
      const Summary expected = train_on(1, whole);
      const auto run = [&](int ranks, JobOptions options, std::int64_t steps) {
        options.config.train.steps = steps;
        return train_on(ranks, options);
      };
      const TemporaryFolder folder;
      JobOptions first = with_hot_rows(whole, 3, {2, 60}, plans.path());
      first.checkpoint_dir = folder.path() + "/hot";
      run(3, first, 4);
      JobOptions without = whole;
      without.resume = first.checkpoint_dir;
      without.checkpoint_dir = folder.path() + "/without";
      run(2, without, 6);
      JobOptions last = with_hot_rows(whole, 4, {7, 30}, plans.path());
      last.resume = without.checkpoint_dir;
      const Summary got = run(4, last, 0);
      EXPECT_EQ(got.state_hash, expected.state_hash) << sharding << ", " << optimizer;
      EXPECT_EQ(got.eval->tasks.front().auc, expected.eval->tasks.front().auc);
    }
  }
}

TEST(Resume, TrainsOnAfterAnotherGrid) {
  const Summary expected = train_on(1, job_options(make_job({}, 1)));
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(all_tables("sharding", "grid_shard"), 1));
  options.config.train.steps = 4;
  options.checkpoint_dir = folder.path() + "/checkpoints";
  train_on_hosts({0, 0, 1, 1}, options, folder.path());
  options.config.train.steps = 0;
  options.resume = std::exchange(options.checkpoint_dir, "");
  EXPECT_EQ(train_on_hosts({0, 0, 0, 1, 1, 1}, options, folder.path()).state_hash,
            expected.state_hash);
}

TEST(Resume, KeepsThePartsOfTheCheckpoint) {
  const TemporaryFolder folder;
  train_some(make_job({"numerics.parts=12"}), folder.path(), 2);
  JobOptions options = job_options(make_job());
  options.resume = folder.path();
  EXPECT_EQ(train_on(3, options).parts, 12);
  options.config = make_job({"numerics.parts=8"});
  try {
    train_on(2, options);
    FAIL() << "other parts were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("numerics.parts"), std::string::npos);
  }
}

TEST(Plan, OfOtherPartsThanAskedForIsRefused) {
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job({"train.steps=2"}));
  options.out_dir = folder.path();
  const Summary made = train_on(2, options);
  options.out_dir.clear();
  options.plan_file = folder.path() + "/plan.yaml";
  EXPECT_EQ(train_on(2, options).plan_hash, made.plan_hash);
  options.config = make_job({"train.steps=2", "numerics.parts=12"});
  try {
    train_on(2, options);
    FAIL() << "other parts were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("numerics.parts"), std::string::npos);
  }
}

TEST(Resume, TablesInHalvesAndOfFp32LoadEachOther) {
  const std::vector<std::string> whole = all_tables("dtype", "fp32");
  const std::vector<std::string> halves = all_tables("dtype", "split_bf16");
  for (const auto& [from, to] : {std::pair(whole, halves), std::pair(halves, whole)}) {
    const TemporaryFolder folder;
    train_some(make_job(from), folder.path(), 2);
    JobOptions options = job_options(make_job(from));
    options.config.train.steps = 4;
    const Summary saved = train_on(2, options);
    options = job_options(make_job(to));
    options.config.train.steps = 4;
    options.resume = folder.path();
    const Summary loaded = train_on(3, options);
    EXPECT_EQ(loaded.steps, 0);
    EXPECT_EQ(loaded.weights_hash, saved.weights_hash);
    EXPECT_EQ(loaded.state_hash, saved.state_hash);
  }
}

TEST(Resume, TablesInHalvesGiveTheBitsOfNeverHavingStopped) {
  const spec::Config config = make_job(all_tables("dtype", "split_bf16"));
  const Summary expected = train_on(2, job_options(config));
  const TemporaryFolder folder;
  train_some(config, folder.path(), 2);
  std::vector<std::string> sharded = all_tables("dtype", "split_bf16");
  for (const std::string& entry : all_tables("sharding", "column_wise")) {
    sharded.push_back(entry);
  }
  JobOptions options = job_options(make_job(sharded));
  options.resume = folder.path();
  EXPECT_EQ(train_on(3, options).state_hash, expected.state_hash);
}

TEST(Resume, KeepsVocabularies) {
  std::vector<std::string> overrides = {"sparse_features.rare.mapping=vocabulary",
                                        "sparse_features.rare.min_count=2"};
  const spec::Config config = make_job(overrides);
  const Summary expected = train_on(1, job_options(config));
  const TemporaryFolder folder;
  train_some(config, folder.path(), 2);
  JobOptions options = job_options(config);
  options.resume = folder.path();
  EXPECT_EQ(train_on(3, options).weights_hash, expected.weights_hash);
}

TEST(Resume, EvaluationOfACheckpointIsThatOfTheRun) {
  const spec::Config config = make_job();
  const TemporaryFolder folder;
  JobOptions options = job_options(config);
  options.checkpoint_dir = folder.path();
  const Summary trained = train_on(2, options);
  JobOptions eval = job_options(config);
  eval.resume = folder.path();
  Summary summary;
  comm::run_local(3, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Summary own = run_eval(world, eval);
    if (world.rank() == 0) {
      summary = std::move(own);
    }
  });
  EXPECT_EQ(summary.eval->tasks.front().auc, trained.eval->tasks.front().auc);
  EXPECT_EQ(summary.eval->tasks.front().ne, trained.eval->tasks.front().ne);
  EXPECT_EQ(summary.weights_hash, trained.weights_hash);
}

TEST(Progress, AWindowIsNamedAfterItsLastStep) {
  const TemporaryFolder folder;
  const spec::Config config = make_job();  // 430 samples in batches of 61, windows of 2 steps
  train_some(config, folder.path(), 2);
  for (const std::int64_t before : {std::int64_t{0}, std::int64_t{4}}) {
    JobOptions options = job_options(config);
    options.resume = before == 0 ? "" : folder.path();
    std::vector<WindowFigures> windows;
    options.progress.on_window = [&](const WindowFigures& window) { windows.push_back(window); };
    train_on(2, options);
    ASSERT_EQ(windows.size(), static_cast<std::size_t>((8 - before) / 2));
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const std::int64_t step = before + 2 * (static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(windows[i].step, step);
      EXPECT_EQ(windows[i].samples, std::min<std::int64_t>(step * 61, 430) - before * 61);
      EXPECT_EQ(windows[i].eta_s >= 0, step < 8 && windows[i].samples_per_s > 0);
    }
  }
}

TEST(Stop, IsAgreedAndResumed) {
  const spec::Config config = make_job({"train.log_every=1"});
  const Summary expected = train_on(2, job_options(config));
  const TemporaryFolder folder;
  std::atomic<bool> stop = false;
  JobOptions options = job_options(config);
  options.stop = &stop;
  options.checkpoint_dir = folder.path();
  options.progress.on_window = [&stop](const WindowFigures& window) { stop = window.step >= 3; };
  const Summary stopped = train_on(2, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_GE(stopped.last_step, 3);
  EXPECT_LT(stopped.last_step, expected.last_step);
  JobOptions again = job_options(config);
  again.resume = folder.path();
  EXPECT_EQ(train_on(3, again).state_hash, expected.state_hash);
}

TEST(Stop, EndsAnEvaluation) {
  const std::atomic<bool> stop = true;
  JobOptions options = job_options(make_job());
  options.stop = &stop;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const Summary summary = run_eval(world, options);
    EXPECT_TRUE(summary.stopped);
    EXPECT_FALSE(summary.eval.has_value());
  });
}

TEST(Resume, FilesThatAreCutAreNamed) {
  const TemporaryFolder folder;
  train_some(make_job(), folder.path(), 1);
  const std::string file = folder.path() + "/step-00000004/rank-0000.bin";
  ASSERT_TRUE(std::filesystem::exists(file));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  JobOptions options = job_options(make_job());
  options.resume = folder.path();
  try {
    train_on(2, options);
    FAIL() << "a cut checkpoint was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("rank-0000.bin"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft::train
