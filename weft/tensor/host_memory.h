/// Private to tensor/: host memory, and what AddressSanitizer knows of it.
#pragma once

#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WEFT_ADDRESS_SANITIZER 1
#endif

#if defined(WEFT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) (static_cast<void>(data), static_cast<void>(size))
#endif

namespace weft {

/// As Device::allocate and deallocate: 64-byte aligned, from 2 MiB on 2 MiB-aligned with huge pages
/// advised. Both take the same number of bytes.
void* allocate_host(std::int64_t bytes);
void deallocate_host(void* data, std::int64_t bytes) noexcept;

/// As Device::reserve, commit and unreserve.
void* reserve_host(std::int64_t bytes);
void commit_host(void* data, std::int64_t bytes);
void unreserve_host(void* data, std::int64_t bytes, std::int64_t committed) noexcept;

}  // namespace weft
