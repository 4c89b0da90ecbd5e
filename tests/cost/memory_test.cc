// What blocks of memory count for, against the allocators.
#include "weft/cost/memory.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "weft/tensor/arena.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER
#include "weft/tensor/memory_use.h"

namespace weft::cost {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(BlockMemory, IsWhatADeviceCounts) {
#if defined(WEFT_ADDRESS_SANITIZER)
  GTEST_SKIP() << "nothing is mapped by itself";
#endif
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 1,
        5 * kMiB + 70'000, 16 * kMiB - 1, 16 * kMiB + 1, 33 * kMiB}) {
    void* const data = device->allocate(bytes);
    EXPECT_EQ(block_bytes(static_cast<double>(bytes)), static_cast<double>(device->memory_use()))
        << bytes;
    device->deallocate(data, bytes);
    EXPECT_EQ(device->memory_use(), 0);
  }
}

TEST(ArenaMemory, IsWhatArenaBlocksTake) {
  const std::int64_t before = host_memory_use().now;
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  Arena arena(*device);
  std::vector<ArenaBlock> blocks;
  ArenaMemory memory;
  const auto need = [&](std::size_t number, std::int64_t bytes) {
    while (blocks.size() <= number) {
      blocks.emplace_back(arena);
    }
    blocks[number].at_least(bytes);
    memory.need(number, static_cast<double>(bytes));
    EXPECT_EQ(memory.counted_bytes(), static_cast<double>(host_memory_use().now - before))
        << number << " " << bytes;
  };
  need(0, 100);
  need(1, kMiB);
  need(0, 90);        // has more
  need(0, 120);       // grows to 150, elsewhere
  need(2, 2 * kMiB);  // in the next chunk
  need(1, 2 * kMiB);
  need(3, 70 * kMiB);  // larger than any chunk
  need(4, kMiB);
}

}  // namespace
}  // namespace weft::cost
