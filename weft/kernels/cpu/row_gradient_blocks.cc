// for each unique row:    its segments up the tree of parts, times the factor
// for each partial sum:   its segments up the tree below its node
//
// Memory-bound: one read of every entry's vector, one write per sum.

#include "weft/kernels/cpu/sparse_update_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/row_gradient_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/row_gradient-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

inline SparseUpdate update_of(const RowRuns& runs, std::int64_t cols, std::int64_t parts) {
  SparseUpdate update;
  update.table.cols = cols;
  update.runs = runs;
  update.parts = parts;
  return update;
}

inline void scale_floats(std::int64_t cols, float factor, float* values) {
  for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, values + i)), d, values + i);
  });
}

void sum_range(const GradientSum& sum, Range range) {
  const SparseUpdate update = update_of(sum.runs, sum.cols, sum.parts);
  const std::int64_t cols = sum.cols;
  const Columns<0> columns(cols);
  const RowScratch scratch = make_scratch(cols, update.parts);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    float* const to = sum.out + u * cols;
    const float* const g = row_gradient(update, u, scratch, to);
    if (g != to) {
      copy_floats(columns, g, to);
    }
    if (sum.factor != 1.0F) {
      scale_floats(cols, sum.factor, to);
    }
  }
}

void sum_segment_range(const PartialSum& partial, Range range) {
  const std::int64_t cols = partial.cols;
  const RowScratch scratch = make_scratch(cols, partial.parts);
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    float* const out = partial.vectors + i * cols;
    const Range segments{partial.segments[i], partial.segments[i + 1]};
    const float* const sum = sum_segments(partial.runs, segments, cols, scratch, out);
    if (sum != out) {
      copy_floats(Columns<0>(cols), sum, out);
    }
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(sum_range);
HWY_EXPORT(sum_segment_range);

void sum_gradient_block(const GradientSum& sum, Range rows) {
  HWY_DYNAMIC_DISPATCH(sum_range)(sum, rows);
}

void sum_partial_block(const PartialSum& partial, Range sums) {
  HWY_DYNAMIC_DISPATCH(sum_segment_range)(partial, sums);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
