// for each unique row:
//   g = sum of its segments up the tree of parts      (one entry: used where it lies)
//   new row, new state = rule(g, row, state)          in registers, or scratch of the thread
//   if all are finite: write state, write row (rounded), else count the row
//
// Memory-bound on large tables: a random read and write of each row and its state. Rows a few
// places ahead are prefetched. Everything between is in the first cache: a row of 128 columns and
// Adam's state are 1.5 KiB. A task is 128 rows, so a row's sum is one thread's and in one order.

#include "weft/kernels/cpu/sparse_update_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/sparse_update_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/error.h"
#include "weft/kernels/cpu/row_gradient-inl.h"
#include "weft/kernels/cpu/row_update-inl.h"
#include "weft/kernels/cpu/row_write-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/cpu/update_ahead-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

inline float* state_at(const RowTable& table, std::int64_t slot) {
  return reinterpret_cast<float*>(static_cast<char*>(table.state) + slot * table.state_stride);
}

/// Row-wise state among the floats of a row's state.
template <SparseOptimizerKind kRule, int kCols>
HWY_INLINE float* row_state(Columns<kCols> columns, float* state) {
  return kRule == SparseOptimizerKind::kRowWiseAdam ? state + columns.count() : state;
}

/// Puts a row into place i of the batch, and pads its gradient there.
template <SparseOptimizerKind kRule, class Element, int kCols>
HWY_INLINE void take_row(Columns<kCols> columns,
                         const RowTable& table,
                         std::int64_t slot,
                         std::int64_t i,
                         const RowScratch& s,
                         Batch& batch) {
  batch.slot[i] = slot;
  if constexpr (kCols == 0) {
    float* const copy = s.gradients + i * columns.padded();
    if (batch.g[i] == copy) {
      fill_tail(columns, copy, 0.0F);
    } else {
      batch.g[i] = pad(columns, batch.g[i], copy);
    }
  }
  if constexpr (Element::kIsBf16 || Element::kIsFp16) {
    batch.w[i] = static_cast<const char*>(table.weights) + slot * table.weight_stride;
  } else {
    batch.w[i] = read_row<Element>(columns, table, slot, s, i);
  }
  if constexpr (traits(kRule).is_row_wise) {
    batch.state[i] = *row_state<kRule>(columns, state_at(table, slot));
  }
}

/// New values of row i at `new_row`, and state in scratch. False if not all finite. What is padded
/// stays finite where all columns are: state that is divided by is padded with ones.
template <SparseOptimizerKind kRule, bool kL2, class Element, int kCols>
HWY_INLINE bool compute_row(Columns<kCols> columns,
                            const SparseUpdate& update,
                            const Batch& batch,
                            std::int64_t i,
                            float* new_row,
                            const RowScratch& s) {
  const RowTable& table = update.table;
  RowStep step{.g = batch.g[i],
               .w = batch.w[i],
               .m = nullptr,
               .v = nullptr,
               .rate = 0.0F,
               .keep = 0.0F,
               .new_w = new_row,
               .new_m = s.new_state,
               .new_v = s.new_state + columns.padded(),
               .weights = {},
               .state = {}};
  if constexpr (kRule != SparseOptimizerKind::kSgd &&
                kRule != SparseOptimizerKind::kRowWiseAdagrad) {
    const float* const state = state_at(table, batch.slot[i]);
    step.m = pad(columns, state, s.state, kRule == SparseOptimizerKind::kAdagrad ? 1.0F : 0.0F);
    if constexpr (kRule == SparseOptimizerKind::kAdam) {
      step.v = pad(columns, state + columns.count(), s.state + columns.padded(), 1.0F);
    }
  }
  bool finite = true;
  if constexpr (traits(kRule).is_row_wise) {
    step.rate = batch.rate[i];
    step.keep = batch.keep[i];
    finite = std::isfinite(batch.state[i]);
  }
  apply_rule<kRule, kL2, Element>(columns, update.params, step);
  return finite && step.weights.is_below(weight_limit(Element::of(table))) &&
         step.state.is_below(kInfinity);
}

template <SparseOptimizerKind kRule, int kCols>
HWY_INLINE void write_state(Columns<kCols> columns,
                            const SparseUpdate& update,
                            const Batch& batch,
                            std::int64_t i,
                            const RowScratch& s) {
  if constexpr (kRule == SparseOptimizerKind::kSgd) {
    return;
  }
  float* const state = state_at(update.table, batch.slot[i]);
  if constexpr (kRule != SparseOptimizerKind::kRowWiseAdagrad) {
    copy_floats(columns, s.new_state, state);
  }
  if constexpr (kRule == SparseOptimizerKind::kAdam) {
    copy_floats(columns, s.new_state + columns.padded(), state + columns.count());
  }
  if constexpr (traits(kRule).is_row_wise) {
    *row_state<kRule>(columns, state) = batch.state[i];
  }
}

/// False where the norm is not finite.
bool limit_norm(const UpdateParams& p, float square, float* values, std::int64_t padded) {
  if (!std::isfinite(square)) {
    return false;
  }
  const float norm = std::sqrt(square);
  if (norm > p.max_norm) {
    scale_row(values, padded, p.max_norm / norm);
  }
  return true;
}

/// Computes and writes unique row u, place i of the batch. False if it is left as it was.
template <SparseOptimizerKind kRule, bool kL2, class Element, int kCols>
HWY_INLINE bool update_row(Columns<kCols> columns,
                           const SparseUpdate& update,
                           const std::uint32_t* words,
                           const Batch& batch,
                           std::int64_t u,
                           std::int64_t i,
                           const RowScratch& s) {
  alignas(64) float own[std::max(kCols, 1)];  // stays in registers where it can
  float* const new_row = kCols > 0 ? own : s.new_row;
  if (!compute_row<kRule, kL2, Element>(columns, update, batch, i, new_row, s)) {
    return false;
  }
  if (update.params.max_norm > 0.0F) {
    fill_tail(columns, new_row, 0.0F);
    const float square = square_sum<false>(columns, new_row, nullptr, 0.0F, s.blocks);
    if (!limit_norm(update.params, square, new_row, s.padded)) {
      return false;
    }
  }
  write_state<kRule>(columns, update, batch, i, s);
  write_row<Element>(columns, update, words, u, new_row, s);
  return true;
}

/// Gradients of unique rows [first, first + count), where they lie or in the scratch.
template <int kCols>
HWY_INLINE void take_gradients(Columns<kCols> columns,
                               const SparseUpdate& update,
                               Range rows,
                               const float* gradients,
                               const RowScratch& s,
                               Batch& batch) {
  const RowRuns& runs = update.runs;
  if (gradients != nullptr) {
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      batch.g[i] = gradients + (rows.begin + i) * columns.count();
    }
    return;
  }
  const std::int64_t entry = runs.segment_entries[runs.row_segments[rows.begin]];
  const std::int64_t end = runs.segment_entries[runs.row_segments[rows.end]];
  if (end - entry == rows.size() && runs.weights == nullptr) {
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      batch.g[i] = runs.grads[entry + i];  // one entry each
    }
    return;
  }
  for (std::int64_t i = 0; i < rows.size(); ++i) {
    batch.g[i] = row_gradient(update, rows.begin + i, s, s.gradients + i * columns.padded());
  }
}

template <SparseOptimizerKind kRule, bool kL2, int kCols, class Element>
RowOverflow update_range_by(const SparseUpdate& update, Range range) {
  const float* const gradients = update.gradients;
  const RowTable& table = update.table;
  const RowScratch s = make_scratch(table.cols, update.parts);
  const Columns<kCols> columns(table.cols);
  RowWords<Element, kCols> words(columns, update, s);
  UpdateAhead<kRule, kCols, Element> ahead(update, range.begin, gradients);
  RowOverflow overflow;
  Batch batch{};
  for (std::int64_t first = range.begin; first < range.end; first += kBatch) {
    const Range rows{first, std::min(first + kBatch, range.end)};
    ahead.advance(rows.end);
    words.take(rows);
    take_gradients(columns, update, rows, gradients, s, batch);
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      take_row<kRule, Element>(columns, table, update.runs.slots[first + i], i, s, batch);
      if constexpr (traits(kRule).is_row_wise) {
        batch.mean_square[i] =
            square_sum<kL2>(columns, batch.g[i], static_cast<const float*>(batch.w[i]),
                            update.params.weight_decay, s.blocks) /
            static_cast<float>(columns.count());
      }
    }
    if constexpr (traits(kRule).is_row_wise) {
      make_rates<kRule, kL2>(update.params, batch);
    }
    words.draw();
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      if (!update_row<kRule, kL2, Element>(columns, update, words.of(i), batch, first + i, i, s)) {
        overflow.add(table.whole_row(update.runs.rows[first + i]));
      }
    }
  }
  return overflow;
}

/// Calls run.operator()<rule, whether decay is L2>(): the choice is made once per task.
template <class Run>
HWY_INLINE RowOverflow with_rule(const UpdateParams& p, const Run& run) {
  const bool l2 = p.decay == WeightDecay::kL2;
  switch (p.rule) {
    case SparseOptimizerKind::kSgd:
      return l2 ? run.template operator()<SparseOptimizerKind::kSgd, true>()
                : run.template operator()<SparseOptimizerKind::kSgd, false>();
    case SparseOptimizerKind::kAdagrad:
      return l2 ? run.template operator()<SparseOptimizerKind::kAdagrad, true>()
                : run.template operator()<SparseOptimizerKind::kAdagrad, false>();
    case SparseOptimizerKind::kRowWiseAdagrad:
      return l2 ? run.template operator()<SparseOptimizerKind::kRowWiseAdagrad, true>()
                : run.template operator()<SparseOptimizerKind::kRowWiseAdagrad, false>();
    case SparseOptimizerKind::kAdam:
      return l2 ? run.template operator()<SparseOptimizerKind::kAdam, true>()
                : run.template operator()<SparseOptimizerKind::kAdam, false>();
    case SparseOptimizerKind::kRowWiseAdam:
      return l2 ? run.template operator()<SparseOptimizerKind::kRowWiseAdam, true>()
                : run.template operator()<SparseOptimizerKind::kRowWiseAdam, false>();
  }
  return {};
}

/// Usual widths get code of their own where jobs are fast: not with L2 decay, which few use, and
/// not on the oldest processors. The rest of it was two fifths of what this file compiled to.
template <bool kL2>
constexpr bool has_usual_widths() {
  return !kL2 && HWY_TARGET != HWY_SSE4;
}

template <SparseOptimizerKind kRule, bool kL2, int kCols>
RowOverflow update_range_of(const SparseUpdate& update, Range range) {
  if constexpr (has_code_per_type(kRule)) {
    switch (update.table.dtype) {
      case DType::kFloat32:
        return update_range_by<kRule, kL2, kCols, KnownElement<DType::kFloat32>>(update, range);
      case DType::kBFloat16:
        return update_range_by<kRule, kL2, kCols, KnownElement<DType::kBFloat16>>(update, range);
      case DType::kFloat16:
        return update_range_by<kRule, kL2, kCols, KnownElement<DType::kFloat16>>(update, range);
      default:
        break;
    }
  }
  return update_range_by<kRule, kL2, kCols, AnyElement>(update, range);
}

RowOverflow update_range(const SparseUpdate& update, Range range) {
  return with_rule(update.params, [&]<SparseOptimizerKind kRule, bool kL2>() HWY_ATTR {
    if constexpr (has_usual_widths<kL2>()) {
      switch (update.table.cols) {
        case 16:
          return update_range_of<kRule, kL2, 16>(update, range);
        case 32:
          return update_range_of<kRule, kL2, 32>(update, range);
        case 64:
          return update_range_of<kRule, kL2, 64>(update, range);
        case 128:
          return update_range_of<kRule, kL2, 128>(update, range);
        default:
          break;
      }
    }
    return update_range_by<kRule, kL2, 0, AnyElement>(update, range);
  });
}

void gradient_square_range(const BlockSquares& job, Range range) {
  const SparseUpdate& update = job.update;
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const g = pad(columns, update.gradients + u * table.cols, s.gradients);
    const float* const w = update.params.decay == WeightDecay::kL2
                               ? read_row<AnyElement>(columns, table, update.runs.slots[u], s, 0)
                               : nullptr;
    float* const sums = job.out + u * statistic_blocks(table.cols);
    if (w != nullptr) {
      squares<true>(g, w, update.params.weight_decay, s.padded, sums);
    } else {
      squares<false>(g, nullptr, 0.0F, s.padded, sums);
    }
  }
}

template <SparseOptimizerKind kRule, bool kL2>
RowOverflow statistic_range_by(const StatisticUpdate& job, Range range) {
  const SparseUpdate& update = job.update;
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  RowWords<AnyElement, 0> words(columns, update, s);
  RowOverflow overflow;
  Batch batch{};
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    float* const kept = job.values + u * table.cols;
    words.take({u, u + 1});
    batch.g[0] = kept;
    take_row<kRule, AnyElement>(columns, table, update.runs.slots[u], 0, s, batch);
    if constexpr (traits(kRule).is_row_wise) {
      batch.mean_square[0] = job.row_statistic[u];
      make_rates<kRule, kL2>(update.params, batch);
    }
    if (!compute_row<kRule, kL2, AnyElement>(columns, update, batch, 0, s.new_row, s)) {
      overflow.add(table.whole_row(update.runs.rows[u]));
      *kept = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    write_state<kRule>(columns, update, batch, 0, s);
    if (update.params.max_norm > 0.0F) {
      copy_floats(columns, s.new_row, kept);
    } else {
      words.draw();
      write_row<AnyElement>(columns, update, words.of(0), u, s.new_row, s);
    }
  }
  return overflow;
}

RowOverflow statistic_range(const StatisticUpdate& job, Range range) {
  return with_rule(job.update.params, [&]<SparseOptimizerKind kRule, bool kL2>() HWY_ATTR {
    return statistic_range_by<kRule, kL2>(job, range);
  });
}

void row_square_range(const RowSquares& job, Range range) {
  const std::int64_t cols = job.cols;
  const Columns<0> columns(cols);
  const RowScratch s = make_scratch(cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const row = pad(columns, job.rows + u * cols, s.gradients);
    squares<false>(row, nullptr, 0.0F, s.padded, job.out + u * statistic_blocks(cols));
  }
}

RowOverflow store_range(const StatisticUpdate& job, Range range) {
  const SparseUpdate& update = job.update;
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  RowWords<AnyElement, 0> words(columns, update, s);
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const values = job.values + u * table.cols;
    if (std::isnan(*values)) {
      continue;  // counted when it was computed
    }
    words.take({u, u + 1});
    copy_floats(columns, values, s.new_row);
    fill_tail(columns, s.new_row, 0.0F);
    if (!limit_norm(update.params, job.row_statistic[u], s.new_row, s.padded)) {
      overflow.add(table.whole_row(update.runs.rows[u]));
      continue;
    }
    words.draw();
    write_row<AnyElement>(columns, update, words.of(0), u, s.new_row, s);
  }
  return overflow;
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(update_range);
HWY_EXPORT(gradient_square_range);
HWY_EXPORT(statistic_range);
HWY_EXPORT(row_square_range);
HWY_EXPORT(store_range);

RowOverflow update_block(const SparseUpdate& update, Range rows) {
  return HWY_DYNAMIC_DISPATCH(update_range)(update, rows);
}

void gradient_square_block(const BlockSquares& job, Range rows) {
  HWY_DYNAMIC_DISPATCH(gradient_square_range)(job, rows);
}

RowOverflow statistic_block(const StatisticUpdate& job, Range rows) {
  return HWY_DYNAMIC_DISPATCH(statistic_range)(job, rows);
}

void row_square_block(const RowSquares& job, Range rows) {
  HWY_DYNAMIC_DISPATCH(row_square_range)(job, rows);
}

RowOverflow store_block(const StatisticUpdate& job, Range rows) {
  return HWY_DYNAMIC_DISPATCH(store_range)(job, rows);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
