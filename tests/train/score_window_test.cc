// The AUC of a window of training: over the newest whole steps, equal on any number of ranks.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/train/trainer.h"

namespace weft::train {
namespace {

/// Trains an epoch of seven steps of 61 samples in one window; at most `scores` of them are kept
/// for its AUC.
double window_auc(int ranks, std::int64_t scores) {
  const spec::Config config = make_job({"train.log_every=1000000", "data.synthetic.samples=427"});
  const spec::Plan plan = planner::make_plan(config, ranks);
  double auc = 0.0;
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({});
    Engine engine(config, plan, world, *device);
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, {},
                        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts));
    TrainerOptions options;
    options.window_scores = scores;
    Trainer trainer(config, engine, loader, options);
    trainer.run();
    Summary summary;
    trainer.report(summary);
    if (world.rank() == 0) {
      EXPECT_EQ(summary.window_samples, 427);
      auc = summary.window.front().auc;
    }
  });
  return auc;
}

TEST(WindowAuc, IsThatOfTheNewestStepsOnAnyNumberOfRanks) {
  const double all = window_auc(1, metrics::kWindowScores);
  const double newest = window_auc(1, 130);  // two steps
  EXPECT_FALSE(std::isnan(newest));
  EXPECT_NE(newest, all);
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(window_auc(ranks, 130), newest) << ranks << " ranks";
    EXPECT_EQ(window_auc(ranks, metrics::kWindowScores), all) << ranks << " ranks";
  }
  EXPECT_EQ(window_auc(2, 122), newest) << "whole steps";
  EXPECT_NE(window_auc(2, 121), newest) << "of which one fits";
  EXPECT_EQ(window_auc(2, 1), window_auc(3, 121)) << "at least one";
}

}  // namespace
}  // namespace weft::train
