// The check device has to catch what it is there for: each mistake is made here on purpose.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/thread_pool.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/stream.h"

namespace weft {
namespace {

class CheckDevice : public ::testing::Test {
 protected:
  static std::unique_ptr<Device> make(std::uint64_t seed, int max_delay_us) {
    return make_device({.kind = DeviceKind::kCheck,
                        .threads = 1,
                        .check_seed = seed,
                        .check_max_delay_us = max_delay_us});
  }
};

TEST_F(CheckDevice, FreshMemoryIsNaNAndNoValidIndex) {
  const auto device = make(1, 0);
  Context ctx{.device = device.get(), .pool = &device->pool()};
  for (const std::int64_t bytes : {8, 1000, 3 << 20}) {
    const Buffer buffer(*device, bytes);
    std::vector<char> host(static_cast<std::size_t>(bytes), 0);
    device->copy_to_host(ctx, host.data(), buffer.as<char>(), bytes);
    EXPECT_EQ(host, std::vector<char>(static_cast<std::size_t>(bytes), '\xFF'));
  }
  float value = 0;
  std::int64_t index = 0;
  const Buffer buffer(*device, 8);
  device->copy_to_host(ctx, &value, buffer.as<void>(), 4);
  device->copy_to_host(ctx, &index, buffer.as<void>(), 8);
  EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(index, -1);
}

TEST_F(CheckDevice, GrowingForgetsTheContents) {
  const auto device = make(1, 0);
  Context ctx{.device = device.get(), .pool = &device->pool()};
  Buffer buffer(*device, 4096);
  device->fill_zero(ctx, buffer.as<void>(), 4096);
  buffer.resize(4097);
  float value = 0;
  device->copy_to_host(ctx, &value, buffer.as<void>(), 4);
  EXPECT_TRUE(std::isnan(value));
}

TEST_F(CheckDevice, StagesMayUseTheMemory) {
  const auto device = make(2, 20);
  const Buffer buffer(*device, 400);
  float sum = 0;
  const Stage write = [&](Context& ctx) {
    ctx.pool->parallel_for(100, [&](std::int64_t i) { buffer.as<float>()[i] = 1.0F; });
  };
  const Stage read = [&](Context&) {
    for (int i = 0; i < 100; ++i) {
      sum += buffer.as<float>()[i];
    }
  };
  const auto stream = device->make_stream({.name = "main"});
  stream->enqueue(write);
  stream->enqueue(read);
  stream->synchronize();
  EXPECT_EQ(sum, 100.0F);
}

/// One stream writes 1 and another reads; returns what it read. `write` and `read` run on streams
/// with random delays.
float write_then_read(Device& device, bool ordered) {
  const Buffer buffer(device, 4);
  float seen = 0;
  const Stage write = [&](Context&) { *buffer.as<float>() = 1.0F; };
  const Stage read = [&](Context& ctx) {
    ctx.device->copy_to_host(ctx, &seen, buffer.as<void>(), 4);
  };
  const auto writer = device.make_stream({.name = "writer"});
  const auto reader = device.make_stream({.name = "reader"});
  writer->enqueue(write);
  if (ordered) {
    reader->wait(writer->record());
  }
  reader->enqueue(read);
  writer->synchronize();
  reader->synchronize();
  return seen;
}

TEST_F(CheckDevice, AnEventMakesTheScheduleRight) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    EXPECT_EQ(write_then_read(*make(seed, 1000), true), 1.0F);
  }
}

// The race is the point of it, so not under the thread sanitizer.
#if !defined(__SANITIZE_THREAD__)
TEST_F(CheckDevice, AForgottenEventIsSeen) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    wrong += std::isnan(write_then_read(*make(seed, 2000), false)) ? 1 : 0;
  }
  EXPECT_GT(wrong, 0) << "about half of the seeds let the reader go first";
  EXPECT_LT(wrong, 30);
}
#endif

TEST_F(CheckDevice, DelaysDependOnTheSeed) {
  // Not observable but by time; here only that seeds and streams of any number are accepted.
  for (const std::uint64_t seed : {std::uint64_t{0}, UINT64_MAX}) {
    EXPECT_EQ(write_then_read(*make(seed, 10), true), 1.0F);
  }
}

#if defined(__SANITIZE_ADDRESS__)
using CheckDeviceDeathTest = CheckDevice;

TEST_F(CheckDeviceDeathTest, TheHostMayNotTouchTheMemory) {
  const auto device = make(1, 0);
  const Buffer buffer(*device, 400);
  volatile float* const data = buffer.as<float>();
  EXPECT_DEATH(data[3] = 1.0F, "use-after-poison");
  EXPECT_DEATH(static_cast<void>(data[99]), "use-after-poison");
}

TEST_F(CheckDeviceDeathTest, NorAfterAStageOrACopy) {
  const auto device = make(1, 0);
  Context ctx{.device = device.get(), .pool = &device->pool()};
  const Buffer buffer(*device, 400);
  const Stage stage = [&](Context&) { buffer.as<float>()[0] = 1.0F; };
  const auto stream = device->make_stream({.name = "main", .is_inline = true});
  stream->enqueue(stage);
  stream->synchronize();
  volatile float* const data = buffer.as<float>();
  EXPECT_DEATH(static_cast<void>(data[0]), "use-after-poison");
  device->fill_zero(ctx, buffer.as<void>(), 400);
  EXPECT_DEATH(static_cast<void>(data[0]), "use-after-poison");
}

TEST_F(CheckDeviceDeathTest, AStageMayNotWritePastTheEnd) {
  const auto device = make(1, 0);
  const Buffer buffer(*device, 64);
  const Stage stage = [&](Context&) {
    volatile float* const data = buffer.as<float>();
    data[16] = 1.0F;
  };
  const auto stream = device->make_stream({.name = "main", .is_inline = true});
  EXPECT_DEATH(stream->enqueue(stage), "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace weft
