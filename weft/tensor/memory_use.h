/// What this process has asked for: memory of tables, exchanges, activations and whatever else lies
/// in a Buffer of a CPU device or in a HostBlock. Not what std::vector and libraries take from the
/// heap. The one number of Weft that belongs to the process and not to a rank, like its resident
/// memory, with which it is to be compared.
#pragma once

#include <cstdint>

namespace weft {

/// Bytes of host memory, counted as described above.
struct MemoryUse {
  std::int64_t now = 0;   ///< bytes
  std::int64_t peak = 0;  ///< most at one time, since the process began
  std::int64_t heap = 0;  ///< of `now`: blocks below 2 MiB, which come from the heap too
};

/// Reads the counters of this process. From any thread.
MemoryUse host_memory_use();

}  // namespace weft
