// Jobs on a mesh of replica groups.
#include "weft/spec/mesh.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/topology/small_cluster.h"
#include "tests/train/job_fixture.h"
#include "weft/topology/yaml.h"
#include "weft/train/mesh.h"

namespace weft::train {
namespace {

TEST(MeshLayout, PlacesRanksAsItSays) {
  using spec::MeshLayout;
  // 8 ranks, 2 groups of 4: strided groups {0, 2, 4, 6} and {1, 3, 5, 7}, replicas {0, 1}, {2,
  // 3}...
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(spec::mesh_position(MeshLayout::kLocalAllToAll, 2, 4, rank), rank);
    const auto position = spec::mesh_position(MeshLayout::kLocalAllReduce, 2, 4, rank);
    EXPECT_EQ(position / 4, rank % 2) << "group of rank " << rank;
    EXPECT_EQ(position % 4, rank / 2) << "place of rank " << rank;
  }
  for (const MeshLayout layout : {MeshLayout::kLocalAllToAll, MeshLayout::kLocalAllReduce}) {
    for (int groups = 1; groups <= 6; ++groups) {
      for (int ranks = 1; ranks <= 5; ++ranks) {
        for (int rank = 0; rank < groups * ranks; ++rank) {
          const auto position = spec::mesh_position(layout, groups, ranks, rank);
          EXPECT_EQ(spec::mesh_rank(layout, groups, ranks, position), rank);
        }
      }
    }
  }
}

TEST(MeshLoss, NamesGroupsAndHowToGoOn) {
  spec::Plan plan;
  plan.ranks = 2;
  plan.groups = 4;
  EXPECT_EQ(describe_groups(plan), "rank r of the world is in group r / 2");
  EXPECT_EQ(describe_lost_ranks(plan, std::array{5, 7}, "ck"),
            "Lost: rank 5 (group 2), rank 7 (group 3); whole replica groups: 2 of 4; resume with "
            "--resume ck on their 4 ranks with mesh.groups=2");
  plan.ranks = 1;
  EXPECT_EQ(describe_lost_ranks(plan, std::array{0, 2, 3}, "ck"),
            "Lost: rank 0 (group 0), rank 2 (group 2), rank 3 (group 3); whole replica groups: 1 "
            "of 4; resume with --resume ck on their 1 rank with mesh.groups=1");
  plan.ranks = 2;
  plan.layout = spec::MeshLayout::kLocalAllReduce;
  EXPECT_EQ(describe_groups(plan), "rank r of the world is in group r mod 4");
  EXPECT_EQ(describe_lost_ranks(plan, std::array{5, 1}, ""),
            "Lost: rank 5 (group 1), rank 1 (group 1); whole replica groups: 3 of 4; there is no "
            "checkpoint: start anew on their 6 ranks with mesh.groups=3");
  EXPECT_EQ(describe_lost_ranks(plan, std::array{0, 1, 2, 3}, "ck"),
            "Lost: rank 0 (group 0), rank 1 (group 1), rank 2 (group 2), rank 3 (group 3); whole "
            "replica groups: 0 of 4; resume with --resume ck on the ranks there are");
}

TEST(Mesh, GradientsGiveTheBitsOfOneGroup) {
  const std::vector<std::vector<std::string>> jobs = {
      {"sparse_optimizer.type=row_wise_adagrad", "sparse_optimizer.max_norm=0.3"},
      {"sparse_optimizer.type=adam", "tables.item.dtype=bf16", "tables.rare.dtype=split_bf16"},
      {"sparse_optimizer.type=row_wise_adam", "tables.item.sharding=column_wise",
       "tables.tags.sharding=row_wise", "tables.few.sharding=data_parallel"}};
  for (const auto& job : jobs) {
    for (const char* layout : {"local_all_to_all", "local_all_reduce"}) {
      const Summary expected = train_on(2, job_options(make_job(job)));
      std::vector<std::string> groups = joined(job, mesh(2, "gradients"));
      groups.push_back(std::string("mesh.layout=") + layout);
      expect_same(train_on(4, job_options(make_job(groups))), expected, job.front());
    }
  }
}

/// Options with a plan file in which every table of more than 8 rows has hot rows.
JobOptions with_hot_rows(const std::vector<std::string>& job,
                         int ranks,
                         const std::string& folder) {
  JobOptions options = job_options(make_job(job));
  spec::Plan plan = planner::make_plan(options.config, ranks);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (options.config.tables[t].num_embeddings > 8) {
      plan.tables[t].hot = {{0, 2}, {3, 8}};
    }
  }
  options.plan_file = folder + "/plan.yaml";
  std::ofstream(options.plan_file) << spec::plan_to_yaml(plan);
  return options;
}

/// Stochastic roundings of groups that exchange gradients, and of what is not averaged, are those
/// of one group: otherwise replicas would part, which jobs compare at their ends.
TEST(Mesh, GradientsRoundRowsAsOneGroupDoes) {
  for (const char* dtype : {"bf16", "fp16"}) {
    const std::vector<std::string> job =
        joined(all_tables("dtype", dtype), {"tables.few.sharding=data_parallel"});
    expect_same(train_on(4, job_options(make_job(joined(job, mesh(2, "gradients"))))),
                train_on(2, job_options(make_job(job))), dtype);
    const TemporaryFolder folder;
    train_on(4, with_hot_rows(joined(job, mesh(2, "dense")), 4, folder.path()));
    // Tables of one group: those of a job without groups.
    std::vector<std::string> whole = joined(job, mesh(2, "dense"));
    for (const std::string& one : all_tables("groups", "1")) {
      if (one.find("few") == std::string::npos) {
        whole.push_back(one);
      }
    }
    expect_same(train_on(2, job_options(make_job(whole))), train_on(2, job_options(make_job(job))),
                std::string(dtype) + ", tables of one group");
  }
}

TEST(Mesh, LayoutsGiveTheSameBits) {
  for (const char* sync : {"dense", "touched"}) {
    const std::vector<std::string> job =
        joined(mesh(2, sync), {"mesh.sync_every=2", "tables.item.sharding=column_wise",
                               "tables.few.sharding=data_parallel", "tables.tags.dtype=bf16"});
    const Summary near = train_on(6, job_options(make_job(job)));
    for (const char* more : {"mesh.layout=local_all_reduce", "train.device=check",
                             "train.overlap=false", "mesh.sync=dense"}) {
      expect_same(train_on(6, job_options(make_job(joined(job, {more})))), near, more);
    }
    EXPECT_NE(near.weights_hash, train_on(6, job_options(make_job({}))).weights_hash);
  }
}

TEST(Mesh, HierarchicalCollectivesGiveTheBitsOfFlatOnes) {
  const std::vector<std::string> tables = {
      "tables.item.sharding=column_wise",  "tables.tags.sharding=row_wise",
      "tables.few.sharding=data_parallel", "codecs.forward=int8",
      "codecs.backward=fp8_e5m2",          "codecs.group_size=16"};
  const std::vector<std::vector<int>> layouts = {{0, 0, 0, 0, 1, 1, 1, 1},
                                                 {0, 0, 1, 1, 2, 2, 3, 3},
                                                 {0, 0, 0, 0, 0, 1, 1, 1},
                                                 {0, 1, 0, 1, 1, 1}};
  for (const char* layout : {"local_all_to_all", "local_all_reduce"}) {
    for (const char* sync : {"gradients", "touched"}) {
      std::vector<std::string> job = joined(tables, mesh(2, sync));
      job.emplace_back("train.steps=4");
      job.push_back(std::string("mesh.layout=") + layout);
      job.emplace_back(std::string(sync) == "touched" ? "mesh.sync_every=2" : "seed=4");
      for (const std::vector<int>& hosts : layouts) {
        const auto run = [&](const char* form) {
          const auto options = job_options(make_job(joined(job, {form})));
          return train_on(static_cast<int>(hosts.size()), options, hosts);
        };
        const Summary flat = run("collectives=flat");
        const Summary hierarchical = run("collectives=hierarchical");
        const std::string what =
            std::string(layout) + ", " + sync + ", hosts " + ::testing::PrintToString(hosts);
        EXPECT_NE(hierarchical.plan_hash, flat.plan_hash) << what << ": both are flat";
        expect_same(hierarchical, flat, what);
      }
    }
  }
}

TEST(Mesh, GroupsOverHostsHaveHierarchicalExchanges) {
  // 2 groups of 4 ranks, each on two hosts with two of its ranks.
  const auto forms = [](const char* layout, const std::vector<std::int64_t>& hosts) {
    spec::Config config = make_job(joined(mesh(2, "gradients"), {"collectives=hierarchical"}));
    config.mesh.layout = std::string(layout) == "local_all_to_all"
                             ? spec::MeshLayout::kLocalAllToAll
                             : spec::MeshLayout::kLocalAllReduce;
    const spec::Plan plan = planner::make_plan(config, {.ranks = 8, .hosts = hosts});
    return std::pair(plan.collectives.vectors, plan.collectives.dense);
  };
  using Form = spec::CollectiveForm;
  const auto both = std::pair(Form::kHierarchical, Form::kHierarchical);
  EXPECT_EQ(forms("local_all_to_all", {0, 0, 1, 1, 2, 2, 3, 3}), both);
  EXPECT_EQ(forms("local_all_reduce", {0, 0, 0, 0, 1, 1, 1, 1}), both);
  EXPECT_EQ(forms("local_all_to_all", {0, 0, 0, 0, 1, 1, 1, 1}),
            std::pair(Form::kFlat, Form::kHierarchical))
      << "a group on one host has nothing to relay";
}

/// Copies of hot rows are in no group: all ranks gather their gradients. At their ends jobs compare
/// them.
TEST(Mesh, GroupsHaveHotRowsInCommon) {
  const TemporaryFolder folder;
  const std::vector<std::string> job = {"sparse_optimizer.type=adagrad",
                                        "tables.item.sharding=column_wise",
                                        "tables.tags.sharding=row_wise"};
  const Summary one_group = train_on(2, with_hot_rows(job, 2, folder.path()));
  expect_same(train_on(4, with_hot_rows(joined(job, mesh(2, "gradients")), 4, folder.path())),
              one_group, "gradients");
  EXPECT_NE(train_on(2, job_options(make_job(job))).weights_hash, one_group.weights_hash)
      << "no bag is split between hot rows and tail: the test shows little";
  const std::vector<std::string> averaged =
      joined(joined(job, mesh(2, "dense")), {"mesh.sync_every=2"});
  const Summary near = train_on(4, with_hot_rows(averaged, 4, folder.path()));
  for (const char* more : {"mesh.layout=local_all_reduce", "mesh.sync=touched"}) {
    expect_same(train_on(4, with_hot_rows(joined(averaged, {more}), 4, folder.path())), near, more);
  }
  // Stopped and resumed, with sums of squares of two groups: nothing is rounded.
  JobOptions first = with_hot_rows(averaged, 4, folder.path());
  first.config.train.steps = 4;
  first.checkpoint_dir = folder.path() + "/saved";
  train_on(4, first);
  JobOptions rest = with_hot_rows(averaged, 4, folder.path());
  rest.resume = first.checkpoint_dir;
  expect_same(train_on(4, rest), near, "resumed");
}

TEST(Mesh, OfSgdTrainsTheModelOfOneGroup) {
  const std::vector<std::string> sgd = {"sparse_optimizer.type=sgd",
                                        "sparse_optimizer.learning_rate=0.5"};
  const double expected = train_on(1, job_options(make_job(sgd))).eval->tasks.front().log_loss;
  for (const int groups : {2, 3, 4}) {
    // 61 samples: no number of groups has equal shares. A factor of 61/60 would give 1e-5.
    const Summary got =
        train_on(2 * groups, job_options(make_job(joined(sgd, mesh(groups, "dense")))));
    EXPECT_NEAR(got.eval->tasks.front().log_loss, expected, 1e-7) << groups << " groups";
  }
}

TEST(Mesh, OneGroupIsNoMesh) {
  expect_same(train_on(3, job_options(make_job({"mesh.sync=touched", "mesh.sync_every=7"}))),
              train_on(3, job_options(make_job())), "3 ranks");
}

TEST(Mesh, ResumesWhatGradientsTrainedOnAnyMesh) {
  const Summary expected = train_on(2, job_options(make_job()));
  for (const int groups : {1, 2, 4}) {
    const TemporaryFolder folder;
    JobOptions options = job_options(make_job(mesh(groups, "gradients")));
    options.config.train.steps = 4;
    options.checkpoint_dir = folder.path();
    train_on(2 * groups, options);
    for (const int then : {1, 2, 4}) {
      JobOptions rest = job_options(make_job(mesh(then, "gradients")));
      rest.resume = folder.path();
      expect_same(train_on(2 * then, rest), expected,
                  std::to_string(groups) + " groups, then " + std::to_string(then));
    }
  }
}

TEST(Mesh, ACheckpointContinuesWithOtherGroups) {
  // Sums of squares are kept in multiples of the groups: powers of two, so nothing is rounded.
  const std::vector<std::string> job = {"sparse_optimizer.type=adagrad",
                                        "sparse_optimizer.initial_accumulator=0.1",
                                        "tables.few.sharding=data_parallel", "train.steps=4"};
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(joined(job, mesh(4, "dense"))));
  options.checkpoint_dir = folder.path() + "/4";
  const Summary expected = train_on(8, options);
  std::string from = options.checkpoint_dir;
  for (const int groups : {2, 1, 8, 4}) {
    JobOptions rest = job_options(make_job(joined(job, mesh(groups, "touched"))));
    rest.resume = from;
    rest.checkpoint_dir = from + std::to_string(groups);
    const Summary got = train_on(8, rest);
    EXPECT_EQ(got.steps, 0);
    EXPECT_EQ(got.weights_hash, expected.weights_hash) << groups << " groups";
    if (groups == 4) {
      EXPECT_EQ(got.state_hash, expected.state_hash) << "there and back";
    } else {
      EXPECT_NE(got.state_hash, expected.state_hash) << groups << " groups";
    }
    from = rest.checkpoint_dir;
  }
  JobOptions more = job_options(make_job(joined(job, mesh(2, "dense"))));
  more.config.train.steps = 0;
  more.resume = from;
  EXPECT_GT(train_on(8, more).steps, 0);
}

TEST(Mesh, MomentsAreScaledByTheGroupsUnlessSaid) {
  const auto hash = [&](const char* scale) {
    std::vector<std::string> job = joined(mesh(2, "dense"), {"train.steps=3"});
    job.push_back(std::string("mesh.moment_scale=") + scale);
    return train_on(2, job_options(make_job(job))).weights_hash;
  };
  EXPECT_EQ(hash("0"), hash("2"));
  EXPECT_NE(hash("0"), hash("1"));
}

// c of 3, and of 2.7: of these no product is exact.
TEST(Mesh, HotRowsResumeWithTheSameBits) {
  const TemporaryFolder plans;
  for (const char* optimizer : {"adagrad", "row_wise_adagrad"}) {
    for (const char* scale : {"0", "2.7"}) {
      const std::vector<std::string> job =
          joined(mesh(3, "touched"), {std::string("sparse_optimizer.type=") + optimizer,
                                      std::string("mesh.moment_scale=") + scale,
                                      "sparse_optimizer.initial_accumulator=0.1"});
      const JobOptions whole = with_hot_rows(job_options(make_job(job)), 6, {2, 60}, plans.path());
      const Summary expected = train_on(6, whole);
      const TemporaryFolder folder;
      JobOptions first = whole;
      first.config.train.steps = 4;
      first.checkpoint_dir = folder.path();
      train_on(6, first);
      JobOptions rest = whole;
      rest.resume = folder.path();
      expect_same(train_on(6, rest), expected, fmt::format("{}, c = {}", optimizer, scale));
    }
  }
}

// To one group the sums of hot rows are what they were, the others are divided by 3.
TEST(Mesh, HotRowsContinueWithOtherGroups) {
  const TemporaryFolder plans;
  const std::vector<std::string> job = {"sparse_optimizer.type=adagrad", "train.steps=4"};
  const TemporaryFolder folder;
  JobOptions options =
      with_hot_rows(job_options(make_job(joined(job, mesh(3, "dense")))), 6, {2, 60}, plans.path());
  options.checkpoint_dir = folder.path() + "/3";
  const Summary expected = train_on(6, options);
  JobOptions one = job_options(make_job(job));
  one.resume = options.checkpoint_dir;
  one.checkpoint_dir = folder.path() + "/1";
  EXPECT_EQ(train_on(2, one).weights_hash, expected.weights_hash);
  JobOptions more = options;
  more.resume = one.checkpoint_dir;
  more.checkpoint_dir.clear();
  more.config.train.steps = 0;
  const Summary got = train_on(6, more);
  EXPECT_GT(got.steps, 0);
  options.config.train.steps = 0;
  options.checkpoint_dir.clear();
  EXPECT_NEAR(got.eval->tasks.front().log_loss, train_on(6, options).eval->tasks.front().log_loss,
              1e-6);
}

TEST(MomentScales, AreReadAsTheyWereWritten) {
  const MomentScales scales = {{"plain", {.scale = 3.0, .unscaled = {}}},
                               {"hot", {.scale = 2.7, .unscaled = {{0, 1}, {5, 9}}}}};
  const std::string text = nlohmann::json{{"moment_scales", scales}}.dump();
  EXPECT_EQ(saved_moment_scales(text), scales);
  const MomentScale& hot = scales.at("hot");
  for (const std::int64_t row : {0, 5, 8}) {
    EXPECT_EQ(hot.of(row), 1.0) << row;
  }
  for (const std::int64_t row : {1, 4, 9, 100}) {
    EXPECT_EQ(hot.of(row), 2.7) << row;
  }
  for (const char* wrong :
       {R"("3")", "0", R"({"unscaled_rows": []})", R"({"scale": 2, "unscaled_rows": [[3, 1]]})",
        R"({"scale": 2, "unscaled_rows": [[0, 4], [3, 5]]})",
        R"({"scale": 2, "unscaled_rows": [[0]]})", R"({"scale": 2, "unscaled_rows": [7]})"}) {
    EXPECT_THROW(saved_moment_scales(std::string(R"({"moment_scales": {"t": )") + wrong + "}}"),
                 Error)
        << wrong;
  }
}

TEST(Mesh, AStopWaitsForTheNextSync) {
  const std::vector<std::string> job = joined(mesh(2, "dense"), {"mesh.sync_every=3"});
  const Summary expected = train_on(4, job_options(make_job(job)));
  ASSERT_EQ(expected.last_step % 3, 2) << "the end is no sync: the test shows less";
  const TemporaryFolder folder;
  std::atomic<bool> stop = true;
  JobOptions options = job_options(make_job(job));
  options.stop = &stop;
  options.checkpoint_dir = folder.path();
  const Summary stopped = train_on(4, options);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.last_step, 3);
  JobOptions rest = job_options(make_job(job));
  rest.resume = folder.path();
  expect_same(train_on(4, rest), expected, "resumed");
}

TEST(Mesh, EvaluationsChangeNothing) {
  const std::vector<std::string> job = joined(mesh(2, "dense"), {"mesh.sync_every=2"});
  expect_same(train_on(4, job_options(make_job(joined(job, {"train.eval_every=4"})))),
              train_on(4, job_options(make_job(job))), "with evaluations");
}

/// Averages begin late, on each rank by another time.
Summary train_with_late_syncs(int ranks, const JobOptions& options) {
  Summary summary;
  comm::run_local(
      ranks, {.timeout_s = options.config.train.timeout_s}, [&](comm::Communicator& world) {
        JobOptions own = options;
        own.engine.delays = {
            {StepPart::kSyncReplicas, std::chrono::milliseconds(5 * (7 * world.rank() % 4))}};
        Summary got = run_train(world, own);
        if (world.rank() == 0) {
          summary = std::move(got);
        }
      });
  return summary;
}

struct SyncCase {
  const char* form;
  const char* every;
};

constexpr std::array<SyncCase, 5> kSyncs = {
    {{"dense", "1"}, {"dense", "2"}, {"touched", "1"}, {"touched", "2"}, {"gradients", "1"}}};

/// Of 4 ranks in 2 groups, with rows that are rounded by draws of the step and statistics of rows
/// that lie on two ranks.
std::vector<std::string> synced_job(const SyncCase& sync) {
  return joined(mesh(2, sync.form),
                {std::string("mesh.sync_every=") + sync.every, "tables.item.sharding=column_wise",
                 "tables.few.sharding=data_parallel", "tables.tags.dtype=bf16"});
}

TEST(MeshOverlap, ChangesNothing) {
  for (const SyncCase& sync : kSyncs) {
    const std::vector<std::string> job = synced_job(sync);
    const Summary in_line =
        train_on(4, job_options(make_job(joined(job, {"train.overlap=false"}))));
    for (const char* device : {"train.device=cpu", "train.device=check"}) {
      const std::string what = std::string(sync.form) + " every " + sync.every + ", " + device;
      const JobOptions options = job_options(make_job(joined(job, {device})));
      expect_same(train_on(4, options), in_line, what);
      expect_same(train_with_late_syncs(4, options), in_line, what + ", late");
    }
  }
}

TEST(MeshOverlap, WithoutTheWaitALookupSeesRowsOfOneGroup) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point";
#endif
  for (const char* form : {"dense", "touched"}) {
    for (const char* device : {"train.device=cpu", "train.device=check"}) {
      JobOptions options = job_options(make_job(joined(mesh(2, form), {"train.steps=2", device})));
      const Summary expected = train_on(4, options);
      options.engine.delays = {{StepPart::kSyncReplicas, std::chrono::milliseconds(50)}};
      expect_same(train_on(4, options), expected, std::string(form) + ", " + device);
      if (std::string(device) == "train.device=cpu") {  // later than any lookup on a busy machine
        options.engine.delays = {{StepPart::kSyncReplicas, std::chrono::milliseconds(1500)}};
        options.engine.left_out = {{StepPart::kLookup, pipeline::Resource::kRows}};
        EXPECT_NE(train_on(4, options).weights_hash, expected.weights_hash) << form;
      }
    }
  }
}

// Each evaluation and checkpoint comes while the average before it has not begun.
TEST(MeshOverlap, EvaluationsAndCheckpointsWaitForALateSync) {
  for (const SyncCase& sync : kSyncs) {
    const std::vector<std::string> job = synced_job(sync);
    const std::string what = std::string(sync.form) + " every " + sync.every;
    const Summary expected =
        train_on(4, job_options(make_job(joined(job, {"train.overlap=false"}))));
    const TemporaryFolder folder;
    JobOptions first = job_options(make_job(joined(job, {"train.eval_every=2"})));
    first.checkpoint_dir = folder.path() + "/some";
    first.checkpoint_every = 2;
    first.config.train.steps = 4;
    train_with_late_syncs(4, first);
    JobOptions rest = job_options(make_job(joined(job, {"train.eval_every=2"})));
    rest.resume = first.checkpoint_dir;
    expect_same(train_with_late_syncs(4, rest), expected, what + ", resumed");
    std::atomic<bool> stop = true;
    JobOptions stopped = job_options(make_job(job));
    stopped.stop = &stop;
    stopped.checkpoint_dir = folder.path() + "/stopped";
    EXPECT_TRUE(train_with_late_syncs(4, stopped).stopped) << what;
    rest.resume = stopped.checkpoint_dir;
    expect_same(train_with_late_syncs(4, rest), expected, what + ", stopped and resumed");
  }
}

TEST(MeshOverlap, TheTimeOfTheTrainingHasItsSyncs) {
  // 3 averages of 50 ms and more, of which nothing hides any; and one behind the last step.
  for (const std::vector<std::string>& job : std::vector<std::vector<std::string>>{
           {"train.steps=3", "train.eval_every=1"}, {"train.steps=1"}}) {
    JobOptions options = job_options(make_job(joined(mesh(2, "dense"), job)));
    options.engine.delays = {{StepPart::kSyncReplicas, std::chrono::milliseconds(50)}};
    const Summary got = train_on(2, options);
    EXPECT_GT(got.train_s, 0.045 * static_cast<double>(got.steps));
  }
}

// The next lookup, or the end, throws what ended the average.
TEST(MeshOverlap, ARankThatDoesNotComeToASyncEndsAllInTime) {
  constexpr double kTimeout = 2.0;
  constexpr int kLate = 3;
  constexpr auto kDelay = std::chrono::seconds(8);
  for (const char* steps : {"train.steps=4", "train.steps=1"}) {
    const JobOptions options = job_options(make_job(joined(mesh(2, "dense"), {steps})));
    std::array<std::string, 4> messages;
    std::array<double, 4> seconds{};
    const auto begin = std::chrono::steady_clock::now();
    try {
      comm::run_local(4, {.timeout_s = kTimeout}, [&](comm::Communicator& world) {
        JobOptions own = options;
        if (world.rank() == kLate) {
          own.engine.delays = {{StepPart::kSyncReplicas, kDelay}};
        }
        const auto rank = static_cast<std::size_t>(world.rank());
        try {
          run_train(world, own);
        } catch (const Error& error) {
          messages[rank] = error.what();
          seconds[rank] =
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
          throw;
        }
      });
      ADD_FAILURE() << "the run succeeded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    }
    // Rank 1 waits for rank 3 in the average, or rank 0 for rank 1 in the next step: whose time is
    // up first speaks.
    const bool of_average = messages[0].find("'replicas': rank 1") != std::string::npos &&
                            messages[0].find("missing: rank 3") != std::string::npos;
    const bool of_next_step = messages[0].find("missing: rank 1") != std::string::npos;
    EXPECT_TRUE(of_average || of_next_step) << messages[0];
    for (std::size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(messages[r], messages[0]) << "rank " << r;
      // The late one ends when it looks.
      EXPECT_TRUE(r == kLate || seconds[r] < 7.5) << "rank " << r << ": " << seconds[r] << " s";
    }
  }
}

TEST(Mesh, RefusesWhatItCannotDo) {
  EXPECT_EQ(message_of([] { train_on(8, job_options(make_job(mesh(3, "dense")))); }),
            "mesh.groups: 3 groups do not divide 8 ranks; set 2 or 4");
  EXPECT_EQ(message_of([] { train_on(2, job_options(make_job(mesh(4, "dense")))); }),
            "mesh.groups: 4 groups do not divide 2 ranks; set 2");
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(joined(mesh(2, "dense"), {"mesh.sync_every=4"})));
  options.checkpoint_dir = folder.path();
  options.checkpoint_every = 6;
  EXPECT_NE(message_of([&] { train_on(2, options); }).find("give 4 or 8"), std::string::npos);
  EXPECT_NE(message_of([] {
              make_job(joined(mesh(2, "dense"), {"mesh.sync_every=4", "train.eval_every=3"}));
            }).find("set 4"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              make_job(joined(mesh(2, "gradients"), {"mesh.sync_every=4"}));
            }).find("never lets replicas part"),
            std::string::npos);
}

/// Slow links between two hosts of two ranks.
std::string slow_cluster(const std::string& folder) {
  topology::Cluster cluster = topology::small_cluster({{.count = 2, .ranks = 2}});
  cluster.links.network.rank.value = 1e5;
  cluster.links.network.latency.value = 0.0;
  std::ofstream(folder + "/cluster.yaml") << topology::to_yaml(cluster);
  return folder + "/cluster.yaml";
}

TEST(Mesh, WhatThePlannerChoseTrainsAsIfAskedFor) {
  const TemporaryFolder folder;
  std::vector<std::string> open = {"mesh.groups=0", "mesh.sync=auto", "mesh.sync_every=0"};
  for (const std::string& rows : all_tables("sharding", "row_wise")) {
    open.push_back(rows);
  }
  JobOptions options = job_options(make_job(open));
  options.cluster_file = slow_cluster(folder.path());
  options.out_dir = folder.path() + "/out";
  const Summary chosen = train_on(4, options);
  JobOptions given = options;
  given.cluster_file.clear();
  given.out_dir.clear();
  given.plan_file = options.out_dir + "/plan.yaml";
  std::ifstream file(given.plan_file);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const spec::Plan plan = spec::plan_from_yaml(text, given.plan_file);
  ASSERT_GT(plan.groups, 1) << "what crosses is dear";
  ASSERT_EQ(plan.world(), 4);
  ASSERT_NE(plan.sync, spec::SyncForm::kAuto);
  ASSERT_GT(plan.sync_every, 0);
  given.config.mesh = {.groups = plan.groups, .sync = plan.sync, .sync_every = plan.sync_every};
  const Summary asked = train_on(4, given);
  expect_same(asked, chosen, "asked for");
  EXPECT_EQ(asked.plan_hash, chosen.plan_hash);
  given.config.mesh.sync = plan.sync == spec::SyncForm::kGradients ? spec::SyncForm::kTouched
                                                                   : spec::SyncForm::kGradients;
  EXPECT_NE(message_of([&] { train_on(4, given); }).find("set mesh.sync=auto"), std::string::npos);
}

TEST(Mesh, WhatThePlannerChoseStaysOnResume) {
  const TemporaryFolder folder;
  std::vector<std::string> open = {"mesh.groups=2", "mesh.sync=auto", "mesh.sync_every=2"};
  for (const std::string& rows : all_tables("sharding", "row_wise")) {
    open.push_back(rows);
  }
  JobOptions whole = job_options(make_job(open));
  whole.cluster_file = slow_cluster(folder.path());
  const Summary expected = train_on(4, whole);
  JobOptions first = job_options(make_job(joined(open, {"train.steps=4"})));
  first.cluster_file = whole.cluster_file;
  first.checkpoint_dir = folder.path() + "/kept";
  train_on(4, first);
  JobOptions rest = job_options(make_job(open));
  rest.resume = first.checkpoint_dir;
  const Summary got = train_on(4, rest);
  expect_same(got, expected, "resumed without the cluster");
  EXPECT_EQ(got.plan_hash, expected.plan_hash);
}

TEST(Mesh, WithoutAClusterNothingIsChosen) {
  const std::vector<std::string> open = {"mesh.groups=0", "mesh.sync=auto", "mesh.sync_every=0"};
  const Summary got = train_on(2, job_options(make_job(open)));
  const Summary expected = train_on(2, job_options(make_job()));
  expect_same(got, expected, "one group");
  EXPECT_EQ(got.plan_hash, expected.plan_hash);
  const std::vector<std::string> two = {"mesh.groups=2", "mesh.sync=auto", "mesh.sync_every=0"};
  expect_same(train_on(4, job_options(make_job(two))),
              train_on(4, job_options(make_job(mesh(2, "dense")))), "dense after every step");
}

TEST(Mesh, APlanIsForItsMesh) {
  const TemporaryFolder folder;
  JobOptions options = job_options(
      make_job(joined(mesh(2, "dense"), {"mesh.layout=local_all_reduce", "train.steps=2"})));
  options.out_dir = folder.path();
  const Summary made = train_on(4, options);
  options.out_dir.clear();
  options.plan_file = folder.path() + "/plan.yaml";
  options.config.mesh.layout = spec::MeshLayout::kAuto;
  const Summary again = train_on(4, options);
  EXPECT_EQ(again.plan_hash, made.plan_hash);
  EXPECT_EQ(again.state_hash, made.state_hash);
  options.config.mesh.groups = 4;
  EXPECT_NE(message_of([&] { train_on(4, options); }).find("set mesh.groups=2"), std::string::npos);
}

}  // namespace
}  // namespace weft::train
