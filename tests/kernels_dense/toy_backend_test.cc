// A backend that is half finished: it defines two operations of kernels::cuda, for a device whose
// memory is the host's, and takes the stubs of all others from the library. It builds, the two pass
// their lists of parity cases, and a model names the first operation that is missing.
#include <array>
#include <atomic>
#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "tests/kernels/toy_device.h"
#include "tests/kernels_dense/parity/loss.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/slices.h"
#include "weft/nn/model.h"

namespace weft::kernels::cuda {

namespace {

int losses = 0;
int searches = 0;

}  // namespace

void bce_loss(Context& /*ctx*/, const BceLoss& args) {
  ++losses;
  *args.first_bad = -1;
  for (std::int64_t t = 0; t < args.logits.cols; ++t) {
    args.loss_sums[t] = 0.0;
    for (std::int64_t s = 0; s < args.logits.rows; ++s) {
      const double z = args.logits.row(s)[t];
      const double y = args.labels.row(s)[t];
      const double weight = args.weights.data == nullptr ? 1.0 : args.weights.row(s)[t];
      const double loss = bce_with_logits(z, y);
      const bool is_bad = !std::isfinite(loss) || !std::isfinite(weight);
      if (is_bad && (*args.first_bad < 0 || s < *args.first_bad)) {
        *args.first_bad = s;
      }
      args.loss_sums[t] += weight * loss;
      args.dlogits.row(s)[t] = static_cast<float>(
          static_cast<double>(args.scale[static_cast<std::size_t>(t)]) * weight * (sigmoid(z) - y));
      args.probabilities.row(s)[t] = static_cast<float>(sigmoid(z));
    }
  }
}

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& args) {
  ++searches;
  const auto is_finite = [](const SampleValues& values, std::int64_t s) {
    const std::int64_t begin = values.offsets == nullptr ? s : values.offsets[s];
    const std::int64_t end = values.offsets == nullptr ? s + 1 : values.offsets[s + 1];
    for (std::int64_t i = begin * values.values.cols; i < end * values.values.cols; ++i) {
      const std::int64_t row = i / values.values.cols;
      if (!std::isfinite(values.values.row(row)[i % values.values.cols])) {
        return false;
      }
    }
    return true;
  };
  for (std::int64_t s = 0; s < (*args.first < 0 ? args.samples : *args.first); ++s) {
    for (const SampleValues& values : args.values) {
      if (!is_finite(values, s)) {
        *args.first = s;
        return;
      }
    }
  }
}

}  // namespace weft::kernels::cuda

namespace weft::kernels {
namespace {

TEST(ToyBackend, PassesTheListsOfWhatItHas) {
  test::ToyDevice device;
  parity::expect_loss(device);
  parity::expect_first_bad_sample(device);
  EXPECT_GT(cuda::losses, 0);
  EXPECT_GT(cuda::searches, 0);
}

/// In order on one lane, as operations that are enqueued are.
TEST(ToyBackend, ItsSlicesAreOneLoopOfTheCaller) {
  test::ToyDevice device;
  EXPECT_EQ(slice_lanes(device), 1);
  ThreadPool pool(3);
  Context ctx{.device = &device, .pool = &pool};
  const std::thread::id caller = std::this_thread::get_id();
  std::int64_t next = 0;
  for_each_slice(ctx, 100, [&](std::int64_t slice, std::int64_t lane) {
    EXPECT_EQ(slice, next++);
    EXPECT_EQ(lane, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  EXPECT_EQ(next, 100);
}

/// Each once, a lane by one thread at a time.
TEST(Slices, OfTheCpuAreSharedOutAmongLanes) {
  const auto device = make_device({.threads = 3});
  ASSERT_EQ(slice_lanes(*device), 3);
  Context ctx{.device = device.get(), .pool = &device->pool()};
  std::array<std::atomic<int>, 200> calls{};
  std::array<std::atomic<int>, 3> at_work{};
  for_each_slice(ctx, 200, [&](std::int64_t slice, std::int64_t lane) {
    EXPECT_EQ(at_work[static_cast<std::size_t>(lane)]++, 0);
    ++calls[static_cast<std::size_t>(slice)];
    --at_work[static_cast<std::size_t>(lane)];
  });
  for (const std::atomic<int>& count : calls) {
    EXPECT_EQ(count, 1);
  }
}

TEST(ToyBackend, AModelNamesTheFirstOperationThatIsMissing) {
  spec::Model options;
  options.type = spec::ModelKind::kDlrm;
  options.bottom_mlp = {4};
  const auto model = nn::Model::create(options, {2, {{"a", 4}}, 1});
  test::ToyDevice device;
  try {
    model->make_lane(device);
    FAIL() << "a stub returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("'make_workspace'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft::kernels
