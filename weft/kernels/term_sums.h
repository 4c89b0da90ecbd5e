/// Sums of rows of floats by a list of additions: partial sums of ranks up the tree over parts.
///
/// Order      the additions, one after the other, element by element in fp32: every device and
///            number of threads gives the same bits.
/// Ownership  terms are in memory that the context's device addresses, also those of other ranks;
///            scratch and sums are in its own. Lists are the caller's, and are read before a call
///            returns. Jobs of one call write different places.
/// Cost       reads every term once and writes the sum once; on the CPU a block of columns at a
///            time, so that sums on their way stay in the first-level cache.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/device.h"

namespace weft::kernels {

/// A term, or the sum of an addition before.
struct SumOperand {
  std::int64_t term = -1;  ///< number of a row of terms; negative: `sum`
  std::int64_t sum = -1;   ///< row of scratch; negative too: nothing
};

/// sum = a + b, in a row of scratch.
struct Addition {
  std::int64_t sum = 0;
  SumOperand a;
  SumOperand b;
};

/// A row of sums.
struct TermSum {
  std::span<const Addition> additions = {};  ///< the last one's sum is the total, and goes to `out`
  SumOperand only = {};                      ///< of no addition: the total, zeros without a term
  std::span<const float* const> terms = {};  ///< where their numbers begin
  float* scratch = nullptr;                  ///< [rows of scratch][stride]
  std::int64_t stride = 0;                   ///< elements
  float* out = nullptr;                      ///< [count] may be one of the terms
  std::int64_t count = 0;
};

/// Writes the sums of all jobs.
void sum_terms(Context& ctx, std::span<const TermSum> jobs);

namespace cpu {
/// In one task pool.
void sum_terms(Context& ctx, std::span<const TermSum> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void sum_terms(Context& ctx, std::span<const TermSum> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void sum_terms(Context& ctx, std::span<const TermSum> jobs);
}  // namespace reference

}  // namespace weft::kernels
