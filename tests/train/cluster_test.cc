// Clustered training: one hash on any number of ranks that cut through no run, under any schedule,
// after a resume inside an epoch; evaluations see the samples as they were.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/planner/place.h"
#include "weft/trace/recorder.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

std::vector<std::string> clustered(int parts) {
  return {"pipeline.cluster_parts=" + std::to_string(parts), "numerics.parts=16",
          "data.synthetic.columns.item.repeat=0.8", "data.synthetic.columns.seen.repeat=0.8"};
}

/// Rows of all tables travel to the samples, once each: what clustering is for.
std::vector<std::string> fetched(const std::vector<std::string>& overrides) {
  return joined(joined(all_tables("sharding", "row_wise"), all_tables("pooled_at", "sample")),
                overrides);
}

TEST(Clustered, AnyNumberOfRanksGivesOneHash) {
  for (const int run : {2, 4}) {
    const Summary expected = train_on(1, job_options(make_job(clustered(run), 12)));
    for (const int ranks : {1, 2, 4, 8}) {
      if (16 / ranks % run == 0) {
        const std::string what = std::to_string(ranks) + " ranks, runs of " + std::to_string(run);
        expect_same(train_on(ranks, job_options(make_job(clustered(run), 12))), expected, what);
        expect_same(train_on(ranks, job_options(make_job(fetched(clustered(run)), 12))), expected,
                    what + ", fetched");
      }
    }
  }
}

TEST(Clustered, ThreadsScheduleAndDeviceChangeNothing) {
  const Summary expected = train_on(1, job_options(make_job(fetched(clustered(4)), 12)));
  for (const char* other : {"train.overlap=false", "train.device=check", "data.read_ahead=5"}) {
    JobOptions options = job_options(make_job(joined(fetched(clustered(4)), {other}), 12));
    options.threads = 3;
    expect_same(train_on(2, options), expected, other);
  }
}

TEST(Clustered, EveryLengthOfRunsHasBitsOfItsOwn) {
  const auto hash = [](int run) {
    return train_on(2, job_options(make_job(clustered(run), 12))).weights_hash;
  };
  EXPECT_NE(hash(0), hash(2));
  EXPECT_NE(hash(2), hash(8));
  EXPECT_NE(hash(8), hash(0));
  std::vector<std::string> without = clustered(0);
  without.erase(without.begin());
  EXPECT_EQ(train_on(2, job_options(make_job(without, 12))).weights_hash, hash(0));
}

TEST(Clustered, PartsThatARunDoesNotDivide) {
  const std::vector<std::string> seven = {"pipeline.cluster_parts=4", "numerics.parts=7"};
  const Summary expected = train_on(1, job_options(make_job(seven, 12)));
  // The second of two ranks begins at part 3.
  EXPECT_NE(message_of([&] { train_on(2, job_options(make_job(seven, 12))); }).find("begins at"),
            std::string::npos);
  // Here it begins at part 4, and the last run is part 8 alone.
  const std::vector<std::string> nine = {"pipeline.cluster_parts=4", "numerics.parts=9"};
  expect_same(train_on(2, job_options(make_job(nine, 12))),
              train_on(1, job_options(make_job(nine, 12))), "9 parts");
  EXPECT_NE(expected.weights_hash, 0U);
}

/// Bytes that two ranks send in the first steps of a job whose samples have the long bags of few
/// visitors.
std::int64_t sent_bytes(int parts, int run) {
  const spec::Config config = make_job(
      fetched({"pipeline.cluster_parts=" + std::to_string(run),
               "numerics.parts=" + std::to_string(parts), "batch_size=96",
               "data.synthetic.visitors=12", "data.synthetic.columns.seen.repeat=0.9",
               "data.synthetic.columns.seen.cardinality=20000",
               "data.synthetic.columns.seen.zipf=0.2", "tables.item.num_embeddings=20000"}),
      30);
  const spec::Plan plan = planner::make_plan(config, 2);
  std::atomic<std::int64_t> sent = 0;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({});
    trace::Recorder recorder;
    Engine engine(config, plan, world, *device, {.recorder = &recorder});
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, {},
                        data::LoaderOptions::train(config, world.rank(), 2, plan.parts));
    recorder.start();
    data::Batch batch;
    for (std::int64_t step = 1; step <= 4 && loader.next(batch); ++step) {
      engine.train_step({.batch = batch, .step = step});
    }
    engine.run_stage([](Context&) {});
    recorder.stop();
    for (const trace::Track& track : recorder.tracks()) {
      for (const trace::Span& span : track.spans()) {
        sent += span.collective < 0 ? 0 : track.collective(span).bytes;
      }
    }
  });
  return sent;
}

TEST(Clustered, SendsLessWhereARankHasSeveralSubtrees) {
  // Six of twelve parts are subtrees of four and two; eight of sixteen are one.
  const std::int64_t plain = sent_bytes(12, 0);
  EXPECT_LT(sent_bytes(12, 6), plain - plain / 20) << "of all that is sent";
  EXPECT_EQ(sent_bytes(16, 8), sent_bytes(16, 0)) << "one partial gradient per row in any order";
}

TEST(Clustered, AResumeInsideAnEpochGoesOnWithTheSameBits) {
  const std::vector<std::string> overrides = joined(fetched(clustered(2)), {"train.epochs=2"});
  const Summary expected = train_on(2, job_options(make_job(overrides, 12)));
  const TemporaryFolder folder;
  JobOptions first = job_options(make_job(overrides, 12));
  first.config.train.steps = 3;  // of 8 in an epoch
  first.checkpoint_dir = folder.path();
  train_on(2, first);
  for (const int ranks : {1, 2, 4}) {
    Warnings warnings("differs from the checkpoint");
    JobOptions second = job_options(make_job(overrides, 12));
    second.resume = folder.path();
    expect_same(train_on(ranks, second), expected, std::to_string(ranks) + " ranks");
    EXPECT_TRUE(warnings.all().empty());
  }
  Warnings warnings("differs from the checkpoint");
  JobOptions other = job_options(make_job(joined(overrides, {"pipeline.cluster_parts=0"}), 12));
  other.resume = folder.path();
  EXPECT_NE(train_on(2, other).weights_hash, expected.weights_hash);
  EXPECT_EQ(warnings.all().size(), 1U);
}

TEST(Clustered, RanksThatCutThroughRunsAreRefusedBeforeTraining) {
  const auto refused = [](int ranks, const std::vector<std::string>& overrides) {
    return message_of([&] { train_on(ranks, job_options(make_job(overrides))); });
  };
  EXPECT_EQ(refused(2, {"pipeline.cluster_parts=8"}),
            "pipeline.cluster_parts: rank 1 of 2 begins at part 4 of 8, inside the run of parts 0 "
            "to 7 whose samples are clustered together; set pipeline.cluster_parts=4, or "
            "numerics.parts=16 (that changes the order of sums)");
  // Two groups of two ranks: positions of the mesh, not ranks of a group, share out the parts.
  EXPECT_NE(refused(4, joined(mesh(2, "gradients"), {"pipeline.cluster_parts=4"}))
                .find("rank 1 of 4 begins at part 2"),
            std::string::npos);
}

TEST(Clustered, AnEvaluationOnAnyRanksSeesTheSamplesAsTheyWere) {
  const TemporaryFolder folder;
  JobOptions training = job_options(make_job(joined(clustered(4), {"train.steps=3"})));
  training.checkpoint_dir = folder.path();
  const Summary trained = train_on(2, training);
  for (const int ranks : {1, 3}) {  // three ranks cut through runs of four
    for (const char* run : {"pipeline.cluster_parts=4", "pipeline.cluster_parts=0"}) {
      JobOptions options = job_options(make_job(joined(clustered(4), {run})));
      options.resume = folder.path();
      Summary got;
      comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
        Summary own = run_eval(world, options);
        if (world.rank() == 0) {
          got = std::move(own);
        }
      });
      ASSERT_TRUE(got.eval.has_value());
      EXPECT_EQ(got.eval->tasks.front().ne, trained.eval->tasks.front().ne) << ranks << run;
      EXPECT_EQ(got.eval->tasks.front().auc, trained.eval->tasks.front().auc) << ranks << run;
    }
  }
}

}  // namespace
}  // namespace weft::train
