// for each unique row:
//   g = sum of its segments up the tree of parts      (one entry: used where it lies)
//   new row, new state = rule(g, row, state)          in scratch of the thread
//   if all are finite: write state, write row (rounded), else count the row
//
// Memory-bound on large tables: a random read and write of each row and its state. Rows a few
// places ahead are prefetched. Everything between is in the first cache: a row of 128 columns and
// Adam's state are 1.5 KiB. A task is 128 rows, so a row's sum is one thread's and in one order.

#include "weft/kernels/sparse_update.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/sparse_update.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/error.h"
#include "weft/kernels/cpu/row_update-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

// Rows whose memory is asked for ahead: a miss costs 100 to 300 ns, a row 25 to 150 ns of work, and
// 16 rows of 128 columns with gradient and state still fit the first cache.
constexpr std::int64_t kRowsAhead = 16;

inline RowScratch make_scratch(std::int64_t cols, std::int64_t parts) {
  const std::int64_t blocks = statistic_blocks(cols);
  const std::int64_t padded = blocks * kStatisticBlock;
  // Random words are made for four vectors of up to 16 lanes at a time.
  const std::int64_t random = (padded + 63) / 64 * 64;
  const std::int64_t slots = tree_slots(parts) + 1;
  float* at = ThreadScratch::get((8 + slots) * padded + random + blocks * 16);
  const auto take = [&at](std::int64_t floats) {
    float* const taken = at;
    at += floats;
    return taken;
  };
  RowScratch scratch{};
  scratch.padded = padded;
  scratch.row = take(padded);
  scratch.gradient = take(padded);
  scratch.state = take(2 * padded);
  scratch.new_row = take(padded);
  scratch.new_state = take(2 * padded);
  scratch.half = reinterpret_cast<std::uint16_t*>(take(padded));
  scratch.blocks = take(blocks * 16);
  scratch.random = reinterpret_cast<std::uint32_t*>(take(random));
  scratch.slots = take(slots * padded);
  return scratch;
}

template <bool kWeighted, class D>
HWY_INLINE hn::Vec<D> entry_term(D d, const RowRuns& runs, std::int64_t entry, std::int64_t col) {
  const auto vector = hn::LoadU(d, runs.grads[entry] + col);
  if constexpr (kWeighted) {
    return hn::Mul(hn::Set(d, runs.weights[entry]), vector);
  } else {
    return vector;
  }
}

/// The entries one after the other; sums stay in registers, two vectors of columns at a time.
template <bool kWeighted>
void sum_entries(const RowRuns& runs, Range entries, std::int64_t cols, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + 2 * lanes <= cols; col += 2 * lanes) {
    auto sum0 = entry_term<kWeighted>(d, runs, entries.begin, col);
    auto sum1 = entry_term<kWeighted>(d, runs, entries.begin, col + lanes);
    for (std::int64_t e = entries.begin + 1; e < entries.end; ++e) {
      sum0 = hn::Add(sum0, entry_term<kWeighted>(d, runs, e, col));
      sum1 = hn::Add(sum1, entry_term<kWeighted>(d, runs, e, col + lanes));
    }
    hn::StoreU(sum0, d, out + col);
    hn::StoreU(sum1, d, out + col + lanes);
  }
  for_columns(col, cols, [&](auto tag, std::int64_t at) HWY_ATTR {
    auto sum = entry_term<kWeighted>(tag, runs, entries.begin, at);
    for (std::int64_t e = entries.begin + 1; e < entries.end; ++e) {
      sum = hn::Add(sum, entry_term<kWeighted>(tag, runs, e, at));
    }
    hn::StoreU(sum, tag, out + at);
  });
}

/// Sums segments up the tree of parts; absent parts cost nothing.
struct PartTree {
  const RowRuns& runs;
  std::int64_t cols;
  const RowScratch& scratch;
  std::int64_t next;  ///< the first segment not yet summed
  std::int64_t end;

  [[nodiscard]] float* slot(int depth) const { return scratch.slots + depth * scratch.padded; }

  /// The sum of a segment: in its only vector, or in `out`.
  const float* segment(std::int64_t index, float* out) const {
    const Range entries{runs.segment_entries[index], runs.segment_entries[index + 1]};
    if (runs.weights != nullptr) {
      sum_entries<true>(runs, entries, cols, out);
      return out;
    }
    if (entries.size() == 1) {
      return runs.grads[entries.begin];
    }
    sum_entries<false>(runs, entries, cols, out);
    return out;
  }

  [[nodiscard]] bool is_inside(std::int64_t index, Range node) const {
    return index < end && runs.segment_parts[index] < node.end;
  }

  /// The sum over the parts of `node`, or null where there is none. Segments and parts ascend, so
  /// the next segment is in the node or behind it. Uses slots from `depth` on.
  const float* sum(Range node, int depth) {
    if (!is_inside(next, node)) {
      return nullptr;
    }
    if (!is_inside(next + 1, node)) {
      return segment(next++, slot(depth));
    }
    const std::int64_t middle = tree_split(node.begin, node.end);
    const float* const left = sum({node.begin, middle}, depth);
    const float* const right = sum({middle, node.end}, left == nullptr ? depth : depth + 1);
    if (left == nullptr || right == nullptr) {
      return left == nullptr ? right : left;
    }
    float* const out = slot(depth);
    for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, out + i);
    });
    return out;
  }
};

/// The gradient of unique row u: where it lies, [cols].
inline const float* row_gradient(const SparseUpdate& update,
                                 std::int64_t u,
                                 const RowScratch& scratch) {
  const RowRuns& runs = update.runs;
  PartTree tree{runs, update.table.cols, scratch, runs.row_segments[u], runs.row_segments[u + 1]};
  return tree.sum({0, update.parts}, 0);
}

inline float* state_at(const RowTable& table, std::int64_t row) {
  return reinterpret_cast<float*>(static_cast<char*>(table.state) + row * table.state_stride);
}

/// New values in scratch. `mean` is that of squares, for row-wise rules. False if not all finite.
bool compute_row(const SparseUpdate& update,
                 std::int64_t row,
                 const float* g,
                 const float* w,
                 float mean,
                 const RowScratch& s) {
  const RowTable& table = update.table;
  const UpdateParams& p = update.params;
  const std::int64_t cols = table.cols;
  const float* const state = table.state == nullptr ? nullptr : state_at(table, row);
  RowStep step{g, w, nullptr, nullptr, s.new_row, s.new_state, s.new_state + s.padded, s.padded};
  const bool l2 = p.decay == WeightDecay::kL2;
  if (p.rule != UpdateRule::kSgd && p.rule != UpdateRule::kRowWiseAdagrad) {
    step.m = pad(state, cols, s.padded, s.state);
  }
  bool finite = true;
  switch (p.rule) {
    case UpdateRule::kSgd:
      l2 ? sgd<true>(p, step) : sgd<false>(p, step);
      break;
    case UpdateRule::kAdagrad:
      l2 ? adagrad<true>(p, step) : adagrad<false>(p, step);
      zero_tail(step.new_w, cols, s.padded);  // 0/0 where eps is 0
      finite = all_finite(step.new_m, s.padded);
      break;
    case UpdateRule::kRowWiseAdagrad:
      *step.new_m = row_wise_adagrad(p, step, *state, mean);
      finite = std::isfinite(*step.new_m);
      break;
    case UpdateRule::kAdam:
      step.v = pad(state + cols, cols, s.padded, s.state + s.padded);
      l2 ? adam<true>(p, step) : adam<false>(p, step);
      zero_tail(step.new_w, cols, s.padded);
      finite = all_finite(step.new_m, s.padded) && all_finite(step.new_v, s.padded);
      break;
    case UpdateRule::kRowWiseAdam:
      *step.new_v = l2 ? row_wise_adam<true>(p, step, state[cols], mean)
                       : row_wise_adam<false>(p, step, state[cols], mean);
      zero_tail(step.new_w, cols, s.padded);
      finite = all_finite(step.new_m, s.padded) && std::isfinite(*step.new_v);
      break;
  }
  return finite && all_storable(table.dtype, step.new_w, s.padded);
}

void write_state(const SparseUpdate& update, std::int64_t row, const RowScratch& s) {
  const RowTable& table = update.table;
  if (table.state == nullptr) {
    return;
  }
  float* const state = state_at(table, row);
  const auto bytes = static_cast<std::size_t>(table.cols) * sizeof(float);
  switch (update.params.rule) {
    case UpdateRule::kSgd:
      break;
    case UpdateRule::kRowWiseAdagrad:
      *state = *s.new_state;
      break;
    case UpdateRule::kAdagrad:
      std::memcpy(state, s.new_state, bytes);
      break;
    case UpdateRule::kAdam:
      std::memcpy(state, s.new_state, bytes);
      std::memcpy(state + table.cols, s.new_state + s.padded, bytes);
      break;
    case UpdateRule::kRowWiseAdam:
      std::memcpy(state, s.new_state, bytes);
      state[table.cols] = s.new_state[s.padded];
      break;
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

bool update_row(const SparseUpdate& update, std::int64_t row, const float* g, const RowScratch& s) {
  const RowTable& table = update.table;
  const UpdateParams& p = update.params;
  g = pad(g, table.cols, s.padded, s.gradient);
  const float* const w = read_row(table, row, s);
  float mean = 0.0F;
  if (is_row_wise(p.rule)) {
    gradient_squares(p, g, w, s.padded, s.blocks);
    mean = mean_square(s.blocks, table.cols);
  }
  if (!compute_row(update, row, g, w, mean, s)) {
    return false;
  }
  if (p.max_norm > 0.0F) {
    squares<false>(s.new_row, nullptr, 0.0F, s.padded, s.blocks);
    const float square = block_tree_sum(s.blocks, statistic_blocks(table.cols));
    if (!limit_norm(p, square, s.new_row, s.padded)) {
      return false;
    }
  }
  write_state(update, row, s);
  write_row(update, row, s.new_row, s);
  return true;
}

/// Asks for the memory of the unique row kRowsAhead places behind u.
inline void prefetch_update(const SparseUpdate& update, std::int64_t u, const float* gradients) {
  const RowRuns& runs = update.runs;
  const RowTable& table = update.table;
  if (u + kRowsAhead >= runs.num_rows) {
    return;
  }
  const std::int64_t row = runs.rows[u + kRowsAhead];
  prefetch_row(static_cast<const char*>(table.weights) + row * table.weight_stride,
               table.cols * (table.dtype == DType::kFloat32 ? 4 : 2));
  if (table.low != nullptr) {
    prefetch_row(static_cast<const char*>(table.low) + row * table.low_stride, table.cols * 2);
  }
  if (table.state != nullptr) {
    prefetch_row(static_cast<const char*>(table.state) + row * table.state_stride,
                 state_floats(update.params.rule, table.cols) * 4);
  }
  if (gradients == nullptr) {
    const std::int64_t segment = runs.row_segments[u + kRowsAhead];
    prefetch_row(runs.grads[runs.segment_entries[segment]], table.cols * 4);
  }
}

RowOverflow update_range(const SparseUpdate& update, Range range, const float* gradients) {
  const RowScratch scratch = make_scratch(update.table.cols, update.parts);
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    prefetch_update(update, u, gradients);
    const float* const g =
        gradients != nullptr ? gradients + u * update.table.cols : row_gradient(update, u, scratch);
    const std::int64_t row = update.runs.rows[u];
    if (!update_row(update, row, g, scratch)) {
      overflow.add(update.table.first_row + row);
    }
  }
  return overflow;
}

void sum_range(const SparseUpdate& update, Range range, float* out) {
  const std::int64_t cols = update.table.cols;
  const RowScratch scratch = make_scratch(cols, update.parts);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    std::memcpy(out + u * cols, row_gradient(update, u, scratch),
                static_cast<std::size_t>(cols) * sizeof(float));
  }
}

void sum_segment_range(const SparseUpdate& update, Range segments, Range node, float* out) {
  const std::int64_t cols = update.table.cols;
  const RowScratch scratch = make_scratch(cols, update.parts);
  PartTree tree{update.runs, cols, scratch, segments.begin, segments.end};
  std::memcpy(out, tree.sum(node, 0), static_cast<std::size_t>(cols) * sizeof(float));
}

void gradient_square_range(const SparseUpdate& update,
                           Range range,
                           const float* gradients,
                           float* out) {
  const RowTable& table = update.table;
  const RowScratch s = make_scratch(table.cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const g = pad(gradients + u * table.cols, table.cols, s.padded, s.gradient);
    const float* const w =
        update.params.decay == WeightDecay::kL2 ? read_row(table, update.runs.rows[u], s) : nullptr;
    gradient_squares(update.params, g, w, s.padded, out + u * statistic_blocks(table.cols));
  }
}

RowOverflow statistic_range(const SparseUpdate& update,
                            Range range,
                            float* gradients,
                            const float* mean_squares) {
  const RowTable& table = update.table;
  const RowScratch s = make_scratch(table.cols, 1);
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const std::int64_t row = update.runs.rows[u];
    float* const kept = gradients + u * table.cols;
    const float* const g = pad(kept, table.cols, s.padded, s.gradient);
    const float mean = mean_squares == nullptr ? 0.0F : mean_squares[u];
    if (!compute_row(update, row, g, read_row(table, row, s), mean, s)) {
      overflow.add(table.first_row + row);
      *kept = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    write_state(update, row, s);
    if (update.params.max_norm > 0.0F) {
      std::memcpy(kept, s.new_row, static_cast<std::size_t>(table.cols) * sizeof(float));
    } else {
      write_row(update, row, s.new_row, s);
    }
  }
  return overflow;
}

void row_square_range(std::int64_t cols, Range range, const float* rows, float* out) {
  const RowScratch s = make_scratch(cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const row = pad(rows + u * cols, cols, s.padded, s.gradient);
    squares<false>(row, nullptr, 0.0F, s.padded, out + u * statistic_blocks(cols));
  }
}

RowOverflow store_range(const SparseUpdate& update,
                        Range range,
                        const float* rows,
                        const float* row_squares) {
  const RowTable& table = update.table;
  const RowScratch s = make_scratch(table.cols, 1);
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const values = rows + u * table.cols;
    if (std::isnan(*values)) {
      continue;  // counted when it was computed
    }
    std::memcpy(s.new_row, values, static_cast<std::size_t>(table.cols) * sizeof(float));
    zero_tail(s.new_row, table.cols, s.padded);
    if (!limit_norm(update.params, row_squares[u], s.new_row, s.padded)) {
      overflow.add(table.first_row + update.runs.rows[u]);
      continue;
    }
    write_row(update, update.runs.rows[u], s.new_row, s);
  }
  return overflow;
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {
namespace {

HWY_EXPORT(update_range);
HWY_EXPORT(sum_range);
HWY_EXPORT(sum_segment_range);
HWY_EXPORT(gradient_square_range);
HWY_EXPORT(statistic_range);
HWY_EXPORT(row_square_range);
HWY_EXPORT(store_range);

}  // namespace

std::int64_t state_floats(UpdateRule rule, std::int64_t cols) {
  switch (rule) {
    case UpdateRule::kSgd:
      return 0;
    case UpdateRule::kAdagrad:
      return cols;
    case UpdateRule::kRowWiseAdagrad:
      return 1;
    case UpdateRule::kAdam:
      return 2 * cols;
    case UpdateRule::kRowWiseAdam:
      return cols + 1;
  }
  fail(ErrorCode::kInternal, "update rule number {} does not exist", static_cast<int>(rule));
}

RowOverflow update_rows(const SparseUpdate& update, Range range, const float* gradients) {
  return HWY_DYNAMIC_DISPATCH(update_range)(update, range, gradients);
}

void sum_gradients(const SparseUpdate& update, Range range, float* out) {
  HWY_DYNAMIC_DISPATCH(sum_range)(update, range, out);
}

void sum_segments(const SparseUpdate& update, Range segments, Range node, float* out) {
  HWY_DYNAMIC_DISPATCH(sum_segment_range)(update, segments, node, out);
}

void gradient_block_squares(const SparseUpdate& update,
                            Range range,
                            const float* gradients,
                            float* out) {
  HWY_DYNAMIC_DISPATCH(gradient_square_range)(update, range, gradients, out);
}

RowOverflow update_rows_with_statistic(const SparseUpdate& update,
                                       Range range,
                                       float* gradients,
                                       const float* mean_square) {
  return HWY_DYNAMIC_DISPATCH(statistic_range)(update, range, gradients, mean_square);
}

void row_block_squares(std::int64_t cols, Range range, const float* rows, float* out) {
  HWY_DYNAMIC_DISPATCH(row_square_range)(cols, range, rows, out);
}

RowOverflow store_scaled_rows(const SparseUpdate& update,
                              Range range,
                              const float* rows,
                              const float* row_square) {
  return HWY_DYNAMIC_DISPATCH(store_range)(update, range, rows, row_square);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
