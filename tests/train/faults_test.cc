// A whole job on 64 ranks of which one starts differently, or fails before any kind of exchange.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/expect_fault.h"
#include "tests/train/job_fixture.h"
#include "weft/base/hash.h"
#include "weft/checkpoint/agree.h"
#include "weft/train/agreement.h"

namespace weft::train {
namespace {

using comm::testing::Fault;
using comm::testing::FaultKind;
using comm::testing::FaultOutcome;

constexpr int kRanksOfFaults = 64;
constexpr int kOdd = 37;
constexpr int kTurns = 6;  // one of so many kinds of exchange; all with WEFT_ALL_FAULTS=1

std::vector<int> hosts_of_eight() {
  return comm::testing::hosts_of_sizes(std::vector<int>(8, 8));
}

JobOptions small_job(const std::vector<std::string>& more = {}) {
  JobOptions options = job_options(make_job(
      joined({"batch_size=128", "numerics.parts=64", "collectives=hierarchical", "train.steps=2",
              "data.synthetic.eval_samples=0", "tables.one.sharding=data_parallel",
              "tables.item.sharding=row_wise", "tables.rare.sharding=table_row_wise"},
             more)));
  options.threads = 1;
  return options;
}

/// What every rank is told, which must be one text with kComm.
std::string told_to_all(const std::function<void(comm::Communicator& world)>& body) {
  const FaultOutcome outcome = comm::testing::run_with(
      {}, hosts_of_eight(),
      [&](comm::Communicator& world, comm::testing::FaultyRun&) { body(world); });
  for (std::size_t rank = 0; rank < outcome.seen.size(); ++rank) {
    EXPECT_EQ(outcome.seen[rank], outcome.seen[0]) << "rank " << rank;
    EXPECT_EQ(outcome.codes[rank], static_cast<int>(ErrorCode::kComm)) << "rank " << rank;
    EXPECT_EQ(outcome.origins[rank], kOdd) << "rank " << rank;
  }
  return outcome.seen[0];
}

TEST(AgreementOfMany, EveryDifferenceNamesTheRank) {
  const JobIdentity all{.config_yaml = "a", .plan_yaml = "b", .data = 7, .vocabularies = "c"};
  JobIdentity config = all;
  config.config_yaml = "other";
  JobIdentity plan = all;
  plan.plan_yaml = "other";
  JobIdentity data = all;
  data.data = 8;
  JobIdentity vocabularies = all;
  vocabularies.vocabularies = "other";
  JobIdentity resume = all;
  resume.resumes = true;
  for (const auto& [what, other] :
       {std::pair{"configuration", config}, std::pair{"plan", plan}, std::pair{"data", data},
        std::pair{"vocabularies", vocabularies}, std::pair{"resume", resume}}) {
    const std::string told = told_to_all([&](comm::Communicator& world) {
      Context ctx;
      agree_on_job(world, ctx, world.rank() == kOdd ? other : all);
    });
    EXPECT_TRUE(told.starts_with("before step 0: rank 37 differs from rank 0 in its " +
                                 std::string(what) + " "))
        << told;
  }
}

TEST(AgreementOfMany, AnErrorOfOneRanksWorkIsEverybodys) {
  const FaultOutcome outcome = comm::testing::run_with(
      {}, hosts_of_eight(), [&](comm::Communicator& world, comm::testing::FaultyRun&) {
        Context ctx;
        checkpoint::agree(world, ctx, [&](WorkProgress&) {
          if (world.rank() == kOdd) {
            fail(ErrorCode::kIo, "no space");
          }
        });
      });
  EXPECT_EQ(outcome.seen, std::vector<std::string>(kRanksOfFaults, "no space"));
  EXPECT_EQ(outcome.origins, std::vector<int>(kRanksOfFaults, kOdd));
}

TEST(JobOfMany, AnotherConfigurationOnOneRankIsNamed) {
  const JobOptions all = small_job();
  const JobOptions other = small_job({"train.steps=3"});
  const std::string told = told_to_all(
      [&](comm::Communicator& world) { run_train(world, world.rank() == kOdd ? other : all); });
  EXPECT_TRUE(told.starts_with("before step 0: rank 37 differs from rank 0 in its configuration "))
      << told;
}

FaultOutcome run_job(const Fault& fault) {
  const JobOptions options = small_job();
  return comm::testing::run_with(fault, hosts_of_eight(),
                                 [&](comm::Communicator& world, comm::testing::FaultyRun& run) {
                                   run.arm(world.rank());
                                   run_train(world, options);
                                   Context ctx;
                                   world.barrier(ctx);
                                 });
}

TEST(JobOfMany, ARankThatFailsBeforeAnyKindOfExchangeIsNamed) {
  const FaultOutcome whole = run_job({.kind = FaultKind::kNone, .rank = kOdd});
  ASSERT_EQ(whole.seen, std::vector<std::string>(kRanksOfFaults));
  std::map<std::string, int> counts;
  for (const comm::testing::NamedExchange& one : whole.exchanges) {
    ++counts[one.name];
  }
  for (const char* group : {"control", "dense", "dense.host4", "ids", "vectors", "rows"}) {
    const std::string wanted = " of group '" + std::string(group) + "'";
    EXPECT_TRUE(std::any_of(counts.begin(), counts.end(),
                            [&](const auto& one) { return one.first.ends_with(wanted); }))
        << "no exchange" << wanted << ": " << ::testing::PrintToString(counts);
  }
  std::uint64_t seed = 3;
  int turn = 0;
  for (const auto& [name, count] : counts) {
    if (name.starts_with("split")) {
      continue;
    }
    seed = mix64(seed + 1);
    if (turn % kTurns != 0 && !comm::testing::all_faults()) {
      ++turn;
      continue;
    }
    const Fault fault{.kind = turn++ % (2 * kTurns) == 0 ? FaultKind::kStops : FaultKind::kThrows,
                      .rank = kOdd,
                      .before = static_cast<int>(seed % static_cast<std::uint64_t>(count)),
                      .name = name};
    expect_named(fault, run_job(fault), name);
  }
}

}  // namespace
}  // namespace weft::train
