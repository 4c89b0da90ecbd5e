#include "weft/train/process_memory.h"

#include <algorithm>
#include <fstream>

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include "weft/tensor/memory_use.h"

namespace weft::train {

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t rss_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return statm ? resident * sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t heap_bytes() {
  // A sanitizer's allocator leaves the C library's heap unused, and asking for it then crashes.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto info = mallinfo2();
  const auto used = static_cast<std::int64_t>(info.uordblks + info.hblkhd);
  return std::max<std::int64_t>(used - host_memory_use().heap, 0);
#else
  return 0;
#endif
}

}  // namespace weft::train
