// Jobs whose tables have different numbers of replica groups.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/train/mesh.h"

namespace weft::train {
namespace {

using Overrides = std::vector<std::string>;

/// Three sets of a mesh of 4 groups, and a table of none.
Overrides mixture() {
  return {"tables.item.groups=1",          "tables.item.sharding=column_wise",
          "tables.tags.groups=2",          "tables.tags.dtype=bf16",
          "tables.tags.sharding=row_wise", "tables.few.sharding=data_parallel"};
}

Summary trained(int ranks, const Overrides& job) {
  return train_on(ranks, job_options(make_job(job)));
}

TEST(TableSetsOfJobs, OfOneGroupAreNoMesh) {
  for (const char* optimizer : {"sgd", "adagrad", "row_wise_adagrad"}) {
    const Overrides job = {std::string("sparse_optimizer.type=") + optimizer,
                           "tables.tags.sharding=row_wise", "tables.item.sharding=column_wise",
                           "tables.few.sharding=data_parallel"};
    const Summary expected = trained(4, job);
    Overrides sets = joined(job, mesh(2, "dense"));
    for (const char* table : {"one", "item", "tags", "rare"}) {
      sets.push_back(std::string("tables.") + table + ".groups=1");
    }
    for (const char* more :
         {"mesh.layout=local_all_to_all", "mesh.layout=local_all_reduce", "mesh.sync=touched"}) {
      expect_same(trained(4, joined(sets, {more})), expected, std::string(optimizer) + ", " + more);
    }
    EXPECT_NE(trained(4, joined(job, mesh(2, "dense"))).weights_hash, expected.weights_hash)
        << optimizer << ": two groups do the same, the test shows little";
  }
}

TEST(TableSetsOfJobs, OfAllGroupsAreTheMesh) {
  const Overrides job = joined(mesh(2, "touched"), {"tables.tags.sharding=row_wise"});
  const Summary expected = trained(4, job);
  const Summary got = trained(4, joined(job, all_tables("groups", "2")));
  expect_same(got, expected, "K = M");
  EXPECT_EQ(got.plan_hash, expected.plan_hash);
}

// At their ends jobs compare all replicas.
TEST(TableSetsOfJobs, LayoutsAndFormsGiveTheSameBits) {
  const Overrides job = joined(joined(mesh(4, "dense"), {"mesh.sync_every=2"}), mixture());
  const Summary near = trained(8, job);
  for (const char* more : {"mesh.layout=local_all_reduce", "train.device=check",
                           "train.overlap=false", "mesh.sync=touched"}) {
    expect_same(trained(8, joined(job, {more})), near, more);
  }
  EXPECT_NE(trained(8, joined(job, {"tables.tags.groups=4"})).weights_hash, near.weights_hash);
}

TEST(TableSetsOfJobs, HierarchicalCollectivesGiveTheBitsOfFlatOnes) {
  const Overrides job =
      joined(joined(mesh(4, "touched"), {"codecs.forward=int8", "codecs.backward=fp8_e5m2",
                                         "codecs.group_size=16", "train.steps=4"}),
             mixture());
  const std::vector<std::vector<int>> layouts = {{0, 0, 0, 0, 1, 1, 1, 1},
                                                 {0, 1, 1, 1, 1, 2, 2, 2}};
  for (const std::vector<int>& hosts : layouts) {
    for (const char* layout : {"mesh.layout=local_all_to_all", "mesh.layout=local_all_reduce"}) {
      const auto run = [&](const char* form) {
        return train_on(8, job_options(make_job(joined(job, {layout, form}))), hosts);
      };
      expect_same(run("collectives=hierarchical"), run("collectives=flat"), layout);
    }
  }
}

// Merged sums of gradients: c is 1 and no bag is split, so the number of ranks changes nothing.
TEST(TableSetsOfJobs, GradientsGiveTheBitsOfOneGroup) {
  const Overrides job = {"sparse_optimizer.type=adagrad", "tables.item.sharding=column_wise",
                         "tables.few.sharding=data_parallel"};
  const Overrides groups = {"tables.item.groups=1", "tables.tags.groups=2"};
  expect_same(trained(8, joined(joined(job, mesh(4, "gradients")), groups)), trained(2, job),
              "gradients");
}

TEST(TableSetsOfJobs, HaveHotRows) {
  const TemporaryFolder plans;
  const Overrides job = joined(
      mesh(4, "dense"), {"mesh.sync_every=2", "sparse_optimizer.type=adagrad",
                         "tables.item.groups=1", "tables.tags.groups=2",
                         "tables.tags.sharding=row_wise", "tables.item.sharding=column_wise"});
  const auto options = [&](const Overrides& more) {
    return with_hot_rows(job_options(make_job(joined(job, more))), 8, {2, 60}, plans.path());
  };
  const Summary expected = train_on(8, options({}));
  for (const char* more : {"mesh.layout=local_all_reduce", "mesh.sync=touched"}) {
    expect_same(train_on(8, options({more})), expected, more);
  }
  const TemporaryFolder folder;
  JobOptions first = options({});
  first.config.train.steps = 4;
  first.checkpoint_dir = folder.path();
  train_on(8, first);
  JobOptions rest = options({});
  rest.resume = folder.path();
  expect_same(train_on(8, rest), expected, "resumed");
}

TEST(TableSetsOfJobs, ResumeWithTheSameBits) {
  const Overrides job = joined(joined(mesh(4, "touched"), {"mesh.sync_every=2"}), mixture());
  const Summary expected = trained(8, job);
  const TemporaryFolder folder;
  JobOptions first = job_options(make_job(job));
  first.config.train.steps = 4;
  first.checkpoint_dir = folder.path();
  const Summary stopped = train_on(8, first);
  JobOptions rest = job_options(make_job(job));
  rest.resume = folder.path();
  const Summary got = train_on(8, rest);
  expect_same(got, expected, "resumed");
  EXPECT_EQ(got.plan_hash, stopped.plan_hash);
}

/// Encoded syncs of the mixture: of tables of 2 and 4 groups, none of one.
Overrides coded_mixture(const std::string& sync) {
  return joined(joined(mesh(4, sync), mixture()),
                {"codecs.sync=int8", "codecs.group_size=16", "sparse_optimizer.type=adam"});
}

TEST(TableSetsOfJobs, EncodedSyncsGiveTheSameBitsBesideAndInLine) {
  const Summary expected =
      trained(8, joined(coded_mixture("dense"), {"mesh.sync_every=2", "train.overlap=false"}));
  for (const char* sync : {"dense", "touched"}) {
    for (const char* more :
         {"mesh.layout=local_all_to_all", "mesh.layout=local_all_reduce", "train.device=check"}) {
      const Overrides job = joined(coded_mixture(sync), {"mesh.sync_every=2", more});
      JobOptions late = job_options(make_job(job));
      expect_same(train_on(8, late), expected, std::string(sync) + ", " + more);
      late.engine.delays = {{StepPart::kSyncReplicas, std::chrono::milliseconds(10)}};
      expect_same(train_on(8, late), expected, std::string(sync) + ", " + more + ", late");
    }
  }
  EXPECT_NE(trained(8, joined(coded_mixture("dense"), {"mesh.sync_every=2", "codecs.sync=fp32"}))
                .weights_hash,
            expected.weights_hash)
      << "nothing was encoded";
}

// What is lost of each set's syncs is saved and taken over.
TEST(TableSetsOfJobs, EncodedSyncsResumeWithTheSameBits) {
  const TemporaryFolder plans;
  for (const char* sync : {"dense", "touched"}) {
    const Overrides job = joined(coded_mixture(sync), {"tables.few.sharding=table_wise"});
    const JobOptions whole = with_hot_rows(job_options(make_job(job)), 8, {2, 60}, plans.path());
    const Summary expected = train_on(8, whole);
    const TemporaryFolder folder;
    JobOptions first = whole;
    first.config.train.steps = 4;
    first.checkpoint_dir = folder.path();
    train_on(8, first);
    JobOptions rest = whole;
    rest.resume = folder.path();
    expect_same(train_on(8, rest), expected, sync);
  }
}

// Sums of squares are multiples of each table's groups: powers of two, so nothing is rounded.
TEST(TableSetsOfJobs, ACheckpointContinuesWithOtherGroups) {
  const Overrides job = joined(mesh(4, "dense"), {"sparse_optimizer.type=adagrad", "train.steps=4",
                                                  "sparse_optimizer.initial_accumulator=0.1",
                                                  "tables.few.sharding=data_parallel"});
  const auto of = [](const char* item, const char* tags) {
    return Overrides{std::string("tables.item.groups=") + item,
                     std::string("tables.tags.groups=") + tags};
  };
  const TemporaryFolder folder;
  JobOptions options = job_options(make_job(joined(job, of("1", "2"))));
  options.checkpoint_dir = folder.path() + "/0";
  const Summary expected = train_on(8, options);
  std::string from = options.checkpoint_dir;
  for (const Overrides& groups : {of("4", "4"), of("2", "1"), of("1", "1"), of("1", "2")}) {
    JobOptions rest = job_options(make_job(joined(job, groups)));
    rest.resume = from;
    rest.checkpoint_dir = from + "0";
    const Summary got = train_on(8, rest);
    EXPECT_EQ(got.steps, 0);
    EXPECT_EQ(got.weights_hash, expected.weights_hash) << groups.front() << " " << groups.back();
    EXPECT_EQ(got.state_hash == expected.state_hash, groups == of("1", "2"))
        << groups.front() << " " << groups.back();
    from = rest.checkpoint_dir;
  }
  JobOptions one = job_options(make_job({"sparse_optimizer.type=adagrad"}));  // no mesh
  one.resume = from;
  EXPECT_GT(train_on(2, one).steps, 0);
}

TEST(TableSetsOfJobs, MomentScalesAreOfEachTablesGroups) {
  const spec::Config config = make_job(
      joined(mesh(4, "dense"), {"sparse_optimizer.type=adagrad", "tables.item.groups=1",
                                "tables.tags.groups=2", "tables.few.sharding=data_parallel"}));
  const MomentScales scales = moment_scales(config, planner::make_plan(config, 8));
  const MomentScales expected = {{"one", {.scale = 4.0, .unscaled = {}}},
                                 {"tags", {.scale = 2.0, .unscaled = {}}},
                                 {"rare", {.scale = 4.0, .unscaled = {}}}};
  EXPECT_EQ(scales, expected);
}

TEST(TableSetsOfJobs, APlanIsForItsGroups) {
  const TemporaryFolder folder;
  const Overrides job = joined(mesh(4, "dense"), {"train.steps=2"});
  JobOptions options = job_options(make_job(joined(job, mixture())));
  options.out_dir = folder.path();
  const Summary made = train_on(8, options);
  options.out_dir.clear();
  options.plan_file = folder.path() + "/plan.yaml";
  const Summary again = train_on(8, options);
  EXPECT_EQ(again.plan_hash, made.plan_hash);
  EXPECT_EQ(again.state_hash, made.state_hash);
  options.config = make_job(joined(joined(job, mixture()), {"tables.tags.groups=4"}));
  EXPECT_NE(message_of([&] { train_on(8, options); })
                .find("it is for 2 replica groups and the configuration has 4 "
                      "(tables.tags.groups)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { make_job(joined(job, {"tables.tags.groups=3"})); })
                .find("tables.tags.groups: 3 groups do not divide the 4 of mesh.groups; set 2 or "
                      "4, or 0 for all"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::train
