// A resumed job has the plan of its checkpoint where that fits, and says why where it does not.
#include "weft/train/resume_plan.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/planner/cache_division.h"

namespace weft::train {
namespace {

/// A plan that no planner makes: long bags of `tags` are split at row 7, all on rank 1.
std::string write_plan(const spec::Config& config, const std::string& folder) {
  spec::Plan plan = planner::make_plan(config, 2);
  for (spec::TablePlan& table : plan.tables) {
    if (table.table == "tags") {
      table.sharding = spec::Sharding::kRowWise;
      table.shards = {{.rank = 1, .rows = {0, 7}, .cols = {0, 24}},
                      {.rank = 1, .rows = {7, 40}, .cols = {0, 24}}};
    }
  }
  const std::string file = folder + "/hand.yaml";
  std::ofstream(file) << spec::plan_to_yaml(plan);
  return file;
}

/// What a run logs.
struct Logged {
  Summary summary;
  std::string text;

  [[nodiscard]] bool says(const std::string& part) const {
    return text.find(part) != std::string::npos;
  }
};

Logged logged(int ranks, const JobOptions& options, const std::vector<int>& hosts = {}) {
  Logged out;
  set_log_sink([&](LogLevel, std::string_view line) {
    out.text += line;
    out.text += '\n';
  });
  out.summary = train_on(ranks, options, hosts);
  set_log_sink(nullptr);
  return out;
}

/// A job of two ranks with a plan by hand, stopped after four steps.
class ResumePlan : public ::testing::Test {
 protected:
  ResumePlan() : plan_file_(write_plan(make_job(), folder_.path())) {}

  /// With the plan; `overrides` are of the configuration.
  void stop_at_four(const std::vector<std::string>& overrides = {}) {
    JobOptions options = job_options(make_job(overrides));
    options.plan_file = plan_file_;
    whole_ = train_on(2, options);
    options.config.train.steps = 4;
    options.checkpoint_dir = folder_.path() + "/checkpoints";
    train_on(2, options);
  }

  [[nodiscard]] JobOptions rest(const std::vector<std::string>& overrides = {}) const {
    JobOptions options = job_options(make_job(overrides));
    options.resume = folder_.path() + "/checkpoints";
    return options;
  }

  TemporaryFolder folder_;
  std::string plan_file_;
  Summary whole_;  // of the job that was not stopped
};

constexpr const char* kNewPlan = "made a new plan";

TEST_F(ResumePlan, IsTheCheckpoints) {
  stop_at_four();
  ASSERT_NE(train_on(2, job_options(make_job())).state_hash, whole_.state_hash)
      << "the plan decides no bit: the test shows less";
  const Logged got = logged(2, rest());
  EXPECT_EQ(got.summary.plan_hash, whole_.plan_hash);
  EXPECT_EQ(got.summary.state_hash, whole_.state_hash);
  EXPECT_EQ(got.summary.steps, 4);
  EXPECT_FALSE(got.says(kNewPlan)) << got.text;
}

TEST_F(ResumePlan, IsTheCheckpointsThroughAChainOfStops) {
  stop_at_four();
  JobOptions options = rest();
  options.config.train.steps = 6;
  options.checkpoint_dir = options.resume;
  train_on(2, options);
  EXPECT_EQ(train_on(2, rest()).state_hash, whole_.state_hash);
}

TEST_F(ResumePlan, OfAnEvaluationToo) {
  stop_at_four();
  const JobOptions options = rest();
  Summary got;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Summary own = run_eval(world, options);
    if (world.rank() == 0) {
      got = std::move(own);
    }
  });
  EXPECT_EQ(got.plan_hash, whole_.plan_hash);
}

TEST_F(ResumePlan, ThatIsGivenWins) {
  stop_at_four();
  JobOptions options = rest();
  options.plan_file = folder_.path() + "/made.yaml";
  const spec::Plan made = planner::make_plan(options.config, 2);
  std::ofstream(options.plan_file) << spec::plan_to_yaml(made);
  const Logged other = logged(2, options);
  EXPECT_EQ(other.summary.plan_hash, fmt::format("{:016x}", spec::plan_hash(made)));
  EXPECT_TRUE(
      other.says("resume: plan " + options.plan_file + " is another plan than the checkpoint's"))
      << other.text;
  options.plan_file = plan_file_;
  const Logged same = logged(2, options);
  EXPECT_EQ(same.summary.state_hash, whole_.state_hash);
  EXPECT_FALSE(same.says("another plan")) << same.text;
}

TEST_F(ResumePlan, OnOtherRanksIsANewOneOfTheSameParts) {
  stop_at_four();
  for (const int ranks : {1, 3}) {
    const Logged got = logged(ranks, rest());
    EXPECT_EQ(got.summary.parts, whole_.parts);
    EXPECT_TRUE(got.says("resume: the checkpoint's plan is for 2 ranks; made a new plan for " +
                         counted(ranks, "rank") + ", with the same 8 parts"))
        << got.text;
  }
}

TEST_F(ResumePlan, OnOtherHostsIsANewOne) {
  stop_at_four();
  const Logged got = logged(2, rest(), {0, 1});
  EXPECT_NE(got.summary.plan_hash, whole_.plan_hash);
  EXPECT_TRUE(got.says("resume: ranks are on other hosts than the checkpoint's; made a new plan"))
      << got.text;
}

TEST_F(ResumePlan, ForOtherHostsThanTheJobsIsKeptOnThese) {
  spec::Plan plan = planner::make_plan(make_job(), {.ranks = 2, .hosts = {0, 1}});
  std::ofstream(plan_file_) << spec::plan_to_yaml(plan);
  stop_at_four();
  EXPECT_EQ(train_on(2, rest()).plan_hash, whole_.plan_hash) << "it was used here before";
}

TEST_F(ResumePlan, OfKeysThatContradictItIsANewOne) {
  stop_at_four();

  struct Contradiction {
    const char* change;
    const char* says;
  };

  for (const Contradiction& one :
       {Contradiction{
            "tables.tags.sharding=column_wise",
            "(tables.tags.sharding is column_wise in the configuration and the plan has row_wise"},
        Contradiction{"tables.tags.sharding=table_wise", "tables.tags.sharding is table_wise"},
        Contradiction{"tables.tags.allow=[column_wise]", "tables.tags.allow is [column_wise]"},
        Contradiction{"tables.item.host=0", ""},
        Contradiction{"tables.tags.pooled_at=sample", "tables.tags.pooled_at is sample"},
        Contradiction{"tables.tags.rank=0", "tables.tags.rank is 0"}}) {
    const Logged got = logged(2, rest({one.change}));
    EXPECT_EQ(got.says(kNewPlan), *one.says != '\0') << one.change << "\n" << got.text;
    EXPECT_TRUE(got.says(one.says)) << got.text;
    EXPECT_EQ(got.summary.plan_hash == whole_.plan_hash, *one.says == '\0') << one.change;
  }
}

TEST_F(ResumePlan, IsKeptWhereKeysPinWhatItHas) {
  stop_at_four();
  const Logged got =
      logged(2, rest({"tables.tags.sharding=row_wise", "tables.tags.rank=-1",
                      "tables.tags.pooled_at=owner", "collectives=flat", "train.log_every=1"}));
  EXPECT_EQ(got.summary.state_hash, whole_.state_hash);
  EXPECT_FALSE(got.says(kNewPlan)) << got.text;
}

/// The plan's schedule is taken where none is configured; neither makes it another plan.
TEST_F(ResumePlan, IsKeptWithAnySchedule) {
  std::ifstream in(plan_file_);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  spec::Plan plan = spec::plan_from_yaml(text, plan_file_);
  plan.pipeline = {
      .schedule = spec::PipelineSchedule::kNested, .micro_batches = {{1, 1}}, .lookahead = 2};
  std::ofstream(plan_file_) << spec::plan_to_yaml(plan);
  stop_at_four();
  EXPECT_EQ(whole_.pipeline, plan.pipeline);
  EXPECT_NE(to_json(whole_).find("\"schedule\": \"nested\""), std::string::npos);
  for (const std::string schedule : {"auto", "sync", "fwp"}) {
    const Logged got = logged(2, rest({"pipeline.schedule=" + schedule}));
    EXPECT_EQ(got.summary.state_hash, whole_.state_hash) << schedule;
    EXPECT_EQ(got.summary.plan_hash, whole_.plan_hash) << schedule;
    EXPECT_FALSE(got.says(kNewPlan)) << got.text;
    EXPECT_EQ(to_string(got.summary.pipeline.schedule), schedule == "auto" ? "nested" : schedule);
  }
}

TEST_F(ResumePlan, IsKeptWhereAScheduleIsNoLongerPinned) {
  stop_at_four({"pipeline.schedule=dbp"});
  const Logged got = logged(2, rest());
  EXPECT_FALSE(got.says(kNewPlan)) << got.text;
  EXPECT_EQ(got.summary.state_hash, whole_.state_hash);
  EXPECT_EQ(got.summary.pipeline.schedule, spec::PipelineSchedule::kSync);
}

TEST(PipelineNotes, SayWhichPartsFillTheMicroBatches) {
  const std::vector<std::string> nested = {"pipeline.schedule=nested", "pipeline.micro_batches=4"};
  const Logged got = logged(3, job_options(make_job(nested)));
  EXPECT_TRUE(got.says("a rank has 2 parts for 4 micro-batches")) << got.text;
  EXPECT_TRUE(got.says("for schedule nested set 12 or more")) << got.text;
  for (const std::vector<std::string>& filled :
       {std::vector<std::string>{nested[0], nested[1], "numerics.parts=12"}, {}}) {
    EXPECT_FALSE(logged(3, job_options(make_job(filled))).says("micro-batches"));
  }
}

/// A plan's caches are for the memory of one job; another's place no table anew.
TEST_F(ResumePlan, IsKeptWhereItsCachesDoNotFit) {
  const std::vector<std::string> on_disks = joined(
      all_tables("memory.tier", "ssd"), {"tiers.directories=[" + folder_.path() + "/rows]",
                                         "tiers.cache_bytes=600000", "tiers.segment_bytes=65536"});
  std::ifstream in(plan_file_);
  spec::Plan plan = spec::plan_from_yaml({std::istreambuf_iterator<char>(in), {}}, plan_file_);
  const spec::Config config = make_job(on_disks);
  const planner::Workload workload = planner::make_workload(config);
  planner::divide_caches(config, workload, planner::HotUses(config, workload), plan);
  std::ofstream(plan_file_) << spec::plan_to_yaml(plan);
  stop_at_four(on_disks);
  std::int64_t of_rank_1 = 0;
  for (const spec::TablePlan& table : plan.tables) {
    for (std::size_t i = 0; i < table.shards.size(); ++i) {
      of_rank_1 += table.shards[i].rank == 1 ? table.caches[i] : 0;
    }
  }
  const std::string less = "tiers.cache_bytes=" + std::to_string(9 * of_rank_1 / 10);

  struct Change {
    std::vector<std::string> keys;
    const char* says;
  };

  for (const Change& one :
       {Change{on_disks, ""}, Change{joined(on_disks, {"tiers.cache_bytes=700000"}), ""},
        Change{joined(on_disks, {less}), "the plan's caches of rank"},
        Change{joined(on_disks, {"tiers.division=bytes"}), "tiers.division is bytes"},
        Change{joined(on_disks, {"tables.item.memory.tier=lazy"}), "memory.tier lazy"},
        Change{{}, "memory.tier dense"}}) {
    const Logged got = logged(2, rest(one.keys));
    EXPECT_EQ(got.summary.plan_hash, whole_.plan_hash) << one.says;
    EXPECT_EQ(got.summary.state_hash, whole_.state_hash) << one.says;
    EXPECT_EQ(got.says("resume: the checkpoint's caches do not fit"), *one.says != '\0')
        << got.text;
    EXPECT_TRUE(got.says(one.says)) << got.text;
  }
}

/// A job whose rows were all in memory has a plan without caches; they are divided as in a new job.
TEST_F(ResumePlan, HasCachesWhereRowsComeToLieOnDisks) {
  stop_at_four();
  const std::vector<std::string> on_disks = joined(
      all_tables("memory.tier", "ssd"), {"tiers.directories=[" + folder_.path() + "/rows]",
                                         "tiers.cache_bytes=600000", "tiers.segment_bytes=65536"});
  for (const bool by_bytes : {false, true}) {
    JobOptions options = rest(by_bytes ? joined(on_disks, {"tiers.division=bytes"}) : on_disks);
    options.out_dir = folder_.path() + "/out";
    const Logged got = logged(2, options);
    EXPECT_EQ(got.summary.state_hash, whole_.state_hash);
    std::ifstream in(options.out_dir + "/plan.yaml");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(spec::has_caches(spec::plan_from_yaml(text, "plan.yaml")), !by_bytes) << text;
  }
}

TEST_F(ResumePlan, OfKeysThatAreNoLongerPinnedIsANewOne) {
  const std::vector<std::string> pinned = {"tables.tags.sharding=row_wise"};
  stop_at_four(pinned);
  EXPECT_EQ(train_on(2, rest(pinned)).state_hash, whole_.state_hash);
  const Logged got = logged(2, rest());
  EXPECT_NE(got.summary.plan_hash, whole_.plan_hash);
  EXPECT_TRUE(
      got.says("resume: tables.tags.sharding is open, which was not so in the checkpoint; "
               "made a new plan"))
      << got.text;
}

TEST_F(ResumePlan, OfAnotherMeshIsANewOne) {
  stop_at_four();
  const Logged got = logged(2, rest({"mesh.groups=2", "mesh.sync=gradients"}));
  EXPECT_TRUE(got.says("the plan is for 1 replica groups and mesh.groups is 2")) << got.text;
  EXPECT_TRUE(got.says(kNewPlan)) << got.text;
}

TEST(ResumeBetweenSyncs, IsWarnedOf) {
  const std::vector<std::string> mesh = {"mesh.groups=2", "mesh.sync_every=3"};
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(mesh));
  options.checkpoint_dir = folder.path();
  options.checkpoint_every = 3;
  options.config.train.steps = 4;
  train_on(2, options);
  const auto resumed = [&](const std::string& from, std::int64_t steps) {
    JobOptions rest = job_options(make_job(mesh));
    rest.resume = folder.path() + from;
    rest.config.train.steps = steps;
    return logged(2, rest).text;
  };
  const std::string warning =
      "resume: the checkpoint of step 4 is of a job that ended there, between two syncs "
      "(mesh.sync_every 3), and averaged its replicas";
  EXPECT_NE(resumed("", 6).find(warning), std::string::npos) << resumed("", 6);
  EXPECT_NE(resumed("", 0).find(warning), std::string::npos);
  EXPECT_EQ(resumed("", 4).find("between two syncs"), std::string::npos) << "nothing is trained";
  EXPECT_EQ(resumed("/step-00000003", 6).find("between two syncs"), std::string::npos);
}

checkpoint::Metadata earlier(int version) {
  return checkpoint::read_manifest(
             fmt::format("{}/tests/checkpoint/earlier/version-{}", WEFT_SOURCE_DIR, version))
      .metadata;
}

// They have every key that is gone since, with the value that all jobs have now. A new key that
// decides weights moves the hash of this build: then such checkpoints are warned of, and need
// others.
TEST(SavedJob, OfAnEarlierBuildIsTheSameJob) {
  for (const int version : {1, 2}) {
    const checkpoint::Metadata metadata = earlier(version);
    ASSERT_NE(metadata.config_yaml.find("  own_squares: whole\n  sync_state: true\n"),
              std::string::npos);
    const SavedJob saved = saved_job(metadata, "ck");
    ASSERT_TRUE(saved.config.has_value());
    EXPECT_EQ(spec::config_hash(*saved.config), metadata.config_hash);
  }
  const checkpoint::Metadata metadata = earlier(3);  // written without these keys
  const SavedJob saved = saved_job(metadata, "ck");
  ASSERT_TRUE(saved.config.has_value());
  EXPECT_EQ(spec::config_hash(*saved.config), metadata.config_hash);
}

TEST(SavedJob, WithAValueThatIsGoneIsRefused) {
  const auto refused = [](const std::string& from, const std::string& to) {
    checkpoint::Metadata metadata = earlier(2);
    metadata.config_yaml.replace(metadata.config_yaml.find(from), from.size(), to);
    const std::string message = message_of([&] { saved_job(metadata, "ck"); });
    EXPECT_TRUE(message.starts_with("ck, its configuration:")) << message;
    return message.substr(message.find(": ") + 2);
  };
  EXPECT_EQ(
      refused("own_squares: whole", "own_squares: averaged"),
      "mesh.own_squares: this key is gone, and 'averaged' with it: a step's own squares "
      "always count whole; train anew without the key, or go on with the build that wrote it");
  EXPECT_EQ(refused("sync_state: true", "sync_state: false"),
            "mesh.sync_state: this key is gone, and 'false' with it: replicas' optimizer state is "
            "always averaged; train anew without the key, or go on with the build that wrote it");
  EXPECT_EQ(refused("forward: fp32", "forward: fbgemm_int8"),
            "codecs.forward: 'fbgemm_int8' is gone; train anew with int8, or go on with the build "
            "that wrote it");
}

}  // namespace
}  // namespace weft::train
