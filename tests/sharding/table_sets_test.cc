// Tables with different numbers of replica groups: the sparse engine over sets of them, alone.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"

namespace weft::sharding {
namespace {

constexpr int kMeshRanks = 8;
constexpr int kMeshGroups = 4;

/// K of each table of make_config(); 0: as the mesh.
using Groups = std::array<std::int64_t, 3>;

constexpr std::array<Groups, 6> kMixtures = {
    {{1, 2, 4}, {4, 1, 2}, {2, 4, 1}, {1, 1, 4}, {4, 4, 2}, {2, 2, 2}}};

spec::Config with_groups(spec::Config config, const Groups& groups, spec::SyncForm sync) {
  config.mesh.groups = kMeshGroups;
  config.mesh.sync = sync;
  for (std::size_t t = 0; t < groups.size(); ++t) {
    config.tables[t].groups = groups[t];
  }
  return config;
}

std::string name_of_groups(const Groups& groups, spec::Sharding sharding, spec::SyncForm sync) {
  return fmt::format("groups {}, sharding {}, sync {}", fmt::join(groups, ", "),
                     static_cast<int>(sharding), static_cast<int>(sync));
}

// Sums that depend on the order of addition, split bags too: the plan is that of one group.
TEST(TableSets, OfOneGroupHaveTheBitsOfAllRanks) {
  for (const auto kind : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad,
                          SparseOptimizerKind::kRowWiseAdam}) {
    for (const spec::Sharding sharding : kShardings) {
      for (const CodecFormat format : {CodecFormat::kFp32, CodecFormat::kFp8E5m2}) {
        spec::Config config = make_config(sharding, make_optimizer(kind));
        config.codecs.forward = config.codecs.backward = format;
        config.codecs.group_size = 16;
        config.codecs.rounding = CodecRounding::kStochastic;
        const RunOptions options{.ranks = kMeshRanks, .gradients = Gradients::kRounded};
        const spec::Config sets = with_groups(config, {1, 1, 1}, spec::SyncForm::kDense);
        expect_equal(run(sets, options), run(config, options),
                     name_of_groups({1, 1, 1}, sharding, spec::SyncForm::kDense));
      }
    }
  }
}

TEST(TableSets, OfAllGroupsAreTheMesh) {
  for (const spec::SyncForm sync : {spec::SyncForm::kTouched, spec::SyncForm::kGradients}) {
    for (const spec::Sharding sharding : kShardings) {
      const spec::Config config =
          make_config(sharding, make_optimizer(SparseOptimizerKind::kRowWiseAdagrad));
      const spec::Config mesh = with_groups(config, {0, 0, 0}, sync);
      const spec::Config sets = with_groups(config, {4, 4, 4}, sync);
      EXPECT_EQ(planner::make_plan(sets, two_hosts(kMeshRanks)),
                planner::make_plan(mesh, two_hosts(kMeshRanks)));
      const RunOptions options{.ranks = kMeshRanks, .gradients = Gradients::kRounded};
      expect_equal(run(sets, options), run(mesh, options),
                   name_of_groups({4, 4, 4}, sharding, sync));
    }
  }
}

// Integers, and every number of groups a power of two: each average is exact.
TEST(TableSets, OfSgdTakeTheStepOfTheWholeBatch) {
  for (const std::int64_t samples : {29, 3}) {
    const RunResult expected =
        run(make_integer_config(spec::Sharding::kTableWise), {.samples = samples});
    for (const Groups& groups : kMixtures) {
      for (const spec::Sharding sharding : kShardings) {
        for (const spec::SyncForm sync :
             {spec::SyncForm::kDense, spec::SyncForm::kTouched, spec::SyncForm::kGradients}) {
          const spec::Config config = with_groups(make_integer_config(sharding), groups, sync);
          expect_equal(run(config, {.ranks = kMeshRanks, .samples = samples}), expected,
                       name_of_groups(groups, sharding, sync));
        }
      }
    }
  }
}

TEST(TableSets, PooledAtTheSampleToo) {
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const spec::IdCodec ids : {spec::IdCodec::kNarrow, spec::IdCodec::kPacked}) {
    for (const Groups& groups : kMixtures) {
      spec::Config config = make_integer_config(spec::Sharding::kRowWise);
      config.codecs.ids = ids;
      config.tables[0].pooled_at = config.tables[2].pooled_at = spec::PooledAt::kSample;
      config.tables[1].sharding = spec::Sharding::kDataParallel;  // of no set
      expect_equal(run(with_groups(config, groups, spec::SyncForm::kDense), {.ranks = kMeshRanks}),
                   expected,
                   name_of_groups(groups, spec::Sharding::kRowWise, spec::SyncForm::kDense));
    }
  }
}

// No bag is split: sums that depend on the order of addition, and c counts nothing.
TEST(TableSets, GradientsHaveTheBitsOfOneRank) {
  for (const auto kind : {SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad,
                          SparseOptimizerKind::kAdam}) {
    for (const spec::Sharding sharding :
         {spec::Sharding::kTableWise, spec::Sharding::kColumnWise}) {
      spec::SparseOptimizer optimizer = make_optimizer(kind);
      optimizer.max_norm = 0.4;
      const spec::Config config = make_config(sharding, optimizer);
      const RunResult expected = run(config, {.samples = 61, .gradients = Gradients::kRounded});
      for (const Groups& groups : kMixtures) {
        const spec::Config sets = with_groups(config, groups, spec::SyncForm::kGradients);
        expect_equal(
            run(sets, {.ranks = kMeshRanks, .samples = 61, .gradients = Gradients::kRounded}),
            expected, name_of_groups(groups, sharding, spec::SyncForm::kGradients));
      }
    }
  }
}

// run() compares all replicas bit by bit.
TEST(TableSets, TouchedRowsGiveTheBitsOfAllRows) {
  for (const spec::RowDType dtype : {spec::RowDType::kFp32, spec::RowDType::kBf16}) {
    for (const Groups& groups : kMixtures) {
      spec::Config config = make_config(spec::Sharding::kColumnWise,
                                        make_optimizer(SparseOptimizerKind::kRowWiseAdagrad));
      config.mesh.sync_every = 2;
      for (spec::Table& table : config.tables) {
        table.dtype = dtype;
      }
      const RunOptions options{.ranks = kMeshRanks, .steps = 5, .gradients = Gradients::kRounded};
      expect_equal(run(with_groups(config, groups, spec::SyncForm::kTouched), options),
                   run(with_groups(config, groups, spec::SyncForm::kDense), options),
                   name_of_groups(groups, spec::Sharding::kColumnWise, spec::SyncForm::kTouched));
    }
  }
}

TEST(TableSets, OnTheCheckDeviceGiveTheSameBits) {
  const spec::Config config = with_groups(
      make_config(spec::Sharding::kRowWise, make_optimizer(SparseOptimizerKind::kAdagrad)),
      {1, 4, 2}, spec::SyncForm::kDense);
  RunOptions options{.ranks = kMeshRanks, .gradients = Gradients::kRounded};
  const RunResult expected = run(config, options);
  options.device = DeviceKind::kCheck;
  expect_equal(run(config, options), expected, "check device");
}

// Batches that grow and shrink: the sets share matrices, which are made anew.
TEST(TableSets, FollowBatchesOfAllSizes) {
  const std::vector<std::int64_t> sizes = {5, 64, 1, 3, 33};
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {.sizes = sizes});
  for (const Groups& groups : kMixtures) {
    expect_equal(run(with_groups(make_integer_config(spec::Sharding::kRowWise), groups,
                                 spec::SyncForm::kDense),
                     {.ranks = kMeshRanks, .sizes = sizes}),
                 expected,
                 name_of_groups(groups, spec::Sharding::kRowWise, spec::SyncForm::kDense));
  }
}

// What the tests above would not see if all tables were in one set.
TEST(TableSets, NumbersOfGroupsCount) {
  const auto averaged = [](const Groups& groups) {
    const spec::Config config = with_groups(
        make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kAdagrad)),
        groups, spec::SyncForm::kDense);
    return run(config, {.ranks = kMeshRanks, .gradients = Gradients::kRounded});
  };
  const RunResult all = averaged({4, 4, 4});
  for (const Groups& groups : {Groups{4, 4, 2}, Groups{1, 4, 4}, Groups{4, 2, 4}}) {
    EXPECT_NE(averaged(groups).hash, all.hash) << fmt::format("{}", fmt::join(groups, ", "));
  }
}

TEST(TableSets, ExchangeOverTheirGroups) {
  spec::Config config =
      with_groups(make_config(spec::Sharding::kRowWise, make_optimizer(SparseOptimizerKind::kSgd)),
                  {1, 0, 2}, spec::SyncForm::kDense);
  spec::Plan plan = planner::make_plan(config, kMeshRanks);
  EXPECT_EQ(plan.most_ranks(), kMeshRanks);
  comm::run_local(kMeshRanks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 1});
    const ShardedEmbeddings sets(config, plan, world, *device, {});
    EXPECT_EQ(sets.num_sets(), 3U);
    // "many" is cut over the 4 ranks of a merged group, and 2 of these hold each row.
    for (const embedding::TableShard* shard : sets.shards()) {
      if (shard->table().name == "many") {
        const Range expected = piece(97, 4, world.rank() % 4);
        EXPECT_EQ(shard->rows(), RowSet(expected));
      }
    }
  });
  for (spec::Table& table : config.tables) {
    table.groups = 2;
  }
  config.tables[1].sharding = spec::Sharding::kDataParallel;
  plan = planner::make_plan(config, kMeshRanks);
  EXPECT_EQ(plan.tables[1].groups, 0) << "on all ranks of all groups";
  comm::run_local(kMeshRanks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 1});
    const ShardedEmbeddings sets(config, plan, world, *device, {});
    EXPECT_EQ(sets.num_sets(), 1U) << "data_parallel tables need no set of their own";
  });
}

}  // namespace
}  // namespace weft::sharding
