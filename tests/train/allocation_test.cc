// Once the longest batch has been seen, a step allocates nothing: on no thread, in no stage.

#include <array>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "tests/base/count_allocations.h"
#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/kernels/cpu/matmul.h"
#include "weft/kernels/cpu/pack.h"
#include "weft/kernels/target.h"
#include "weft/planner/place.h"
#include "weft/tensor/host_block.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

using test::AllocationCount;

// Batches come again in the same order, and each meets every one of the reader's buffers: 5 batches
// to an epoch and 3 buffers.
constexpr std::int64_t kBatches = 5;
constexpr std::int64_t kWarmUp = 8 * kBatches;
constexpr std::int64_t kWatched = 14 * kBatches;  // a queue may allocate every 64 entries

spec::Config repeating_job(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(),
                   {"data.shuffle.enabled=false", "data.read_ahead=2", "batch_size=61",
                    "data.synthetic.samples=" + std::to_string(61 * kBatches - 7)});
  return make_job(overrides);
}

// A pool's threads take what comes, so with several of them it takes chance and not only steps
// until each has met every shape.
constexpr int kMostRounds = 40;

/// Rounds of watched steps, loader included, until one allocates nothing.
AllocationCount count_steps(const spec::Config& config,
                            int ranks,
                            int threads,
                            const std::vector<int>& hosts = {}) {
  AllocationCount count;
  const spec::Plan plan = planner::make_plan(
      config, {.ranks = ranks, .hosts = std::vector<std::int64_t>(hosts.begin(), hosts.end())});
  std::barrier together(ranks);
  std::atomic<bool> again = true;
  comm::run_local(ranks, {.timeout_s = 60, .hosts = hosts}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = threads});
    std::array<data::Batch, 2> batches;
    Engine engine(config, plan, world, *device);
    data::LoaderOptions reading =
        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts);
    reading.epochs = 0;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, {}, reading);
    std::int64_t step = 0;
    loader.next(batches[1]);  // of step 1
    const auto run = [&](std::int64_t steps) {
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::size_t now = ++step % 2 == 0 ? 0 : 1;
        loader.next(batches[1 - now]);
        const StepInput next{.batch = batches[1 - now], .step = step + 1};
        engine.train_step({.batch = batches[now], .step = step}, &next);
      }
    };
    run(kWarmUp);
    for (int round = 0; again && round < (threads == 1 ? 1 : kMostRounds); ++round) {
      together.arrive_and_wait();
      if (world.rank() == 0) {
        test::watch_allocations();
      }
      together.arrive_and_wait();
      run(kWatched);
      together.arrive_and_wait();
      if (world.rank() == 0) {
        count = test::stop_watching();
        again = count.own > 0;
      }
      together.arrive_and_wait();
    }
    engine.settle();  // of the batch that has been begun
  });
  return count;
}

void expect_none(const std::vector<std::string>& overrides) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  const spec::Config config = repeating_job(overrides);
  for (const int ranks : {1, 2}) {
    for (const int threads : {1, 2}) {
      const AllocationCount count = count_steps(config, ranks, threads);
      EXPECT_EQ(count.own, 0) << kWatched << " steps on " << ranks << " ranks of " << threads
                              << " threads:" << test::describe_allocations();
      // oneDNN's own bookkeeping, about ten blocks a product; its scratch memory is Weft's. Its
      // GEMM for targets below AVX2 packs both operands of a product in memory that it takes
      // itself.
      const bool packs = kernels::current_target() < kernels::Target::kAvx2;
      EXPECT_LE(count.onednn, 2000 * kWatched);
      EXPECT_LE(count.onednn_largest, packs ? 256 * 1024 : 1024);
    }
  }
}

TEST(AllocationCounter, SeesEveryWayOnEveryThread) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  const std::vector<std::function<void*()>> ways = {
      [] { return std::malloc(10); },
      [] { return std::calloc(2, 5); },
      [] { return std::aligned_alloc(64, 64); },
      [] { return ::operator new(10); },
      [] { return ::operator new(64, std::align_val_t{64}); },
      [] { return ::operator new[](10); },
  };
  for (const auto& way : ways) {
    std::barrier together(2);
    void* data = nullptr;
    std::thread other([&] {
      together.arrive_and_wait();
      data = way();
      together.arrive_and_wait();
    });
    test::watch_allocations();
    together.arrive_and_wait();
    together.arrive_and_wait();
    EXPECT_EQ(test::stop_watching().own, 1);
    other.join();
    std::free(data);  // the counter's operator delete is free()
  }
}

/// This counts what the second product of one shape allocates, of operands of this type.
template <typename T>
AllocationCount count_second_product(
    const std::function<void(
        kernels::Matmul&, kernels::ConstOperand, kernels::PackedMatrix, Matrix<float>)>& first) {
  constexpr std::int64_t kSize = 64;
  const std::vector<T> values(kSize * kSize);
  std::vector<float> sum(values.size());
  const kernels::ConstOperand a = matrix(values.data(), kSize, kSize);
  HostBlock memory;
  const kernels::PackedMatrix b = kernels::packed_matrix(
      a.dtype, kSize, kSize, memory.at_least(kernels::packed_bytes(a.dtype, kSize, kSize)));
  kernels::pack(a, b, {0, b.panels()});
  const Matrix<float> out = matrix(sum.data(), kSize, kSize);
  kernels::Matmul matmul;
  first(matmul, a, b, out);
  test::watch_allocations();
  matmul.multiply_add(a, b, out);
  return test::stop_watching();
}

/// Terms of this type prepare each other; other products prepare no term, where oneDNN makes it.
template <typename T>
void check_later_term(bool is_own) {
  const AllocationCount count = count_second_product<T>(
      [](auto& matmul, auto a, auto b, auto out) { matmul.multiply_first(a, b, out); });
  EXPECT_EQ(count.own, 0) << test::describe_allocations();
  const AllocationCount control = count_second_product<T>(
      [](auto& matmul, auto a, auto b, auto out) { matmul.multiply(a, b, out); });
  if (is_own) {
    EXPECT_EQ(control.own, 0) << "terms that Weft makes prepare nothing";
  } else {
    EXPECT_GT(control.own, 0) << "a product that is no term of a sum prepares none";
  }
}

// Under `fwp` it is chance which parts' gradients are summed together, so a shape may be a first
// term in one step and a later one in another.
TEST(NoAllocation, OfALaterTermAfterAFirst) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  const kernels::Target target = kernels::current_target();
  const bool is_own_in_fp32 = target >= kernels::Target::kAvx2;
  check_later_term<float>(is_own_in_fp32);
  check_later_term<BFloat16>(is_own_in_fp32 && !kernels::has_bf16_products(target));
}

class StepsOf : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(StepsOf, AllocateNothing) {
  expect_none(GetParam());
}

TEST(NoAllocation, ThroughRelays) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  const spec::Config config = repeating_job({"collectives=hierarchical", "codecs.dense=int8"});
  EXPECT_EQ(count_steps(config, 3, 1, {0, 0, 1}).own, 0) << test::describe_allocations();
}

TEST(NoAllocation, OfEncodedSyncs) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  for (const char* sync : {"dense", "touched"}) {
    const spec::Config config =
        repeating_job({"mesh.groups=2", std::string("mesh.sync=") + sync, "codecs.sync=int8",
                       "sparse_optimizer.type=adam", "tables.tags.dtype=bf16"});
    EXPECT_EQ(count_steps(config, 2, 1).own, 0) << sync << test::describe_allocations();
  }
}

std::vector<std::string> tables(std::vector<std::string> overrides, const char* sharding) {
  for (const std::string& entry : all_tables("sharding", sharding)) {
    overrides.push_back(entry);
  }
  return overrides;
}

INSTANTIATE_TEST_SUITE_P(
    Jobs,
    StepsOf,
    ::testing::Values(
        tables({"sparse_optimizer.type=row_wise_adagrad", "codecs.dense=int8"}, "table_wise"),
        tables({"sparse_optimizer.type=adam", "model.type=dcnv2", "model.cross_layers=2",
                "model.cross_rank=8"},
               "row_wise"),
        tables({"sparse_optimizer.type=row_wise_adam", "sparse_optimizer.max_norm=0.3"},
               "column_wise"),
        tables({"sparse_optimizer.type=adagrad", "model.type=dcnv2", "model.cross_layers=2",
                "model.cross_rank=8", "model.sequence=mean"},
               "data_parallel"),
        tables({"sparse_optimizer.type=sgd", "tables.item.dtype=split_bf16",
                "tables.tags.dtype=bf16"},
               "column_wise"),
        tables({"pipeline.schedule=nested", "pipeline.micro_batches=3", "codecs.forward=fp16",
                "codecs.backward=int8", "codecs.rounding=stochastic"},
               "table_wise"),
        tables({"pipeline.schedule=nested", "pipeline.micro_batches=[1, 2, 1]",
                "tables.item.pooled_at=sample"},
               "row_wise"),
        tables({"pipeline.schedule=dbp", "sparse_optimizer.type=row_wise_adam"}, "column_wise"),
        tables({"pipeline.schedule=fwp"}, "data_parallel")));

/// What a window of the trainer allocates, on one rank and thread.
std::int64_t count_window(std::int64_t steps) {
  JobOptions options = job_options(repeating_job(
      {"train.log_every=" + std::to_string(steps), "train.steps=" + std::to_string(6 * steps)}));
  AllocationCount count{.own = -1};
  options.progress.on_window = [&](const WindowFigures& window) {
    if (window.step == 4 * steps) {
      test::watch_allocations();
    } else if (window.step == 5 * steps) {
      count = test::stop_watching();
    }
  };
  train_on(1, options);
  return count.own;
}

TEST(NoAllocationOfTheTrainer, ButForTheFiguresOfAWindow) {
  if (!test::can_watch_allocations()) {
    GTEST_SKIP() << "a sanitizer has an allocator of its own";
  }
  const std::int64_t some = count_window(20);
  EXPECT_GT(some, 0) << "figures are strings and lists";
  // Three times the steps; the figures' digits may differ.
  EXPECT_LE(count_window(60), some + 8) << test::describe_allocations();
}

}  // namespace
}  // namespace weft::train
