#include "weft/kernels/target.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "weft/base/error.h"

namespace weft::kernels {

namespace {

// The one limit of the process. oneDNN and Highway keep theirs as process state too.
struct Limit {
  std::mutex mutex;
  std::optional<Target> target;
};

Limit& process_limit() {
  static Limit limit;
  return limit;
}

#if defined(__x86_64__)

// Whether the operating system saves the AMX tiles (bits 17 and 18 of XCR0) and the processor has
// AMX with bf16 (leaf 7, EDX bits 22 and 24). This compiler's __builtin_cpu_supports lacks AMX.
bool has_amx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & (1U << 27)) == 0) {
    return false;
  }
  unsigned xcr0 = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
  if ((xcr0 & 0x60000U) != 0x60000U || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) {
    return false;
  }
  return (edx & (1U << 22)) != 0 && (edx & (1U << 24)) != 0;
}

Target detect() {
  // Highway asks the same of a processor for its AVX2: its kernels and the target agree.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("lzcnt")) {
    return Target::kSse4;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512cd")) {
    return Target::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vnni")) {
    return Target::kAvx512;
  }
  return has_amx_bf16() ? Target::kAmx : Target::kAvx512Bf16;
}

// What oneDNN lets itself use. It reads these variables when its first primitive is made, in any
// case of letters, and takes an unknown word for no limit. Asking it would settle its choice.
Target limit_of_environment() {
  constexpr std::array<std::pair<std::string_view, Target>, 9> kWords = {{
      {"SSE41", Target::kSse4},
      {"AVX", Target::kSse4},
      {"AVX2", Target::kAvx2},
      {"AVX2_VNNI", Target::kAvx2},
      {"AVX512_MIC", Target::kAvx2},
      {"AVX512_MIC_4OPS", Target::kAvx2},
      {"AVX512_CORE", Target::kAvx512},
      {"AVX512_CORE_VNNI", Target::kAvx512},
      {"AVX512_CORE_BF16", Target::kAvx512Bf16},
  }};
  const char* value = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (value == nullptr || *value == '\0') {
    value = std::getenv("DNNL_MAX_CPU_ISA");
  }
  std::string word = value == nullptr ? "" : value;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto* const it = std::find_if(kWords.begin(), kWords.end(),
                                      [&](const auto& known) { return known.first == word; });
  return it == kWords.end() ? Target::kAmx : it->second;
}

// What Highway must not use at `target`.
std::int64_t disabled_targets(Target target) {
  std::int64_t disabled = 0;
  if (target < Target::kAvx512) {
    disabled |= HWY_AVX3 | HWY_AVX3_DL;
  }
  if (target < Target::kAvx2) {
    disabled |= HWY_AVX2;
  }
  return disabled;
}

dnnl::cpu_isa onednn_isa(Target target) {
  constexpr std::array kIsa = {dnnl::cpu_isa::sse41, dnnl::cpu_isa::avx2,
                               dnnl::cpu_isa::avx512_core, dnnl::cpu_isa::avx512_core_bf16,
                               dnnl::cpu_isa::avx512_core_amx};
  return kIsa[static_cast<std::size_t>(target)];
}

// Whether oneDNN took the limit: it refuses once it has made its choice.
bool apply(Target target) {
  if (dnnl::set_max_cpu_isa(onednn_isa(target)) != dnnl::status::success) {
    return false;
  }
  hwy::DisableTargets(disabled_targets(target));
  // Highway keeps its choice from the first kernel on: have it choose again.
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

#else

Target detect() {
  return Target::kSse4;
}

Target limit_of_environment() {
  return Target::kSse4;
}

// There is one target, which needs no limit.
bool apply(Target) {
  return true;
}

#endif

}  // namespace

std::string_view to_string(Target target) {
  constexpr std::array<std::string_view, 5> kNames = {"sse4", "avx2", "avx512", "avx512_bf16",
                                                      "amx"};
  return kNames[static_cast<std::size_t>(target)];
}

Target best_target() {
  static const Target best = std::min(detect(), limit_of_environment());
  return best;
}

Target current_target() {
  Limit& limit = process_limit();
  const std::lock_guard lock(limit.mutex);
  return limit.target.value_or(best_target());
}

void limit_target(Target target) {
  if (target > best_target()) {
    fail(ErrorCode::kConfig,
         "limiting the instruction set to {}: this machine has {} at most, or ONEDNN_MAX_CPU_ISA "
         "allows no more; set numerics.target to that or lower",
         to_string(target), to_string(best_target()));
  }
  Limit& limit = process_limit();
  const std::lock_guard lock(limit.mutex);
  if (limit.target == target) {
    return;
  }
  if (limit.target) {
    fail(ErrorCode::kInternal,
         "limiting the instruction set to {}: this process already runs with {}", to_string(target),
         to_string(*limit.target));
  }
  // The best target is what both libraries use unasked, so it may also come late.
  if (!apply(target) && target != best_target()) {
    fail(ErrorCode::kInternal,
         "limiting the instruction set to {}: oneDNN has already made its choice; agree on the "
         "target before any matrix product runs",
         to_string(target));
  }
  limit.target = target;
}

}  // namespace weft::kernels
