// The cuda device through the interface of every device: copies, streams, events and failures.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/stream.h"

namespace weft {
namespace {

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = make_device({.kind = DeviceKind::kCuda});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Device> device_;
};

constexpr std::int64_t kCount = 1 << 22;
constexpr std::int64_t kBytes = kCount * 4;

TEST_F(Cuda, CopiesThereAndBackOutsideAStream) {
  Context ctx{.device = device_.get(), .pool = &device_->pool()};
  const Buffer a(*device_, kBytes);
  const Buffer b(*device_, kBytes);
  const std::vector<float> in(kCount, 2.5F);
  std::vector<float> out(kCount, 0.0F);
  device_->copy_to_device(ctx, a.as<void>(), in.data(), kBytes);
  device_->copy(ctx, b.as<void>(), a.as<void>(), kBytes);
  device_->copy_to_host(ctx, out.data(), b.as<void>(), kBytes);
  EXPECT_EQ(out, in);
  device_->fill_zero(ctx, b.as<void>(), kBytes);
  device_->copy_to_host(ctx, out.data(), b.as<void>(), kBytes);
  EXPECT_EQ(out, std::vector<float>(kCount, 0.0F));
}

TEST_F(Cuda, EventsOrderStreams) {
  const Buffer a(*device_, kBytes);
  const Buffer b(*device_, kBytes);
  std::vector<std::vector<float>> in;
  std::vector<std::vector<float>> out(20, std::vector<float>(kCount));
  std::vector<Stage> stages;
  for (int step = 0; step < 20; ++step) {
    in.emplace_back(kCount, static_cast<float>(step));
  }
  for (std::size_t step = 0; step < 20; ++step) {
    stages.emplace_back([&, step](Context& ctx) {
      EXPECT_NE(ctx.native_stream, nullptr);
      device_->copy_to_device(ctx, a.as<void>(), in[step].data(), kBytes);
    });
    stages.emplace_back(
        [&](Context& ctx) { device_->copy(ctx, b.as<void>(), a.as<void>(), kBytes); });
    stages.emplace_back([&, step](Context& ctx) {
      device_->copy_to_host(ctx, out[step].data(), b.as<void>(), kBytes);
    });
  }
  const auto up = device_->make_stream({.name = "up"});
  const auto across = device_->make_stream({.name = "across"});
  const auto down = device_->make_stream({.name = "down"});
  for (std::size_t step = 0; step < 20; ++step) {
    up->wait(across->record());
    up->enqueue(stages[3 * step]);
    across->wait(up->record());
    across->wait(down->record());
    across->enqueue(stages[3 * step + 1]);
    down->wait(across->record());
    down->enqueue(stages[3 * step + 2]);
  }
  down->synchronize();
  EXPECT_EQ(out, in);
  up->synchronize();
  across->synchronize();
}

TEST_F(Cuda, FailuresAreTakenOver) {
  const Stage fails = [](Context&) { throw std::runtime_error("the stage failed"); };
  int ran = 0;
  const Stage count = [&](Context&) { ++ran; };
  const auto a = device_->make_stream({.name = "a"});
  const auto b = device_->make_stream({.name = "b"});
  a->enqueue(count);
  const Event before = a->record();
  a->enqueue(fails);
  a->enqueue(count);
  b->wait(before);
  b->enqueue(count);
  b->wait(a->record());
  b->enqueue(count);
  EXPECT_NO_THROW(a->wait_on_host(before));
  EXPECT_THROW(a->synchronize(), std::runtime_error);
  EXPECT_THROW(b->synchronize(), std::runtime_error);
  EXPECT_EQ(ran, 2);
}

TEST_F(Cuda, CpuStreamsAndGpuStreamsWaitForEachOther) {
  const auto cpu = make_device({});
  const auto reader = cpu->make_stream({.name = "reader"});
  const auto gpu = device_->make_stream({.name = "gpu"});
  const Buffer buffer(*device_, kBytes);
  std::vector<float> host(kCount, 0.0F);
  std::vector<float> back(kCount, 0.0F);
  float seen = 0;
  const Stage read = [&](Context&) { host.assign(kCount, 7.0F); };
  const Stage round_trip = [&](Context& ctx) {
    device_->copy_to_device(ctx, buffer.as<void>(), host.data(), kBytes);
    device_->copy_to_host(ctx, back.data(), buffer.as<void>(), kBytes);
  };
  const Stage use = [&](Context&) { seen = back[kCount - 1]; };
  reader->enqueue(read);
  gpu->wait(reader->record());
  gpu->enqueue(round_trip);
  reader->wait(gpu->record());
  reader->enqueue(use);
  reader->synchronize();
  EXPECT_EQ(seen, 7.0F);
}

TEST_F(Cuda, SaysWhatDidNotFit) {
  Buffer buffer(*device_);
  try {
    buffer.resize(std::int64_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource) << error.what();
  }
  buffer.resize(100);
  EXPECT_NE(buffer.as<void>(), nullptr);
}

TEST(CudaDevice, SaysWhyThereIsNone) {
  try {
    make_device({.kind = DeviceKind::kCuda, .gpu = 1000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("cuda"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
