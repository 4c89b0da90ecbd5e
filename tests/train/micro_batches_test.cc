// Micro-batches one by one. Whenever the weights' gradients of some are summed, the sums have the
// same bits, and what is not finite has the same name. However many there are, vectors and
// gradients have the same bytes.
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/place.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

constexpr std::int64_t kSteps = 3;

using enum pipeline::StreamRole;

/// A step on one stream. After micro-batch i the weights' gradients of all up to it are summed, if
/// bit i of `when` is set; in the end what is left.
void issue_step(pipeline::Issuer& to, std::uint64_t when) {
  to.issue({StepPart::kExchangeCounts, 0}, kCompute);
  to.issue({StepPart::kExchangeIds, 0}, kCompute);
  to.issue({StepPart::kFetch, 0}, kCompute);
  to.issue({StepPart::kCoalesce, 0}, kCompute);
  to.issue({StepPart::kLoad, 0}, kCompute);
  for (std::int64_t cut = 0; cut < to.cuts(); ++cut) {
    to.issue({StepPart::kLookup, 0, cut}, kCompute);
    to.issue({StepPart::kOutputDist, 0, cut}, kCompute);
    to.issue({StepPart::kForwardBackward, 0, cut}, kCompute);
    to.issue({StepPart::kGradDist, 0, cut}, kCompute);
    if ((when >> cut & 1U) != 0 && cut + 1 < to.cuts()) {
      to.issue({StepPart::kWeightGradients, 0, cut}, kCompute);
    }
  }
  to.issue({StepPart::kWeightGradients, 0, to.cuts() - 1}, kCompute);
  to.issue({StepPart::kReduce, 0}, kCompute);
  to.issue({StepPart::kExchangeReport, 0}, kCompute);
  to.issue({StepPart::kUpdateRows, 0}, kCompute);
  to.issue({StepPart::kUpdateDense, 0}, kCompute);
}

/// The state's hash, or the error of the step that has failed.
std::string trained(const spec::Config& config, int ranks, std::uint64_t when) {
  std::string end;
  std::mutex mutex;
  const auto body = [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, ranks);
    const auto device = make_device({.kind = DeviceKind::kCheck, .threads = 1});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts));
    data::Batch batch;
    Engine engine(config, plan, world, *device);
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      ASSERT_TRUE(loader.next(batch));
      engine.begin(0, {.batch = batch, .step = step});
      issue_step(engine.issuer(), when);
      engine.finish(0);
    }
    const checkpoint::StateHash hash = engine.hash();
    const std::scoped_lock lock(mutex);
    end = fmt::format("{:016x} {:016x}", hash.weights, hash.state);
  };
  try {
    comm::run_local(ranks, {.timeout_s = 60}, body);
  } catch (const Error& error) {
    end = error.what();
  }
  return end;
}

TEST(WeightGradients, HaveTheirBitsWheneverTheyAreSummed) {
  const std::vector<std::vector<std::string>> jobs = {
      {"numerics.parts=16"},
      {"numerics.parts=12", "model.type=dcnv2", "model.compute=bf16"},
      {"numerics.parts=7", "batch_size=3"},
      {"numerics.parts=64", "codecs.dense=int8", "codecs.error_feedback=true"}};
  for (const std::vector<std::string>& job : jobs) {
    for (const int ranks : {1, 3}) {
      for (const char* sizes : {"[1, 1, 1, 1]", "[3, 1, 2, 5]"}) {
        const spec::Config config = make_job(
            joined(job, {"pipeline.schedule=fwp", std::string("pipeline.micro_batches=") + sizes}));
        const std::string at_the_end = trained(config, ranks, 0);
        EXPECT_EQ(at_the_end.size(), 33U) << at_the_end;
        for (std::uint64_t when = 1; when < 8; ++when) {
          EXPECT_EQ(trained(config, ranks, when), at_the_end)
              << job.front() << " on " << ranks << ", " << sizes << ": " << when;
        }
      }
    }
  }
}

/// Whether weights' gradients were computed in several stages of the last step, vectors being late.
bool fills_waits(const std::vector<std::string>& more) {
  const spec::Config config = make_job(joined({"numerics.parts=16", "pipeline.schedule=fwp",
                                               "pipeline.micro_batches=4", "pipeline.lookahead=1"},
                                              more));
  bool found = false;
  comm::run_local(1, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 1);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, 0, 1, plan.parts));
    data::Batch batch;
    const EngineOptions late{.delays = {{StepPart::kOutputDist, std::chrono::milliseconds(30)}}};
    Engine engine(config, plan, world, *device, late);
    ASSERT_TRUE(loader.next(batch));
    engine.train_step({.batch = batch, .step = 1});
    found = engine.times().of(StepPart::kWeightGradients).pauses.count() > 0;
  });
  return found;
}

TEST(WeightGradients, FillWaitsForLateVectors) {
  EXPECT_TRUE(fills_waits({}));
  EXPECT_FALSE(fills_waits({"train.overlap=false"})) << "one stream has nothing to wait for";
}

TEST(WeightGradients, ThatAreNotFiniteNameTheSameSample) {
  const spec::Config config =
      make_job({"numerics.parts=16", "pipeline.schedule=fwp", "pipeline.micro_batches=4",
                "dense_optimizer.type=sgd", "dense_optimizer.learning_rate=1e30",
                "dense_optimizer.clip_norm=0", "schedule.warmup_steps=0"});
  const std::string at_the_end = trained(config, 2, 0);
  EXPECT_NE(at_the_end.find("is not finite"), std::string::npos) << at_the_end;
  for (std::uint64_t when = 1; when < 8; ++when) {
    EXPECT_EQ(trained(config, 2, when), at_the_end) << when;
  }
}

/// The bytes and messages of vectors and gradients that rank 0 has sent in three steps.
comm::Traffic::Entry sent_vectors(const spec::Config& config) {
  comm::Traffic::Entry sent;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 2);
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), 2, plan.parts));
    data::Batch batch;
    Engine engine(config, plan, world, *device);
    for (std::int64_t step = 1; step <= 3; ++step) {
      ASSERT_TRUE(loader.next(batch));
      engine.train_step({.batch = batch, .step = step});
    }
    if (world.rank() == 0) {
      sent = engine.embeddings().vector_traffic().total();
    }
  });
  return sent;
}

// Vectors of pooled tables and of sequences travel once, as do rows of fetched tables and their
// partial gradients; only the messages are more.
TEST(MicroBatches, ChangeNoByteOfVectors) {
  for (const std::vector<std::string>& tables :
       {all_tables("sharding", "table_wise"), all_tables("sharding", "row_wise"),
        joined(all_tables("sharding", "row_wise"), all_tables("pooled_at", "sample"))}) {
    const auto cut = [&](const char* sizes) {
      return sent_vectors(
          make_job(joined(tables, {"pipeline.schedule=fwp", "numerics.parts=16",
                                   std::string("pipeline.micro_batches=") + sizes})));
    };
    const comm::Traffic::Entry whole = cut("1");
    EXPECT_GT(whole.bytes, 0);
    for (const char* sizes : {"2", "4", "8", "[1, 3, 3, 1]"}) {
      const comm::Traffic::Entry some = cut(sizes);
      EXPECT_EQ(some.bytes, whole.bytes) << tables.back() << ", " << sizes;
      EXPECT_GT(some.messages, whole.messages) << tables.back() << ", " << sizes;
    }
  }
}

}  // namespace
}  // namespace weft::train
