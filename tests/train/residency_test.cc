// Whatever the schedule, a batch holds rows from its fetch to its update, or to its end where
// nothing is updated: an evaluation, a step that is skipped, a batch that is begun and never
// trained on.
#include "weft/storage/residency.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sharding/watching_residency.h"
#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/planner/place.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

using Watchers = std::vector<std::unique_ptr<sharding::WatchingResidency>>;

/// Three steps and an evaluation behind the second, with a fourth batch begun where the schedule
/// looks ahead.
void train_watched(const spec::Config& config, comm::Communicator& world, Watchers& watchers) {
  const spec::Plan plan = planner::make_plan(config, world.size());
  const auto device = make_device({.threads = 1});
  const data::Vocabularies none;
  data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                      data::LoaderOptions::train(config, world.rank(), world.size(), plan.parts));
  std::array<data::Batch, 4> batches;
  for (data::Batch& batch : batches) {
    ASSERT_TRUE(loader.next(batch));
  }
  Engine engine(config, plan, world, *device, {.random_delay = std::chrono::microseconds(300)});
  for (embedding::TableShard* shard : engine.embeddings().shards()) {
    watchers.push_back(std::make_unique<sharding::WatchingResidency>());
    shard->set_residency(watchers.back().get());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    const StepInput next{.batch = batches[i + 1], .step = step + 1};
    engine.train_step({.batch = batches[i], .step = step}, &next);
    if (i == 1) {
      engine.eval_step({.batch = batches[0], .step = 0});
    }
  }
  engine.drain();
}

TEST(ResidencyOfATrainingJob, IsHeldFromFetchToUpdateWhateverTheSchedule) {
  for (const char* schedule : {"sync", "prefetch", "dbp", "fwp", "nested"}) {
    const spec::Config config = make_job({std::string("pipeline.schedule=") + schedule});
    comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
      Watchers watchers;
      train_watched(config, world, watchers);
      const bool fetches_ahead = std::string(schedule) != "sync" && std::string(schedule) != "fwp";
      for (const auto& watcher : watchers) {
        EXPECT_EQ(watcher->held(), 0) << schedule;
        EXPECT_EQ(watcher->most_held(), fetches_ahead ? 2 : 1) << schedule;
        std::vector<storage::Release> how;
        for (const sharding::WatchingResidency::Asked& one : watcher->released()) {
          how.push_back(one.how);
          if (how.size() < 5) {  // the fifth may not have been looked up
            EXPECT_GT(one.late_calls, 0) << schedule;
          }
        }
        using enum storage::Release;
        std::vector<storage::Release> expected = {kUpdated, kUpdated, kUnchanged, kUpdated};
        if (fetches_ahead) {
          expected.push_back(kUnchanged);  // the fourth batch, when the engine ended
        }
        EXPECT_EQ(how, expected) << schedule;
      }
    });
  }
}

TEST(ResidencyOfATrainingJob, IsReleasedWhereAStepIsNotApplied) {
  const spec::Config config = make_job({"pipeline.schedule=dbp", "debug.skip=[update]"});
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    Watchers watchers;
    train_watched(config, world, watchers);
    for (const auto& watcher : watchers) {
      EXPECT_EQ(watcher->held(), 0);
      ASSERT_EQ(watcher->released().size(), 5U);
      for (const sharding::WatchingResidency::Asked& one : watcher->released()) {
        EXPECT_EQ(one.how, storage::Release::kUnchanged);
      }
    }
  });
}

}  // namespace
}  // namespace weft::train
