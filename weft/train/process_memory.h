/// Private to train/: memory of this process, as the system and the C library count it.
#pragma once

#include <cstdint>

namespace weft::train {

std::int64_t peak_rss_bytes();

/// Resident now; 0 where the system does not say.
std::int64_t rss_bytes();

/// In use on the heap, blocks of tensor/host_memory.h left out; 0 where the C library does not say.
std::int64_t heap_bytes();

}  // namespace weft::train
