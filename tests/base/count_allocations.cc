#include "tests/base/count_allocations.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string_view>
#include <vector>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

namespace weft::test {
namespace {

constexpr std::size_t kFrames = 24;
constexpr std::size_t kMostStacks = 4096;

struct Stack {
  std::array<void*, kFrames> frames;
  int size;
};

/// Addresses of a module's code.
struct Code {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

/// Modules that a stack is looked through for: those of oneDNN, and those that only pass on what
/// their caller asked for.
struct Modules {
  std::array<Code, 8> onednn;
  std::array<Code, 8> passing;
  std::size_t num_onednn = 0;
  std::size_t num_passing = 0;
};

std::atomic<bool> watching = false;
std::atomic<std::int64_t> own_count = 0;
std::atomic<std::int64_t> onednn_count = 0;
std::atomic<std::int64_t> onednn_largest = 0;
std::array<Stack, kMostStacks> stacks;
Modules modules;
thread_local bool inside = false;  // the counter's own work is not counted

template <std::size_t kSize>
bool contains(const std::array<Code, kSize>& codes, std::size_t count, void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return std::any_of(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(count),
                     [at](const Code& code) { return code.begin <= at && at < code.end; });
}

int add_module(dl_phdr_info* info, std::size_t /*size*/, void* /*data*/) {
  const std::string_view name = info->dlpi_name;
  const bool onednn = name.find("libdnnl") != name.npos || name.find("libgomp") != name.npos;
  const bool passing = name.find("libstdc++") != name.npos || name.find("libc.so") != name.npos;
  for (int i = 0; (onednn || passing) && i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0) {
      continue;
    }
    const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    const Code code{begin, begin + header.p_memsz};
    if (onednn && modules.num_onednn < modules.onednn.size()) {
      modules.onednn[modules.num_onednn++] = code;
    } else if (passing && modules.num_passing < modules.passing.size()) {
      modules.passing[modules.num_passing++] = code;
    }
  }
  return 0;
}

/// Whose allocation it is: the first caller that does not only pass on what it was asked for.
bool is_onednn(const Stack& stack, int first) {
  for (int i = first; i < stack.size; ++i) {
    void* const at = stack.frames[static_cast<std::size_t>(i)];
    if (!contains(modules.passing, modules.num_passing, at)) {
      return contains(modules.onednn, modules.num_onednn, at);
    }
  }
  return false;
}

[[gnu::noinline, maybe_unused]] void count_one(std::size_t bytes) {
  if (!watching.load(std::memory_order_relaxed) || inside) {
    return;
  }
  inside = true;
  Stack stack{};
  stack.size = backtrace(stack.frames.data(), kFrames);
  if (is_onednn(stack, 2)) {  // behind this function and the one that it counts
    ++onednn_count;
    const auto size = static_cast<std::int64_t>(bytes);
    std::int64_t largest = onednn_largest;
    while (size > largest && !onednn_largest.compare_exchange_weak(largest, size)) {
    }
  } else {
    const auto index = static_cast<std::size_t>(own_count++);
    if (index < kMostStacks) {
      stacks[index] = stack;
    }
  }
  inside = false;
}

std::string name_of(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) {
    return "?";
  }
  int status = 0;
  char* const demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name = demangled == nullptr ? info.dli_sname : demangled;
  std::free(demangled);
  return name.substr(0, name.find('('));
}

std::string text_of(const Stack& stack) {
  std::string text;
  for (int i = 2; i < std::min(stack.size, 14); ++i) {
    text += (i == 2 ? "" : " < ") + name_of(stack.frames[static_cast<std::size_t>(i)]);
  }
  return text;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool can_watch_allocations() {
  return false;
}
#else
bool can_watch_allocations() {
  return true;
}
#endif

void watch_allocations() {
  modules = {};
  dl_iterate_phdr(add_module, nullptr);
  std::array<void*, 2> first{};  // the first call loads a library
  backtrace(first.data(), static_cast<int>(first.size()));
  own_count = 0;
  onednn_count = 0;
  onednn_largest = 0;
  watching = true;
}

AllocationCount stop_watching() {
  watching = false;
  return {own_count, onednn_count, onednn_largest};
}

std::string describe_allocations() {
  std::map<std::string, int> counts;
  const auto known = std::min<std::int64_t>(own_count, kMostStacks);
  for (std::int64_t i = 0; i < known; ++i) {
    ++counts[text_of(stacks[static_cast<std::size_t>(i)])];
  }
  std::vector<std::pair<int, std::string>> sorted;
  for (const auto& [text, count] : counts) {
    sorted.emplace_back(count, text);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 40); ++i) {
    text += "\n  " + std::to_string(sorted[i].first) + " x " + sorted[i].second;
  }
  return text;
}

}  // namespace weft::test

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// glibc's own functions under other names.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* data, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* data);

void* malloc(std::size_t bytes) {
  weft::test::count_one(bytes);
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  weft::test::count_one(count * bytes);
  return __libc_calloc(count, bytes);
}

void* realloc(void* data, std::size_t bytes) {
  weft::test::count_one(bytes);
  return __libc_realloc(data, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  weft::test::count_one(bytes);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  weft::test::count_one(bytes);
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** data, std::size_t alignment, std::size_t bytes) {
  weft::test::count_one(bytes);
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? ENOMEM : 0;
}

void free(void* data) {
  __libc_free(data);
}
}

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  bytes = std::max<std::size_t>(bytes, 1);
  return alignment == 0 ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* const data = allocate(bytes, alignment)) {
    return data;
  }
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  weft::test::count_one(bytes);
  return allocate_or_throw(bytes, 0);
}

void* operator new[](std::size_t bytes) {
  weft::test::count_one(bytes);
  return allocate_or_throw(bytes, 0);
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  weft::test::count_one(bytes);
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}

void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  weft::test::count_one(bytes);
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}

void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  weft::test::count_one(bytes);
  return allocate(bytes, 0);
}

void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  weft::test::count_one(bytes);
  return allocate(bytes, 0);
}

void operator delete(void* data) noexcept {
  __libc_free(data);
}

void operator delete[](void* data) noexcept {
  __libc_free(data);
}

void operator delete(void* data, std::size_t /*bytes*/) noexcept {
  __libc_free(data);
}

void operator delete[](void* data, std::size_t /*bytes*/) noexcept {
  __libc_free(data);
}

void operator delete(void* data, std::align_val_t /*alignment*/) noexcept {
  __libc_free(data);
}

void operator delete[](void* data, std::align_val_t /*alignment*/) noexcept {
  __libc_free(data);
}

void operator delete(void* data, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  __libc_free(data);
}

void operator delete[](void* data, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  __libc_free(data);
}

#endif
