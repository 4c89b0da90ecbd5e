// Two steps in flight: counts, ids and lookup of a step are issued while the step before computes.
// The lookup waits for the update of rows because it declares that it reads them; with that
// declaration left out it would see old rows.
#include "weft/pipeline/schedule.h"

#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/planner/place.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

constexpr std::int64_t kSteps = 6;
constexpr int kRanks = 3;

using pipeline::Issuer;
using pipeline::StreamRole;

/// What of a batch comes before its vectors are sent.
void issue_ahead(Issuer& to, std::int64_t batch, StreamRole on) {
  to.issue({StepPart::kExchangeCounts, batch}, on);
  to.issue({StepPart::kExchangeIds, batch}, on);
  to.issue({StepPart::kLookup, batch}, on);
}

/// The rest of step `now`, with the beginning of step `next` (or -1) beside its dense update and
/// whatever the streams have not done yet.
void issue_rest(Issuer& to, std::int64_t now, std::int64_t next) {
  using enum StreamRole;
  to.issue({StepPart::kLoad, now}, kCompute);
  to.issue({StepPart::kOutputDist, now}, kCompute);
  to.issue({StepPart::kForwardBackward, now}, kCompute);
  to.issue({StepPart::kWeightGradients, now}, kCompute);
  to.issue({StepPart::kReduce, now}, kDense);
  to.issue({StepPart::kExchangeReport, now}, kCompute);
  to.issue({StepPart::kCoalesce, now}, kCompute);
  to.issue({StepPart::kGradDist, now}, kCompute);
  to.issue({StepPart::kUpdateRows, now}, kCompute);
  if (to.averages_behind(now)) {
    to.issue({StepPart::kSyncReplicas, now}, kSync);
  }
  if (next >= 0) {
    issue_ahead(to, next, kIds);
  }
  to.issue({StepPart::kUpdateDense, now}, kCompute);
}

enum class Flight { kOneStep, kTwoSteps };

checkpoint::StateHash train_steps(const spec::Config& config,
                                  Flight flight,
                                  const EngineOptions& given) {
  checkpoint::StateHash hash;
  comm::run_local(kRanks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, kRanks);
    const auto device =
        make_device({.kind = config.train.device == spec::DeviceChoice::kCheck ? DeviceKind::kCheck
                                                                               : DeviceKind::kCpu,
                     .threads = 1});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), kRanks, plan.parts));
    EngineOptions options = given;
    if (flight == Flight::kTwoSteps) {
      options.batches_in_flight = 2;
      options.beside = {StreamRole::kCompute, StreamRole::kIds, StreamRole::kDense};
    }
    std::array<data::Batch, 2> batches;  // which stages still use after an error
    Engine engine(config, plan, world, *device, options);
    if (flight == Flight::kOneStep) {
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        ASSERT_TRUE(loader.next(batches[0]));
        engine.train_step({.batch = batches[0], .step = step});
      }
    } else {
      ASSERT_TRUE(loader.next(batches[0]));
      engine.begin(0, {.batch = batches[0], .step = 1});
      issue_ahead(engine.issuer(), 0, StreamRole::kIds);
      for (std::int64_t step = 1; step <= kSteps; ++step) {
        const std::int64_t now = (step - 1) % 2;
        const std::int64_t next = step < kSteps ? 1 - now : -1;
        if (next >= 0) {
          data::Batch& batch = batches[static_cast<std::size_t>(next)];
          ASSERT_TRUE(loader.next(batch));
          engine.begin(next, {.batch = batch, .step = step + 1});
        }
        issue_rest(engine.issuer(), now, next);
        engine.finish(now);
      }
    }
    const checkpoint::StateHash own = engine.hash();
    if (world.rank() == 0) {
      hash = own;
    }
  });
  return hash;
}

std::vector<std::vector<std::string>> jobs() {
  return {{},
          {"train.device=check"},
          {"tables.item.sharding=row_wise", "tables.item.pooled_at=sample"},
          {"codecs.forward=fp16", "codecs.backward=bf16", "codecs.rounding=stochastic"}};
}

TEST(TwoStepsInFlight, GiveTheHashOfOne) {
  for (const std::vector<std::string>& overrides : jobs()) {
    const spec::Config config = make_job(overrides);
    const checkpoint::StateHash expected = train_steps(config, Flight::kOneStep, {});
    EXPECT_EQ(train_steps(config, Flight::kTwoSteps, {}), expected);
    const EngineOptions late{.delays = {{StepPart::kUpdateRows, std::chrono::milliseconds(20)},
                                        {StepPart::kLookup, std::chrono::milliseconds(5)}}};
    EXPECT_EQ(train_steps(config, Flight::kTwoSteps, late), expected) << "updates of rows are late";
  }
}

TEST(TwoStepsInFlight, WithoutTheReadOfRowsTheHashDiffers) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point";
#endif
  const spec::Config config = make_job();
  const EngineOptions broken{.left_out = {{StepPart::kLookup, pipeline::Resource::kRows}},
                             .delays = {{StepPart::kUpdateRows, std::chrono::milliseconds(300)}}};
  EXPECT_NE(train_steps(config, Flight::kTwoSteps, broken),
            train_steps(config, Flight::kOneStep, {}));
}

}  // namespace
}  // namespace weft::train
