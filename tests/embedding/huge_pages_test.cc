// A large table lies in huge pages, where the system gives them.

#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/embedding/sparse_job.h"

namespace weft::embedding::test {
namespace {

constexpr std::int64_t kBytes = std::int64_t{64} << 20;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Anonymous memory of the process in huge pages.
std::int64_t huge_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string key;
  while (rollup >> key) {
    if (key == "AnonHugePages:") {
      std::int64_t kib = 0;
      rollup >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

/// What the system gives to memory that is aligned, advised and written.
std::int64_t huge_bytes_of_control() {
  const std::int64_t before = huge_bytes();
  const auto size = static_cast<std::size_t>(kBytes + kHugePage);
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return 0;
  }
  madvise(data, size, MADV_HUGEPAGE);
  std::memset(data, 1, size);
  const std::int64_t given = huge_bytes() - before;
  munmap(data, size);
  return given;
}

TEST(HugePages, HoldALargeTable) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has its own memory";
#endif
  if (huge_bytes_of_control() < kBytes) {
    GTEST_SKIP() << "the system gives no huge pages";
  }
  for (const auto type : {SparseOptimizerKind::kRowWiseAdagrad, SparseOptimizerKind::kAdam}) {
    for (const int threads : {1, 2}) {
      const std::unique_ptr<Device> device = make_device({.threads = threads});
      const std::int64_t before = huge_bytes();
      spec::Table table = make_table(kBytes / 512, 128);
      table.optimizer.type = type;
      const auto shard = whole(*device, table);
      ASSERT_GE(shard->bytes(), kBytes);
      // All but the last one, which may be smaller than a huge page.
      EXPECT_GE(huge_bytes() - before, shard->bytes() - kHugePage) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace weft::embedding::test
