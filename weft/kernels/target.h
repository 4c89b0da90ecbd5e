/// The instruction set of the process: what its kernels, Highway's and oneDNN's, may use.
///
/// Ranks agree on the lowest common target before step 0, so that the same bits come out of
/// machines of different kinds: bits are promised at equal target.
#pragma once

#include <cstdint>
#include <string_view>

#include "weft/layout/products.h"

namespace weft::kernels {

/// Instruction sets, lowest first; on machines that are not x86, kSse4 stands for the only one.
enum class Target : std::uint8_t { kSse4, kAvx2, kAvx512, kAvx512Bf16, kAmx };

/// As in configurations: "sse4", "avx2", "avx512", "avx512_bf16", "amx".
std::string_view to_string(Target target);

/// The highest target of this machine that oneDNN may use: ONEDNN_MAX_CPU_ISA, its own limit, holds
/// for all kernels (AVX counts as sse4), so that a machine can stand for any lower one. Reads cpuid
/// and the environment, once; never settles oneDNN's choice.
Target best_target();

/// The target in force: that of limit_target(), else best_target().
Target current_target();

/// Whether products of bf16 run in instructions of their own at `target`. Elsewhere oneDNN has
/// plain loops for them, or nothing: their operands are widened to fp32 and multiplied as such
/// (pack.h).
constexpr bool has_bf16_products(Target target) {
  return layout::packing_of(target).has_bf16_products;
}

/// How products of the target in force read their operands.
inline layout::Packing current_packing() {
  return layout::packing_of(current_target());
}

/// Limits every kernel of the process to `target`. It is a property of the process, since oneDNN's
/// is: ranks that are threads share it. Call it before any kernel runs and before any Matmul is
/// used; only the best target may come late, and a second call with the same target does
/// nothing. Thread-safe. Throws Error(kConfig) when the machine lacks the target, and
/// Error(kInternal) when it is too late or another target was set.
void limit_target(Target target);

}  // namespace weft::kernels
