// What blocks of memory count for, and how buffers grow, against the allocators.
#include "weft/layout/blocks.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "weft/tensor/arena.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER
#include "weft/tensor/memory_use.h"

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

// The places are one after the other in the chunk, and a chunk is twice as long as the one before.
TEST(LayoutOfArenas, HasTheChunksThatAreCounted) {
  const std::int64_t before = host_memory_use().now;
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Arena arena(*device);
  std::vector<ArenaBlock> blocks(5, ArenaBlock(arena));
  std::vector<std::int64_t> lengths(5, 0);
  ArenaChunks chunks;
  const auto need = [&](std::size_t number, std::int64_t bytes) {
    blocks[number].at_least(bytes);
    if (bytes > lengths[number]) {
      lengths[number] = grown_block(bytes, lengths[number]);
      chunks.take(lengths[number]);
    }
    EXPECT_EQ(chunks.counted_bytes(), host_memory_use().now - before) << number << " " << bytes;
  };
  need(0, 100);
  need(1, kMiB);
  need(0, 90);        // has more
  need(0, 120);       // grows to 150, elsewhere
  need(2, 2 * kMiB);  // in the next chunk
  need(1, 2 * kMiB);
  need(3, 70 * kMiB);  // larger than any chunk
  need(4, kMiB);
  ASSERT_EQ(chunks.chunks().size(), 4U);
  EXPECT_EQ(chunks.chunks()[1].bytes, 4 * kMiB);
  EXPECT_EQ(chunks.chunks()[2].bytes, 70 * kMiB);
  EXPECT_EQ(chunks.chunks()[3].bytes, 32 * kMiB);
}

}  // namespace
}  // namespace weft::layout
