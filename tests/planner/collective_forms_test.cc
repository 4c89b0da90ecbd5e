// Flat or hierarchical: chosen by the predicted step, unless asked for.
#include "weft/planner/collective_forms.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "tests/topology/small_cluster.h"
#include "weft/planner/place.h"
#include "weft/planner/shard_loads.h"

namespace weft::planner {
namespace {

using spec::CollectiveForm;

struct Chosen {
  spec::CollectiveForms forms;
  double step_s = 0.0;
  double flat_s = 0.0;
  double network_bytes = 0.0;
  double flat_network_bytes = 0.0;
  std::int64_t bytes = 0;  ///< of the rank with most
  std::int64_t flat_bytes = 0;
  std::int64_t capacity = 0;
};

std::int64_t most_bytes(const PlanCost& cost) {
  std::int64_t most = 0;
  for (const RankCost& rank : cost.ranks) {
    most = std::max(most, rank.bytes());
  }
  return most;
}

double network_bytes(const PlanCost& cost) {
  double sum = 0.0;
  for (const RankCost& rank : cost.ranks) {
    sum += rank.sent[2];
  }
  return sum;
}

Chosen choose(const topology::Cluster& cluster,
              std::int64_t batch,
              spec::Collectives asked = spec::Collectives::kAuto) {
  spec::Config config =
      testing::make_config({{.rows = 1000}, {.rows = 2000}, {.rows = 3000}}, batch);
  config.collectives = asked;
  const Workload workload = make_workload(config);
  spec::Plan plan = make_plan(
      config, {.ranks = topology::ranks(cluster), .hosts = topology::rank_hosts(cluster)});
  const Estimator estimator(config, cluster, workload, plan.parts);
  ShardLoads loads(estimator.shape());
  plan.collectives = {};
  const PlanCost flat = estimator.cost(plan);
  const PlanCost cost = choose_forms(estimator, config, plan, loads);
  EXPECT_EQ(cost.step_s, estimator.cost(plan).step_s) << "the cost is the plan's";
  return {.forms = plan.collectives,
          .step_s = cost.step_s,
          .flat_s = flat.step_s,
          .network_bytes = network_bytes(cost),
          .flat_network_bytes = network_bytes(flat),
          .bytes = most_bytes(cost),
          .flat_bytes = most_bytes(flat),
          .capacity = estimator.capacity()};
}

topology::Cluster cluster_of(std::vector<topology::HostGroup> hosts, double network_latency_s) {
  topology::Cluster cluster = topology::small_cluster(std::move(hosts));
  cluster.links.network.latency.value = network_latency_s;
  return cluster;
}

TEST(CollectiveForms, DearMessagesAreSentOncePerPairOfHosts) {
  const Chosen chosen = choose(cluster_of({{2, 4}}, 1e-3), 512);
  EXPECT_EQ(chosen.forms.ids, CollectiveForm::kHierarchical);
  EXPECT_EQ(chosen.forms.vectors, CollectiveForm::kHierarchical);
  EXPECT_LT(chosen.step_s, chosen.flat_s);
}

/// Relays hold what they pass on, for which there must be room.
TEST(CollectiveForms, WithoutRoomForRelaysMessagesGoDirectly) {
  topology::Cluster cluster = cluster_of({{2, 4}}, 1e-3);
  const Chosen roomy = choose(cluster, 512);
  const double spare = static_cast<double>(roomy.capacity - roomy.flat_bytes - 1);
  cluster.memory.ddr.value -= spare / (1.0 - cluster.memory.reserve.value);
  const Chosen tight = choose(cluster, 512);
  ASSERT_GT(roomy.bytes, tight.capacity) << "what is chosen with room does not fit";
  EXPECT_LE(tight.bytes, tight.capacity);
}

TEST(CollectiveForms, FreeMessagesGoDirectly) {
  topology::Cluster cluster = cluster_of({{2, 4}}, 0.0);
  cluster.links.host.rank.value = 1e9;  // no faster inside: each stage costs what it saves nowhere
  const Chosen chosen = choose(cluster, 65536);
  EXPECT_EQ(chosen.forms.ids, CollectiveForm::kFlat);
  EXPECT_EQ(chosen.forms.vectors, CollectiveForm::kFlat);
}

TEST(CollectiveForms, TheConfigurationDecidesWhereItSays) {
  const topology::Cluster dear = cluster_of({{2, 4}}, 1e-3);
  const topology::Cluster cheap = cluster_of({{2, 4}}, 0.0);
  EXPECT_EQ(choose(dear, 512, spec::Collectives::kFlat).forms, spec::CollectiveForms{});
  const Chosen asked = choose(cheap, 65536, spec::Collectives::kHierarchical);
  EXPECT_EQ(asked.forms.ids, CollectiveForm::kHierarchical);
  EXPECT_EQ(asked.forms.vectors, CollectiveForm::kHierarchical);
  EXPECT_EQ(asked.forms.dense, CollectiveForm::kHierarchical);
  EXPECT_LT(asked.network_bytes, asked.flat_network_bytes) << "dense gradients cross less often";
}

TEST(CollectiveForms, AreFlatWhereHostsHaveOneRankOrThereIsOne) {
  for (const std::vector<topology::HostGroup>& hosts :
       std::vector<std::vector<topology::HostGroup>>{{{4, 1}}, {{1, 4}}}) {
    const Chosen chosen = choose(cluster_of(hosts, 1e-3), 512, spec::Collectives::kHierarchical);
    EXPECT_EQ(chosen.forms, spec::CollectiveForms{});
    EXPECT_EQ(chosen.step_s, chosen.flat_s);
  }
}

}  // namespace
}  // namespace weft::planner
