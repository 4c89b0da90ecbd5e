// Blocks of memory count, and buffers grow, as the allocators say.
#include "weft/layout/blocks.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER
#include "weft/tensor/reserved_buffer.h"

namespace weft::layout {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(LayoutOfBlocks, IsWhatADeviceCounts) {
#if defined(WEFT_ADDRESS_SANITIZER)
  GTEST_SKIP() << "nothing is mapped by itself";
#endif
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1,
        5 * kMiB + 70'000, 16 * kMiB - 1, 16 * kMiB + 1, 33 * kMiB}) {
    void* const data = device->allocate(bytes);
    EXPECT_EQ(block_bytes(bytes), device->memory_use()) << bytes;
    device->deallocate(data, bytes);
    EXPECT_EQ(device->memory_use(), 0);
  }
}

TEST(LayoutOfBlocks, GrowAsBuffersDo) {
  for (const double growth : {kBufferGrowth, 0.0, 0.5}) {
    const auto device = make_device({.threads = 1, .buffer_growth = growth});
    Buffer buffer(*device);
    std::int64_t capacity = 0;
    for (const std::int64_t bytes : {800, 801, 700, 900, 1013, 5000, 5001}) {
      buffer.resize(bytes);
      capacity = bytes > capacity ? grown_capacity(bytes, capacity, growth) : capacity;
      EXPECT_EQ(buffer.capacity(), capacity) << bytes;
    }
    EXPECT_NEAR(expected_capacity(8000.0, growth),
                static_cast<double>(grown_capacity(8001, 8000, growth)), 1.0);
  }
}

/// By an eighth of what there is, in whole units of 2 MiB: 2, 4, ..., 18, 22, 26, 30, 34, 40.
TEST(LayoutOfBlocks, ReservedMemoryGrowsAsPredicted) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  ReservedBuffer buffer(*device, 100 * kMiB - 5);
  for (const std::int64_t bytes : {std::int64_t{1}, 2 * kMiB, 2 * kMiB + 1, 30 * kMiB,
                                   34 * kMiB + 1, 70 * kMiB, 97 * kMiB, 100 * kMiB - 5}) {
    for (std::int64_t so_far = buffer.capacity() + 1; so_far <= bytes; so_far += 1000) {
      buffer.grow(so_far);
    }
    buffer.grow(bytes);
    EXPECT_EQ(reserved_capacity(bytes, 100 * kMiB - 5), buffer.capacity()) << bytes;
  }
  EXPECT_EQ(buffer.capacity(), 100 * kMiB);
  EXPECT_EQ(reserved_capacity(30 * kMiB + 1, 100 * kMiB), 34 * kMiB);  // 33.75
  EXPECT_EQ(reserved_capacity(34 * kMiB + 1, 100 * kMiB), 40 * kMiB);  // 38.25
  EXPECT_EQ(reserved_capacity(0, 100 * kMiB), 0);
}

TEST(LayoutOfBlocks, HasItsPeakOnTheDevice) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  {
    const Buffer first(*device, 1000);
    const Buffer second(*device, 500);
  }
  const Buffer third(*device, 700);
  EXPECT_EQ(device->memory_use(), 700);
  EXPECT_EQ(device->memory_peak(), 1500);
}

}  // namespace
}  // namespace weft::layout
