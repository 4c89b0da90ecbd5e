// Allocations of the process while it is watched: operator new and the malloc family, all threads.
#pragma once

#include <cstdint>
#include <string>

namespace weft::test {

struct AllocationCount {
  std::int64_t own = 0;             ///< by Weft, the standard library, the C library
  std::int64_t onednn = 0;          ///< by oneDNN inside its calls, and by its OpenMP runtime
  std::int64_t onednn_largest = 0;  ///< bytes of the largest of these
};

/// False under sanitizers, which have an allocator of their own.
bool can_watch_allocations();

/// Begins at zero.
void watch_allocations();
AllocationCount stop_watching();

/// The most frequent stacks of own allocations since watch_allocations(), one per line.
std::string describe_allocations();

}  // namespace weft::test
