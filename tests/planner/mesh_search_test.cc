// Replica groups: what a step of a mesh is predicted to take, and which mesh is chosen.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/planner/made_up.h"
#include "weft/base/error.h"
#include "weft/cost/replicas.h"
#include "weft/cost/tables.h"
#include "weft/planner/mesh_cluster.h"
#include "weft/planner/place.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/search.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

using spec::MeshLayout;
using spec::Sharding;
using spec::SyncForm;
using testing::Use;

topology::Cluster cluster_of_meshes(std::vector<topology::HostGroup> hosts, double network = 1e8) {
  topology::Cluster cluster = testing::made_up_cluster(std::move(hosts), network);
  cluster.memory.ddr.value = 4e9;
  cluster.memory.reserve.value = 0.0;
  cluster.compute.stage.value = 1e-6;
  return cluster;
}

/// Ids are even, and rows are cut over all ranks of a group.
spec::Config cut_config(const std::vector<Use>& tables, std::int64_t batch = 4096) {
  spec::Config config = testing::make_config(tables, batch);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    config.data.synthetic.columns[t].zipf = 0.0;
    config.tables[t].sharding = Sharding::kRowWise;
    config.tables[t].pooled_at = spec::PooledAt::kOwner;
  }
  return config;
}

/// Small tables beside what a step moves: long bags.
spec::Config small_tables() {
  return cut_config(std::vector<Use>(4, Use{.rows = 1000, .dim = 64, .length = 20}), 8192);
}

/// Large tables of which a step touches little.
spec::Config large_tables() {
  return cut_config(std::vector<Use>(2, Use{.rows = 400'000, .dim = 64, .length = 1}), 512);
}

PlanCost cost_on(const spec::Config& config, const topology::Cluster& cluster) {
  const Workload workload = make_workload(config);
  const spec::Plan plan = make_plan(
      config, {.ranks = topology::ranks(cluster), .hosts = topology::rank_hosts(cluster)});
  const MeshCluster mesh = mesh_cluster(cluster, config.mesh);
  return Estimator(config, mesh, workload, plan.parts).cost(plan);
}

SearchResult search_on(const spec::Config& config, const topology::Cluster& cluster) {
  return search(config, cluster, make_workload(config));
}

double sent(const RankCost& rank) {
  return rank.sent[1] + rank.sent[2];
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(MeshCluster, LinksAreThoseOfTheLayout) {
  topology::Cluster world = cluster_of_meshes({{.count = 2, .ranks = 4}});
  world.links.network.host.value = 1e9;
  using Hosts = std::vector<topology::HostGroup>;
  const auto on = [&](std::int64_t groups, MeshLayout layout) {
    return mesh_cluster(world, {.groups = groups, .layout = layout});
  };
  const MeshCluster near = on(2, MeshLayout::kLocalAllToAll);
  EXPECT_EQ(near.group.hosts, (Hosts{{.count = 1, .ranks = 4}}));
  EXPECT_EQ(near.near, std::vector<double>(8, 0.0));
  EXPECT_EQ(near.group.links.network.host.value, 1e9);
  const MeshCluster far = on(2, MeshLayout::kLocalAllReduce);
  EXPECT_EQ(far.group.hosts, (Hosts{{.count = 2, .ranks = 2}}));
  EXPECT_EQ(far.near, std::vector<double>(8, 1.0));
  EXPECT_EQ(far.group.links.network.host.value, 5e8) << "the other group has the other half";
  EXPECT_EQ(far.by_position, (topology::Group{0, 2, 4, 6, 1, 3, 5, 7}));
  const MeshCluster four = on(4, MeshLayout::kLocalAllReduce);
  EXPECT_EQ(four.group.hosts, (Hosts{{.count = 2, .ranks = 1}}));
  EXPECT_EQ(four.near, std::vector<double>(8, 3.0));
  EXPECT_EQ(on(4, MeshLayout::kLocalAllToAll).near, std::vector<double>(8, 1.0));
  EXPECT_TRUE(layouts_are_alike(world, 8));
  EXPECT_FALSE(layouts_are_alike(world, 2));
  const std::vector<double> bytes = {10, 20, 30, 40};
  const cost::Exchange exchange = replica_exchange(far, bytes);
  EXPECT_EQ(exchange.ranks[3].sent, (cost::ByLink{0, 20, 0})) << "rank 3 is group 1, place 1";
  EXPECT_EQ(replica_exchange(near, bytes).ranks[5].sent, (cost::ByLink{0, 0, 20}));
}

TEST(MeshCost, OneGroupIsNoMesh) {
  for (const auto& hosts :
       {std::vector<topology::HostGroup>{{.count = 1, .ranks = 1}},
        std::vector<topology::HostGroup>{{.count = 2, .ranks = 3}, {.count = 1, .ranks = 1}}}) {
    const topology::Cluster cluster = cluster_of_meshes(hosts);
    for (spec::Config config : {small_tables(), large_tables()}) {
      config.tables[1].sharding = Sharding::kDataParallel;
      config.mesh.sync = SyncForm::kTouched;  // means nothing
      const Workload workload = make_workload(config);
      const spec::Plan plan = make_plan(
          config, {.ranks = topology::ranks(cluster), .hosts = topology::rank_hosts(cluster)});
      const PlanCost plain = Estimator(config, cluster, workload, plan.parts).cost(plan);
      const PlanCost mesh = cost_on(config, cluster);
      EXPECT_EQ(mesh.step_s, plain.step_s);
      EXPECT_EQ(mesh.parts, plain.parts);
      EXPECT_EQ(mesh.exchanges, plain.exchanges);
      EXPECT_EQ(mesh.parts[static_cast<std::size_t>(StepPart::kSyncReplicas)], 0.0);
      for (std::size_t r = 0; r < plain.ranks.size(); ++r) {
        EXPECT_EQ(mesh.ranks[r].sent, plain.ranks[r].sent);
        EXPECT_EQ(mesh.ranks[r].buffer_bytes, plain.ranks[r].buffer_bytes);
        EXPECT_EQ(mesh.ranks[r].sample_bytes, plain.ranks[r].sample_bytes);
        EXPECT_EQ(mesh.ranks[r].sync_bytes, 0.0);
      }
    }
  }
}

/// Of one table on the first rank of every group; ids of groups of equal size.
TEST(MeshCost, BytesOfASyncAreThoseOfTheFormulas) {
  spec::Config config = cut_config({{.rows = 10'000, .dim = 48, .length = 3}}, 4096);
  config.tables[0].sharding = Sharding::kTableWise;
  config.tables[0].rank = 0;
  const double row_bytes = cost::replica_row_bytes(config.tables[0], 48);
  for (const std::int64_t groups : {2, 4}) {
    config.mesh = {.groups = groups};
    const double ids = 3.0 * 4096.0 / static_cast<double>(groups);  // of a group
    for (const std::int64_t every : {1, 5}) {
      const double since = static_cast<double>(every);
      const double own = cost::expected_unique(10'000, since * ids);
      const double any = cost::expected_unique(10'000, since * ids * static_cast<double>(groups));
      for (const SyncForm form : {SyncForm::kDense, SyncForm::kTouched, SyncForm::kGradients}) {
        if (form == SyncForm::kGradients && every > 1) {
          continue;
        }
        config.mesh.sync = form;
        config.mesh.sync_every = every;
        double expected = cost::group_gradient_bytes(groups, 48, own);
        if (form == SyncForm::kDense) {
          expected = cost::replica_average_bytes(groups, 10'000 * row_bytes);
        } else if (form == SyncForm::kTouched) {
          expected = cost::replica_average_bytes(groups, any * row_bytes) +
                     cost::touched_list_bytes(groups, 1, own);
        }
        const PlanCost cost = cost_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}}));
        EXPECT_NEAR(cost.ranks[0].sync_bytes, expected, 1e-9 * expected)
            << to_string(form) << ", " << groups << " groups";
        EXPECT_EQ(cost.ranks[1].sync_bytes, 0.0) << "holds nothing";
        // What leaves rank 0 and not rank 1, but for the ids that come to it and the vectors of it.
        config.mesh.sync = SyncForm::kDense;
        config.mesh.sync_every = std::int64_t{1} << 29;
        const PlanCost without = cost_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}}));
        EXPECT_NEAR(sent(cost.ranks[0]) - sent(without.ranks[0]), expected / since, 1.0)
            << to_string(form) << ", τ " << every;
      }
    }
  }
}

/// A sync costs its exchanges and its work, over τ.
TEST(MeshCost, SyncsCountByTheStep) {
  spec::Config config = large_tables();
  config.mesh = {.groups = 2, .sync = SyncForm::kDense};
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 4}});
  const PlanCost each = cost_on(config, cluster);
  const auto part = static_cast<std::size_t>(StepPart::kSyncReplicas);
  // 2 tables, 100,000 rows of 64 floats and a statistic: to the other host and back, and averaged.
  const double bytes = 2.0 * 100'000 * (256 + 4);
  EXPECT_NEAR(each.exchanges[part], 2.0 * (0.5 * bytes / 1e8 + 1e-5), 1e-9);
  EXPECT_NEAR(each.parts[part] - each.exchanges[part], 2.0 * bytes / 1e10, 1e-9);
  EXPECT_NEAR(each.sync_s, each.parts[part], 1e-12);
  config.mesh.sync_every = 8;
  const PlanCost eighth = cost_on(config, cluster);
  EXPECT_NEAR(eighth.parts[part], each.parts[part] / 8.0, 1e-12);
  EXPECT_NEAR(eighth.sync_s, each.sync_s, 1e-12);
  EXPECT_LT(eighth.step_s, each.step_s);
}

TEST(MeshCost, GroupsInsideHostsSendNoVectorsAcross) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 4}});
  const auto across = [&](std::int64_t length, MeshLayout layout) {
    spec::Config config =
        cut_config({{.rows = 8000, .dim = 32, .length = length}, {.rows = 4000}}, 4096);
    config.mesh = {.groups = 2, .layout = layout};
    return cost_on(config, cluster).ranks[0].sent[2];
  };
  EXPECT_EQ(across(1, MeshLayout::kLocalAllToAll), across(30, MeshLayout::kLocalAllToAll));
  EXPECT_LT(across(1, MeshLayout::kLocalAllReduce), across(30, MeshLayout::kLocalAllReduce));
}

TEST(MeshCost, TablesGrowWithGroupsAndBuffersShrink) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 1, .ranks = 8}});
  spec::Config config =
      cut_config(std::vector<Use>(3, Use{.rows = 64'000, .dim = 32, .length = 10}), 8192);
  PlanCost before = cost_on(config, cluster);
  for (const std::int64_t groups : {2, 4, 8}) {
    config.mesh = {.groups = groups};
    const PlanCost cost = cost_on(config, cluster);
    ASSERT_EQ(cost.ranks.size(), static_cast<std::size_t>(8 / groups));
    EXPECT_EQ(cost.ranks[0].table_bytes, 2 * before.ranks[0].table_bytes) << groups;
    EXPECT_LT(cost.ranks[0].buffer_bytes, before.ranks[0].buffer_bytes) << groups;
    EXPECT_EQ(cost.ranks[0].sample_bytes, before.ranks[0].sample_bytes) << groups;
    before = cost;
  }
  // Across hosts rows of the others are received: half of a shard, or what is touched of it.
  const topology::Cluster two = cluster_of_meshes({{.count = 2, .ranks = 4}});
  config.mesh = {.groups = 2};
  const double dense = cost_on(config, two).ranks[0].buffer_bytes;
  config.mesh.sync = SyncForm::kTouched;
  const double touched = cost_on(config, two).ranks[0].buffer_bytes;
  EXPECT_LT(touched, dense);
  config.mesh.sync = SyncForm::kDense;
  EXPECT_LT(cost_on(config, cluster).ranks[0].buffer_bytes, dense) << "read where they are";
}

TEST(MeshSearch, TakesTheLayoutThatTheInequalitySays) {
  for (const bool small : {true, false}) {
    spec::Config config = small ? small_tables() : large_tables();
    config.mesh.groups = 2;
    const SearchResult result = search_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}}));
    const MeshOption& chosen = result.meshes[result.chosen];
    EXPECT_EQ(chosen.rule.holds(), small);
    EXPECT_EQ(result.best().plan.layout,
              small ? MeshLayout::kLocalAllToAll : MeshLayout::kLocalAllReduce);
    EXPECT_EQ(result.best().plan.layout, chosen.layout);
    EXPECT_DOUBLE_EQ(result.best().cost.step_s, chosen.step_s);
    EXPECT_EQ(result.best().plan.sync, SyncForm::kAuto) << "the configuration's";
    EXPECT_EQ(result.best().plan.sync_every, 0);
    // W by hand: rows with their statistic, of all ranks of a group.
    const double rows = small ? 4 * 1000 : 2 * 400'000;
    EXPECT_NEAR(chosen.rule.replica_bytes, rows * 260, 1e-6 * rows);
    // What is pinned stays.
    config.mesh.layout = small ? MeshLayout::kLocalAllReduce : MeshLayout::kLocalAllToAll;
    const SearchResult pinned = search_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}}));
    EXPECT_EQ(pinned.best().plan.layout, config.mesh.layout);
    EXPECT_GT(pinned.best().cost.step_s, result.best().cost.step_s);
  }
}

/// A schedule that hides exchanges takes another plan than the one of the shortest step of sync.
TEST(MeshSearch, TheChosenMeshHasTheFiguresOfThePlanThatIsTaken) {
  spec::Config open = testing::make_config({{1000, 32, 7}, {12'000, 32, 6}});
  open.mesh.groups = 0;
  spec::Config two = testing::make_config({{1000, 32, 5}, {8000, 64, 7}, {14'000, 48, 3}}, 16384);
  two.mesh.groups = 2;
  for (const spec::Config& config : {open, two}) {
    const std::int64_t hosts = config.mesh.groups == 0 ? 3 : 4;
    const SearchResult result =
        search_on(config, cluster_of_meshes({{.count = hosts, .ranks = 1}}));
    const Proposal& best = result.best();
    const MeshOption& chosen = result.meshes[result.chosen];
    EXPECT_TRUE(std::ranges::any_of(result.proposals, [&](const Proposal& one) {
      return one.fits() && one.cost.step_s < best.cost.step_s;
    })) << hosts;
    EXPECT_EQ(best.plan.groups, chosen.groups);
    EXPECT_DOUBLE_EQ(best.cost.step_s, chosen.step_s);
    EXPECT_TRUE(chosen.asked && chosen.fits);
  }
}

TEST(MeshSearch, ChoosesTheFormBeforeAPlanIsTrainedWith) {
  spec::Config config = large_tables();
  config.mesh = {.groups = 2, .sync = SyncForm::kAuto};
  const SearchResult result = search_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}}));
  const spec::Plan& plan = result.best().plan;
  EXPECT_TRUE(plan.sync == SyncForm::kTouched || plan.sync == SyncForm::kGradients)
      << to_string(plan.sync);
  EXPECT_EQ(plan.sync_every, 0) << "1, as configured";
  for (const MeshOption& one : result.meshes) {
    EXPECT_GE(one.step_s, result.best().cost.step_s * (1.0 - 1e-12)) << to_string(one.sync);
  }
  EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "p.yaml"), plan);
  EXPECT_NO_THROW(check_plan(plan, config));
  // A job has it as if it had been asked for.
  const spec::Mesh mesh = spec::mesh_of(config.mesh, plan);
  EXPECT_EQ(mesh.sync, plan.sync);
  EXPECT_EQ(mesh.sync_every, 1);
  config.mesh.sync = SyncForm::kDense;
  EXPECT_NE(message_of([&] { check_plan(plan, config); }).find("set mesh.sync=auto"),
            std::string::npos);
  // A scale is for averages.
  config.mesh.sync = SyncForm::kAuto;
  config.mesh.moment_scale = 2.0;
  EXPECT_EQ(search_on(config, cluster_of_meshes({{.count = 2, .ranks = 4}})).best().plan.sync,
            SyncForm::kTouched);
}

TEST(MeshSearch, ACodecOfSyncsIsForAverages) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 4}});
  for (spec::Config config : {small_tables(), large_tables()}) {
    config.mesh = {.groups = 2, .sync = SyncForm::kAuto};
    config.codecs.sync = CodecFormat::kInt8;
    const SearchResult result = search_on(config, cluster);
    for (const MeshOption& one : result.meshes) {
      EXPECT_EQ(one.asked, one.sync != SyncForm::kGradients) << to_string(one.sync);
    }
    spec::Plan plan = result.best().plan;
    EXPECT_NE(plan.sync, SyncForm::kGradients);
    EXPECT_NO_THROW(check_plan(plan, config));
    // A plan of a job without the codec.
    plan.sync = SyncForm::kGradients;
    EXPECT_EQ(message_of([&] { check_plan(plan, config); }),
              "codecs.sync is for replicas that are averaged, and with the plan's sync gradients "
              "there are none; set codecs.sync=fp32, or make a new plan");
    config.codecs.sync = CodecFormat::kFp32;
    EXPECT_NO_THROW(check_plan(plan, config));
    config.mesh.sync_every = 4;
    EXPECT_EQ(message_of([&] { check_plan(plan, config); }),
              "mesh.sync_every is 4, and with sync gradients of the plan replicas never part; make "
              "a new plan, or set mesh.sync_every=1");
  }
}

TEST(MeshSearch, SyncsAsOftenAsTheyAreCheap) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 4}});
  spec::Config config = cut_config(std::vector<Use>(2, Use{.rows = 300'000, .dim = 64}), 4096);
  config.collectives = spec::Collectives::kFlat;
  config.mesh = {.groups = 2, .layout = MeshLayout::kLocalAllReduce, .sync_every = 0};
  const auto share = [](const MeshOption& one) {
    const double syncs = one.sync_s / static_cast<double>(one.sync_every);
    return syncs / (one.step_s - syncs);
  };
  const SearchResult result = search_on(config, cluster);
  const MeshOption& chosen = result.meshes[result.chosen];
  EXPECT_EQ(result.best().plan.sync_every, chosen.sync_every);
  EXPECT_GT(chosen.sync_every, 1);
  EXPECT_LE(share(chosen), 0.1);
  config.mesh.sync_every = chosen.sync_every / 2;
  const SearchResult oftener = search_on(config, cluster);
  EXPECT_GT(share(oftener.meshes[oftener.chosen]), 0.1);
  // Evaluations stay at syncs.
  config.mesh.sync_every = 0;
  config.train.eval_every = 2;
  const spec::Plan plan = search_on(config, cluster).best().plan;
  EXPECT_EQ(plan.sync_every, 2);
  EXPECT_NO_THROW(check_plan(plan, config));
  config.train.eval_every = 3;
  EXPECT_NE(message_of([&] { check_plan(plan, config); }).find("train.eval_every is 3"),
            std::string::npos);
}

TEST(MeshSearch, ChoosesGroups) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 4, .ranks = 2}}, 1e7);
  spec::Config config = small_tables();
  config.collectives = spec::Collectives::kFlat;
  config.mesh = {.groups = 0, .sync = SyncForm::kAuto, .sync_every = 0};
  const SearchResult result = search_on(config, cluster);
  EXPECT_GT(result.best().plan.groups, 1) << "what crosses is dear";
  EXPECT_EQ(result.best().plan.world(), 8);
  std::vector<std::int64_t> groups;
  for (const MeshOption& one : result.meshes) {
    groups.push_back(one.groups);
    EXPECT_GE(one.step_s, result.best().cost.step_s * (1.0 - 1e-12));
  }
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  EXPECT_EQ(groups, (std::vector<std::int64_t>{1, 2, 4, 8}));
  // Tables that a group has no room for.
  topology::Cluster tight = cluster;
  tight.memory.ddr.value = 40e6;
  spec::Config large = cut_config({{.rows = 400'000, .dim = 64, .length = 20}}, 4096);  // 104 MB
  large.mesh = config.mesh;
  const SearchResult fitting = search_on(large, tight);
  ASSERT_TRUE(fitting.best().fits());
  EXPECT_LE(fitting.best().plan.groups, 2);
  EXPECT_FALSE(fitting.meshes.back().fits);
  // A table that is pinned to a rank leaves those groups that have it.
  spec::Config pinned = small_tables();
  pinned.mesh = config.mesh;
  pinned.tables[0].sharding = Sharding::kTableWise;
  pinned.tables[0].rank = 3;
  for (const MeshOption& one : search_on(pinned, cluster).meshes) {
    EXPECT_LE(one.groups, 2);
  }
  config.mesh.groups = 3;
  EXPECT_EQ(message_of([&] { search_on(config, cluster); }),
            "mesh.groups: 3 groups do not divide 8 ranks; set 2 or 4");
}

TEST(MeshSearch, EveryProposalIsAPlan) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 3}}, 1e7);
  for (const SyncForm form : {SyncForm::kAuto, SyncForm::kDense, SyncForm::kGradients}) {
    spec::Config config = testing::make_config(
        {{.rows = 10}, {.rows = 5000, .dim = 48, .length = 9}, {.rows = 20'000, .length = 3}});
    config.mesh = {.groups = 0, .sync = form};
    const SearchResult result = search_on(config, cluster);
    for (const Proposal& one : result.proposals) {
      EXPECT_NO_THROW(check_plan(one.plan, config); check_pins(one.plan, config)) << one.name;
      EXPECT_EQ(one.plan.world(), 6) << one.name;
    }
    EXPECT_EQ(search_on(config, cluster).best().plan, result.best().plan);
    for (const std::int64_t groups : {2, 3, 6}) {
      config.mesh.groups = groups;
      EXPECT_EQ(search_on(config, cluster).best().plan.groups, groups);
    }
  }
}

TEST(MeshSearch, SaysHowFewGroupsWouldFit) {
  topology::Cluster cluster = cluster_of_meshes({{.count = 1, .ranks = 8}});
  cluster.memory.ddr.value = 40e6;
  spec::Config config = cut_config({{.rows = 400'000, .dim = 64}}, 512);  // 104 MB
  config.mesh = {.groups = 4};
  const SearchResult result = search_on(config, cluster);
  ASSERT_FALSE(result.best().fits());
  EXPECT_NE(message_of([&] {
              refuse(result, config, cluster, make_workload(config));
            }).find("mesh.groups: 2"),
            std::string::npos);
  // Where the table says what the mesh does, too.
  config.tables[0].groups = 4;
  EXPECT_NE(message_of([&] {
              refuse(search_on(config, cluster), config, cluster, make_workload(config));
            }).find("mesh.groups: 2 and no groups of tables"),
            std::string::npos);
}

TEST(MeshReport, SaysWhatWasChosenAndWhy) {
  const topology::Cluster cluster = cluster_of_meshes({{.count = 2, .ranks = 4}});
  spec::Config config = small_tables();
  config.mesh.groups = 2;
  const Workload workload = make_workload(config);
  const SearchResult result = search(config, cluster, workload);
  const PlanReport report{config, cluster, workload, result};
  for (const std::string& text : {to_text(report), to_html(report)}) {
    for (const char* says :
         {"2 groups of 4 ranks, local_all_to_all, sync dense every 1 step", "local_all_reduce",
          "gradients", "not asked for", "chosen", "τ g A / 2", "sync_replicas",
          "local_all_to_all sends less between hosts"}) {
      EXPECT_NE(text.find(says), std::string::npos) << says << " in\n" << text;
    }
  }
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["ranks"].size(), 8U) << "of the world";
  EXPECT_EQ(json["ranks"][5]["group"].get<int>(), 1);
  EXPECT_EQ(json["ranks"][5]["place"].get<int>(), 1);
  EXPECT_EQ(json["mesh"]["layout"].get<std::string>(), "local_all_to_all");
  EXPECT_EQ(json["meshes"].size(), 6U) << "two layouts of three forms";
  EXPECT_TRUE(json["meshes"][0]["rule"]["local_all_to_all"].get<bool>());
  // Of one group nothing is said.
  config.mesh.groups = 1;
  const SearchResult one = search(config, cluster, workload);
  EXPECT_EQ(to_text({config, cluster, workload, one}).find("Replica groups"), std::string::npos);
}

}  // namespace
}  // namespace weft::planner
