// for each block of columns:  for each addition:  row of scratch = row + row
//
// Bound by memory: 4 bytes read per number of a term, 4 written per number of the sum. A block is a
// task.

#include "weft/kernels/term_sums.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/tasks.h"

namespace weft::kernels {
namespace {

// 16 KiB of floats: a few rows of one block stay in the first-level cache. A result does not depend
// on it, as every element is added on its own.
constexpr std::int64_t kSumBlock = 4096;

void add_rows(float* to, const float* a, const float* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = a[i] + b[i];
  }
}

void sum_block(const TermSum& job, Range block) {
  float* const out = job.out + block.begin;
  const auto row = [&](std::int64_t sum) { return job.scratch + sum * job.stride + block.begin; };
  const auto operand = [&](const SumOperand& from) -> const float* {
    return from.term < 0 ? row(from.sum) : job.terms[at(from.term)] + block.begin;
  };
  for (std::size_t i = 0; i < job.additions.size(); ++i) {
    const Addition& addition = job.additions[i];
    float* const to = i + 1 == job.additions.size() ? out : row(addition.sum);
    add_rows(to, operand(addition.a), operand(addition.b), block.size());
  }
  if (!job.additions.empty()) {
    return;
  }
  if (job.only.term < 0) {
    std::fill_n(out, block.size(), 0.0F);
  } else if (operand(job.only) != out) {
    std::copy_n(operand(job.only), block.size(), out);
  }
}

}  // namespace

void cpu::sum_terms(Context& ctx, std::span<const TermSum> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return (jobs[at(i)].count + kSumBlock - 1) / kSumBlock; },
      [&](std::int64_t i, std::int64_t task) {
        const TermSum& job = jobs[at(i)];
        sum_block(job, {task * kSumBlock, std::min(job.count, (task + 1) * kSumBlock)});
      });
}

}  // namespace weft::kernels
