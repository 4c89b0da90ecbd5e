// A job before its first step, over many ranks: one plan for all, few messages of a rank, and one
// error for all.
#include <atomic>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/comm/communicator.h"
#include "weft/comm/local/local.h"
#include "weft/train/agreement.h"
#include "weft/train/plan_choice.h"

namespace weft::train {
namespace {

constexpr int kStarted = 64;
constexpr int kWayDown = 14;  // messages of a rank in one way through two levels of seven

spec::Config started_job() {
  return make_job(joined(all_tables("sharding", "row_wise"), {"numerics.parts=64"}));
}

std::int64_t sent(const comm::Communicator& comm) {
  return comm.traffic().total().messages;
}

TEST(Start, ThePlanIsThatOfRank0) {
  const TemporaryFolder folder;
  const spec::Plan given = planner::make_plan(started_job(), kStarted);
  std::ofstream(folder.path() + "/plan.yaml") << spec::plan_to_yaml(given);
  std::atomic<int> equal = 0;
  comm::run_local(kStarted, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Context ctx;
    spec::Config config = started_job();
    config.numerics.parts = 0;
    // Only rank 0 reads it: the others name a file that is not there.
    const std::string file = world.rank() == 0 ? "/plan.yaml" : "/none.yaml";
    const std::int64_t before = sent(world);
    PlanRequest request;
    request.plan_file = folder.path() + file;
    const spec::Plan plan = choose_plan(request, world, ctx, config);
    // An outcome up and down, a length and a text down.
    EXPECT_LE(sent(world) - before, 4 * kWayDown) << "rank " << world.rank();
    EXPECT_EQ(config.numerics.parts, kStarted);
    equal += plan == given ? 1 : 0;
  });
  EXPECT_EQ(equal, kStarted);
}

TEST(Start, APlanThatIsRefusedEndsAllWithRank0sReason) {
  std::atomic<int> named = 0;
  comm::run_local(kStarted, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Context ctx;
    spec::Config config = started_job();
    PlanRequest request;
    request.plan_file = "/no/such/plan.yaml";
    try {
      choose_plan(request, world, ctx, config);
    } catch (const Error& error) {
      const bool says = std::string(error.what()).find("/no/such/plan.yaml") != std::string::npos;
      named += says && error.code() == ErrorCode::kConfig && error.origin_rank() == 0 ? 1 : 0;
    }
  });
  EXPECT_EQ(named, kStarted);
}

TEST(Start, AgreementTakesFewMessages) {
  comm::run_local(kStarted, {.timeout_s = 60}, [](comm::Communicator& world) {
    Context ctx;
    std::int64_t before = sent(world);
    agree_on_job(world, ctx, {.config_yaml = "the same"});
    EXPECT_LE(sent(world) - before, 2 * kWayDown) << "rank " << world.rank();
    before = sent(world);
    agree_on_target(world, ctx, started_job());
    EXPECT_LE(sent(world) - before, 2 * kWayDown) << "rank " << world.rank();
  });
}

TEST(Start, AgreementNamesTheOneRankThatDiffers) {
  for (const int other : {0, 8, 21, kStarted - 1}) {
    std::atomic<int> named = 0;
    comm::run_local(kStarted, {.timeout_s = 60}, [&](comm::Communicator& world) {
      Context ctx;
      try {
        agree_on_job(world, ctx,
                     {.config_yaml = "the same",
                      .plan_yaml = world.rank() == other ? "another" : "the same"});
      } catch (const Error& error) {
        const std::string start = "before step 0: rank " + std::to_string(other) + " differs";
        const std::string what = error.what();
        named += what.starts_with(start) && what.find("in its plan") != std::string::npos &&
                         error.origin_rank() == other
                     ? 1
                     : 0;
      }
    });
    EXPECT_EQ(named, kStarted) << "rank " << other;
  }
}

}  // namespace
}  // namespace weft::train
