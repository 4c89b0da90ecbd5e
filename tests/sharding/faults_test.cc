// One of 64 ranks on hosts of 8 fails before any kind of exchange of a step of tables: ids, vectors
// and gradients through relays, copied and hot rows with their owners' sums, row statistics. Two of
// three kinds, and all with WEFT_ALL_FAULTS=1 in the environment.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/expect_fault.h"
#include "tests/sharding/sparse_run.h"
#include "weft/base/hash.h"

namespace weft::sharding {
namespace {

using comm::testing::Fault;
using comm::testing::FaultKind;
using comm::testing::FaultOutcome;

constexpr int kRanksOfFaults = 64;

/// All that travels in a step: a table that all hold, one cut by columns whose rows have a
/// statistic, one cut by rows with hot rows.
spec::Config job() {
  spec::Config config =
      make_config(spec::Sharding::kRowWise, make_optimizer(SparseOptimizerKind::kRowWiseAdagrad));
  config.tables[0].sharding = spec::Sharding::kDataParallel;
  config.tables[1].sharding = spec::Sharding::kColumnWise;
  return config;
}

spec::Plan plan_on_hosts(const spec::Config& config, const std::vector<int>& hosts) {
  planner::RankLayout layout{.ranks = kRanksOfFaults};
  layout.hosts.assign(hosts.begin(), hosts.end());
  spec::Plan plan = planner::make_plan(config, layout);
  plan.parts = kRanksOfFaults;
  plan.collectives = {.ids = spec::CollectiveForm::kHierarchical,
                      .vectors = spec::CollectiveForm::kHierarchical,
                      .dense = spec::CollectiveForm::kHierarchical};
  plan.tables[2].hot = {{0, 5}};
  return plan;
}

FaultOutcome run_step(const Fault& fault) {
  const std::vector<int> hosts = comm::testing::hosts_of_sizes(std::vector<int>(8, 8));
  const spec::Config config = job();
  const spec::Plan plan = plan_on_hosts(config, hosts);
  RunOptions options{
      .ranks = kRanksOfFaults, .sizes = {2 * kRanksOfFaults}, .plan = &plan, .hosts = hosts};
  options.parts = kRanksOfFaults;
  options.threads = 1;
  RunResult result;
  return comm::testing::run_with(fault, hosts,
                                 [&](comm::Communicator& world, comm::testing::FaultyRun& run) {
                                   run.arm(world.rank());
                                   run_on(world, config, options, result);
                                   Context ctx;
                                   world.barrier(ctx);
                                 });
}

/// How many exchanges of each name a rank has.
std::map<std::string, int> exchanges_of_a_rank() {
  const FaultOutcome whole = run_step({.kind = FaultKind::kNone, .rank = 37});
  EXPECT_EQ(whole.seen, std::vector<std::string>(kRanksOfFaults));
  std::map<std::string, int> counts;
  for (const comm::testing::NamedExchange& one : whole.exchanges) {
    // The set-up is tested with the collectives themselves.
    counts[one.name] += one.name.starts_with("split") ? 0 : 1;
  }
  std::erase_if(counts, [](const auto& one) { return one.second == 0; });
  return counts;
}

TEST(StepFaults, OneOfManyRanksIsNamedBeforeAnyKindOfExchange) {
  const std::map<std::string, int> counts = exchanges_of_a_rank();
  for (const char* group : {"ids", "ids.host4", "vectors", "vectors.host4", "rows", "world"}) {
    const std::string wanted = " of group '" + std::string(group) + "'";
    EXPECT_TRUE(std::any_of(counts.begin(), counts.end(),
                            [&](const auto& one) { return one.first.ends_with(wanted); }))
        << "no exchange" << wanted << ": " << ::testing::PrintToString(counts);
  }
  std::uint64_t seed = 1;
  int turn = 0;
  for (const auto& [name, count] : counts) {
    seed = mix64(seed + 1);
    if (turn % 3 == 2 && !comm::testing::all_faults()) {
      ++turn;
      continue;
    }
    const Fault fault{.kind = turn++ % 3 == 0 ? FaultKind::kThrows : FaultKind::kStops,
                      .rank = 37,
                      .before = static_cast<int>(seed % static_cast<std::uint64_t>(count)),
                      .name = name};
    expect_named(fault, run_step(fault), name);
  }
}

}  // namespace
}  // namespace weft::sharding
