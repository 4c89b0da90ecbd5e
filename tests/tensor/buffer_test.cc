// Devices' memory and the buffer on top of it.
#include "weft/tensor/buffer.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/host_block.h"
#include "weft/tensor/memory_use.h"
#include "weft/tensor/stream.h"
#include "weft/tensor/view.h"

namespace weft {
namespace {

class Memory : public ::testing::TestWithParam<DeviceKind> {
 protected:
  Memory() : device_(make_device({.kind = GetParam(), .threads = 2})) {}

  std::unique_ptr<Device> device_;
};

TEST_P(Memory, IsAligned) {
  for (const std::int64_t bytes :
       {0, 1, 63, 64, 65, 4096, 100000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20}) {
    void* const data = device_->allocate(bytes);
    ASSERT_NE(data, nullptr);
    const std::uintptr_t alignment = bytes >= (2 << 20) ? std::uintptr_t{2} << 20 : 64;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U) << bytes;
    Context ctx{.device = device_.get(), .pool = &device_->pool()};
    device_->fill_zero(ctx, data, bytes);
    device_->deallocate(data, bytes);
  }
  device_->deallocate(nullptr, 0);
}

TEST_P(Memory, CopiesThereAndBack) {
  Context ctx{.device = device_.get(), .pool = &device_->pool()};
  std::vector<float> host(1000);
  for (std::size_t i = 0; i < host.size(); ++i) {
    host[i] = static_cast<float>(i);
  }
  const Buffer a(*device_, 4000);
  const Buffer b(*device_, 4000);
  std::vector<float> back(1000, -1.0F);
  device_->copy_to_device(ctx, a.as<float>(), host.data(), 4000);
  device_->copy(ctx, b.as<float>(), a.as<float>(), 4000);
  device_->copy_to_host(ctx, back.data(), b.as<float>(), 4000);
  EXPECT_EQ(back, host);
  device_->fill_zero(ctx, b.as<float>(), 2000);
  device_->copy_to_host(ctx, back.data(), b.as<float>(), 4000);
  EXPECT_EQ(back[499], 0.0F);
  EXPECT_EQ(back[500], 500.0F);
  device_->copy(ctx, nullptr, nullptr, 0);
  device_->fill_zero(ctx, nullptr, 0);
}

TEST_P(Memory, BufferGrowsByAnEighthAndNeverShrinks) {
  Buffer buffer(*device_);
  EXPECT_EQ(buffer.capacity(), 0);
  EXPECT_EQ(buffer.as<int>(), nullptr);
  buffer.resize(1000);
  EXPECT_EQ(buffer.capacity(), 1000);
  buffer.resize(1001);
  EXPECT_EQ(buffer.capacity(), 1125);
  EXPECT_EQ(buffer.bytes(), 1001);
  const void* const data = buffer.as<void>();
  buffer.resize(10);
  buffer.resize(1125);
  EXPECT_EQ(buffer.as<void>(), data);
  EXPECT_EQ(buffer.capacity(), 1125);
  buffer.resize(9000);
  EXPECT_EQ(buffer.capacity(), 9000);
  EXPECT_NE(buffer.resize_for<double>(2000), nullptr);
  EXPECT_EQ(buffer.bytes(), 16000);
  EXPECT_THROW(buffer.resize(-1), Error);
}

TEST_P(Memory, BufferKeepsItsContentsWhenItNeedNotGrow) {
  Context ctx{.device = device_.get(), .pool = &device_->pool()};
  Buffer buffer(*device_, 64);
  const std::int64_t in = 42;
  device_->copy_to_device(ctx, buffer.as<void>(), &in, 8);
  buffer.resize(8);
  buffer.resize(64);
  std::int64_t out = 0;
  device_->copy_to_host(ctx, &out, buffer.as<void>(), 8);
  EXPECT_EQ(out, 42);
}

TEST_P(Memory, BufferMoves) {
  Buffer a(*device_, 100);
  void* const data = a.as<void>();
  Buffer b(std::move(a));
  EXPECT_EQ(b.as<void>(), data);
  Buffer c;
  c = std::move(b);
  EXPECT_EQ(c.as<void>(), data);
  EXPECT_EQ(c.device(), device_.get());
  std::vector<Buffer> many;
  many.push_back(std::move(c));
  many.emplace_back(*device_, 50);
  EXPECT_EQ(many[0].as<void>(), data);
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         Memory,
                         ::testing::Values(DeviceKind::kCpu, DeviceKind::kCheck),
                         [](const auto& instance) {
                           return std::string(to_string(instance.param));
                         });

TEST(MemoryUse, CountsBuffersOfTheProcess) {
  const auto device = make_device({});
  const MemoryUse before = host_memory_use();
  {
    Buffer small(*device, 1000);
    HostBlock large;
    large.at_least(5 << 20);
    EXPECT_EQ(host_memory_use().now - before.now, 1000 + (5 << 20));
    EXPECT_GE(host_memory_use().heap - before.heap, 1000);
    small.resize(3000);
    EXPECT_EQ(host_memory_use().now - before.now, 3000 + (5 << 20));
    EXPECT_GE(host_memory_use().peak, host_memory_use().now);
  }
  EXPECT_EQ(host_memory_use().now, before.now);
  EXPECT_EQ(host_memory_use().heap, before.heap);
  EXPECT_GE(host_memory_use().peak, before.now + 3000 + (5 << 20));
}

TEST(Buffer, WithoutADeviceStaysEmpty) {
  Buffer buffer;
  buffer.resize(0);
  EXPECT_THROW(buffer.resize(1), Error);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Buffer, SaysWhatDidNotFit) {
  const auto device = make_device({});
  Buffer buffer(*device, 64);
  try {
    buffer.resize(std::int64_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    EXPECT_NE(std::string(error.what()).find("1.0 EiB"), std::string::npos) << error.what();
  }
  buffer.resize(100);  // still usable
  EXPECT_EQ(buffer.capacity(), 100);
}
#endif

TEST(Device, KindsHaveNames) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCheck, DeviceKind::kCuda}) {
    EXPECT_EQ(device_kind_from_string(to_string(kind)), kind);
  }
  try {
    device_kind_from_string("chekc");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
  }
  EXPECT_THROW(make_device({.kind = DeviceKind::kCpu, .threads = 0}), Error);
  EXPECT_EQ(make_device({.threads = 3})->pool().threads(), 3);
}

TEST(View, SlicesShareTheStride) {
  std::vector<float> data = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const Matrix<float> whole = matrix(data.data(), 3, 4);
  const Matrix<const float> part = whole.slice_rows(1, 3).slice_cols(2, 4);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 2);
  EXPECT_EQ(part.row(1)[1], 11.0F);
}

}  // namespace
}  // namespace weft
