// for each unique row:
//   g = sum of its segments up the tree of parts      (one entry: used where it lies)
//   new row, new state = rule(g, row, state)          in scratch of the thread
//   if all are finite: write state, write row (rounded), else count the row
//
// Memory-bound on large tables: a random read and write of each row and its state. Rows a few
// places ahead are prefetched. Everything between is in the first cache: a row of 128 columns and
// Adam's state are 1.5 KiB. A task is 128 rows, so a row's sum is one thread's and in one order.

#include "weft/kernels/sparse_update.h"

#include <algorithm>
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

inline RowScratch make_scratch(std::int64_t cols, std::int64_t parts) {
  const std::int64_t blocks = statistic_blocks(cols);
  const std::int64_t padded = blocks * kStatisticBlock;
  // Random words are made for four vectors of up to 16 lanes at a time.
  const std::int64_t random = (padded + 63) / 64 * 64;
  const std::int64_t slots = tree_slots(parts);
  float* at = ThreadScratch::get((2 * kBatch + 6 + slots) * padded + random + blocks);
  const auto take = [&at](std::int64_t floats) {
    float* const taken = at;
    at += floats;
    return taken;
  };
  RowScratch scratch{};
  scratch.padded = padded;
  scratch.rows = take(kBatch * padded);
  scratch.gradients = take(kBatch * padded);
  scratch.state = take(2 * padded);
  scratch.new_row = take(padded);
  scratch.new_state = take(2 * padded);
  scratch.half = reinterpret_cast<std::uint16_t*>(take(padded));
  scratch.blocks = take(blocks);
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

/// Columns [col, col + kVectors · lanes) of the entries, one after the other, in registers.
template <bool kWeighted, int kVectors, class D>
HWY_INLINE void sum_columns(D d, const RowRuns& runs, Range entries, std::int64_t col, float* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<D> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = entry_term<kWeighted>(d, runs, entries.begin, col + v * lanes);
  }
  for (std::int64_t e = entries.begin + 1; e < entries.end; ++e) {
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], entry_term<kWeighted>(d, runs, e, col + v * lanes));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(sums[v], d, out + col + v * lanes);
  }
}

template <bool kWeighted>
void sum_entries(const RowRuns& runs, Range entries, std::int64_t cols, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + 8 * lanes <= cols; col += 8 * lanes) {
    sum_columns<kWeighted, 8>(d, runs, entries, col, out);
  }
  if (col + 4 * lanes <= cols) {
    sum_columns<kWeighted, 4>(d, runs, entries, col, out);
    col += 4 * lanes;
  }
  for_columns(col, cols, [&](auto tag, std::int64_t at) HWY_ATTR {
    sum_columns<kWeighted, 1>(tag, runs, entries, at, out);
  });
}

/// Sums segments up the tree of parts; absent parts cost nothing.
struct PartTree {
  const RowRuns& runs;
  std::int64_t cols;
  const RowScratch& scratch;
  float* first_slot;  ///< where a sum is made, [cols]
  std::int64_t next;  ///< the first segment not yet summed
  std::int64_t end;

  [[nodiscard]] float* slot(int depth) const {
    return depth == 0 ? first_slot : scratch.slots + (depth - 1) * scratch.padded;
  }

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

  const float* add(const float* left, const float* right, float* out) const {
    for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, out + i);
    });
    return out;
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
    return add(left, right, slot(depth));
  }

  /// The sum over all parts. Of one or two segments the tree makes the sum, whatever their parts.
  const float* sum_all(std::int64_t parts) {
    const std::int64_t segments = end - next;
    if (segments == 1) {
      return segment(next, slot(0));
    }
    if (segments == 2) {
      const float* const left = segment(next, slot(0));
      return add(left, segment(next + 1, slot(1)), slot(0));
    }
    return sum({0, parts}, 0);
  }
};

const float* summed_gradient(const SparseUpdate& update,
                             std::int64_t u,
                             const RowScratch& scratch,
                             float* out) {
  const RowRuns& runs = update.runs;
  PartTree tree{runs, update.table.cols,    scratch,
                out,  runs.row_segments[u], runs.row_segments[u + 1]};
  return tree.sum_all(update.parts);
}

/// The gradient of unique row u: where it lies, or in `out` [cols].
HWY_INLINE const float* row_gradient(const SparseUpdate& update,
                                     std::int64_t u,
                                     const RowScratch& scratch,
                                     float* out) {
  const RowRuns& runs = update.runs;
  const std::int32_t entry = runs.segment_entries[runs.row_segments[u]];
  if (runs.segment_entries[runs.row_segments[u + 1]] == entry + 1 && runs.weights == nullptr) {
    return runs.grads[entry];  // most rows have one entry
  }
  return summed_gradient(update, u, scratch, out);
}

inline float* state_at(const RowTable& table, std::int64_t row) {
  return reinterpret_cast<float*>(static_cast<char*>(table.state) + row * table.state_stride);
}

/// Row-wise state among the floats of a row's state.
template <SparseOptimizerKind kRule, int kCols>
HWY_INLINE float* row_state(Columns<kCols> columns, float* state) {
  return kRule == SparseOptimizerKind::kRowWiseAdam ? state + columns.count() : state;
}

/// Puts a row into place i of the batch, and pads its gradient there.
template <SparseOptimizerKind kRule, int kCols>
HWY_INLINE void take_row(Columns<kCols> columns,
                         const RowTable& table,
                         std::int64_t row,
                         std::int64_t i,
                         const RowScratch& s,
                         Batch& batch) {
  batch.row[i] = row;
  if constexpr (kCols == 0) {
    float* const copy = s.gradients + i * columns.padded();
    if (batch.g[i] == copy) {
      fill_tail(columns, copy, 0.0F);
    } else {
      batch.g[i] = pad(columns, batch.g[i], copy);
    }
  }
  batch.w[i] = read_row(columns, table, row, s, i);
  if constexpr (traits(kRule).is_row_wise) {
    batch.state[i] = *row_state<kRule>(columns, state_at(table, row));
  }
}

/// New values of row i in scratch. False if not all finite. What is padded stays finite where all
/// columns are: state that is divided by is padded with ones.
template <SparseOptimizerKind kRule, bool kL2, int kCols>
HWY_INLINE bool compute_row(Columns<kCols> columns,
                            const SparseUpdate& update,
                            const Batch& batch,
                            std::int64_t i,
                            const RowScratch& s) {
  const RowTable& table = update.table;
  RowStep step{.g = batch.g[i],
               .w = batch.w[i],
               .m = nullptr,
               .v = nullptr,
               .rate = 0.0F,
               .keep = 0.0F,
               .new_w = s.new_row,
               .new_m = s.new_state,
               .new_v = s.new_state + columns.padded(),
               .weights = {},
               .state = {}};
  if constexpr (kRule != SparseOptimizerKind::kSgd &&
                kRule != SparseOptimizerKind::kRowWiseAdagrad) {
    const float* const state = state_at(table, batch.row[i]);
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
  apply_rule<kRule, kL2>(columns, update.params, step);
  const std::int32_t limit = kCols > 0 ? kInfinity : weight_limit(table.dtype);
  return finite && step.weights.is_below(limit) && step.state.is_below(kInfinity);
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
  float* const state = state_at(update.table, batch.row[i]);
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

/// Computes and writes row i. False if it is left as it was.
template <SparseOptimizerKind kRule, bool kL2, int kCols>
HWY_INLINE bool update_row(Columns<kCols> columns,
                           const SparseUpdate& update,
                           const Batch& batch,
                           std::int64_t i,
                           const RowScratch& s) {
  if (!compute_row<kRule, kL2>(columns, update, batch, i, s)) {
    return false;
  }
  if (update.params.max_norm > 0.0F) {
    fill_tail(columns, s.new_row, 0.0F);
    const float square = square_sum<false>(columns, s.new_row, nullptr, 0.0F, s.blocks);
    if (!limit_norm(update.params, square, s.new_row, s.padded)) {
      return false;
    }
  }
  write_state<kRule>(columns, update, batch, i, s);
  write_row(columns, update, batch.row[i], s.new_row, s);
  return true;
}

/// Asks for what rows and entries ahead of the ones in hand need, also behind the task's last row:
/// the next task is often the same thread's.
template <int kCols>
class UpdateAhead {
 public:
  UpdateAhead(const SparseUpdate& update, std::int64_t first, const float* gradients)
      : table_(update.table),
        runs_(update.runs),
        gradients_(gradients),
        weight_bytes_(table_.cols * (table_.dtype == DType::kFloat32 ? 4 : 2)),
        low_bytes_(table_.low == nullptr ? 0 : table_.cols * 2),
        state_bytes_(table_.state == nullptr ? 0
                                             : state_floats(update.params.rule, table_.cols) * 4),
        distance_(rows_ahead(weight_bytes_ + low_bytes_ + state_bytes_ + table_.cols * 4)),
        next_row_(first),
        next_entry_(first_entry(first)) {}

  /// Rows up to u are the next in hand.
  HWY_INLINE void advance(std::int64_t u) {
    const std::int64_t rows_end = std::min(u + distance_, runs_.num_rows);
    for (; next_row_ < rows_end; ++next_row_) {
      ask_for_row(runs_.rows[next_row_]);
      if (gradients_ != nullptr) {
        ask_for_gradient(gradients_ + next_row_ * table_.cols);
      }
    }
    if (gradients_ == nullptr) {
      const std::int64_t entries_end = std::min(first_entry(u) + distance_, runs_.num_entries);
      for (; next_entry_ < entries_end; ++next_entry_) {
        ask_for_gradient(runs_.grads[next_entry_]);
      }
    }
  }

 private:
  [[nodiscard]] HWY_INLINE std::int64_t first_entry(std::int64_t u) const {
    return runs_.segment_entries[runs_.row_segments[u]];
  }

  HWY_INLINE void ask_for_row(std::int64_t row) const {
    const auto at = [row](const void* base, std::int64_t stride) {
      return static_cast<const char*>(base) + row * stride;
    };
    if constexpr (kCols > 0) {
      prefetch_lines<kCols * 4>(at(table_.weights, table_.weight_stride));
    } else {
      prefetch_row(at(table_.weights, table_.weight_stride), weight_bytes_);
    }
    if (low_bytes_ > 0) {
      prefetch_row(at(table_.low, table_.low_stride), low_bytes_);
    }
    if (state_bytes_ > 0) {
      prefetch_row(at(table_.state, table_.state_stride), state_bytes_);
    }
  }

  HWY_INLINE void ask_for_gradient(const float* at) const {
    if constexpr (kCols > 0) {
      prefetch_lines<kCols * 4>(at);
    } else {
      prefetch_row(at, table_.cols * 4);
    }
  }

  const RowTable table_;
  const RowRuns runs_;
  const float* gradients_;
  std::int64_t weight_bytes_;
  std::int64_t low_bytes_;
  std::int64_t state_bytes_;
  std::int64_t distance_;
  std::int64_t next_row_;
  std::int64_t next_entry_;
};

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

template <SparseOptimizerKind kRule, bool kL2, int kCols>
RowOverflow update_range_by(const SparseUpdate& update, Range range, const float* gradients) {
  const RowTable& table = update.table;
  const RowScratch s = make_scratch(table.cols, update.parts);
  const Columns<kCols> columns(table.cols);
  UpdateAhead<kCols> ahead(update, range.begin, gradients);
  RowOverflow overflow;
  Batch batch{};
  for (std::int64_t first = range.begin; first < range.end; first += kBatch) {
    const Range rows{first, std::min(first + kBatch, range.end)};
    ahead.advance(rows.end);
    take_gradients(columns, update, rows, gradients, s, batch);
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      take_row<kRule>(columns, table, update.runs.rows[first + i], i, s, batch);
      if constexpr (traits(kRule).is_row_wise) {
        batch.mean_square[i] =
            square_sum<kL2>(columns, batch.g[i], batch.w[i], update.params.weight_decay, s.blocks) /
            static_cast<float>(columns.count());
      }
    }
    if constexpr (traits(kRule).is_row_wise) {
      make_rates<kRule, kL2>(update.params, batch);
    }
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      if (!update_row<kRule, kL2>(columns, update, batch, i, s)) {
        overflow.add(table.whole_row(batch.row[i]));
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
/// not on the oldest processors. The rest of it was two fifths of what this file compiles to.
template <bool kL2>
constexpr bool has_usual_widths() {
  return !kL2 && HWY_TARGET != HWY_SSE4;
}

RowOverflow update_range(const SparseUpdate& update, Range range, const float* gradients) {
  return with_rule(update.params, [&]<SparseOptimizerKind kRule, bool kL2>() HWY_ATTR {
    if constexpr (has_usual_widths<kL2>()) {
      switch (update.table.dtype == DType::kFloat32 ? update.table.cols : 0) {
        case 16:
          return update_range_by<kRule, kL2, 16>(update, range, gradients);
        case 64:
          return update_range_by<kRule, kL2, 64>(update, range, gradients);
        case 128:
          return update_range_by<kRule, kL2, 128>(update, range, gradients);
        default:
          break;
      }
    }
    return update_range_by<kRule, kL2, 0>(update, range, gradients);
  });
}

void sum_range(const SparseUpdate& update, Range range, float* out) {
  const std::int64_t cols = update.table.cols;
  const Columns<0> columns(cols);
  const RowScratch scratch = make_scratch(cols, update.parts);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    float* const to = out + u * cols;
    const float* const g = row_gradient(update, u, scratch, to);
    if (g != to) {
      copy_floats(columns, g, to);
    }
  }
}

void sum_segment_range(const SparseUpdate& update, Range segments, Range node, float* out) {
  const std::int64_t cols = update.table.cols;
  const RowScratch scratch = make_scratch(cols, update.parts);
  PartTree tree{update.runs, cols, scratch, out, segments.begin, segments.end};
  const float* const sum = tree.sum(node, 0);
  if (sum != out) {
    copy_floats(Columns<0>(cols), sum, out);
  }
}

void gradient_square_range(const SparseUpdate& update,
                           Range range,
                           const float* gradients,
                           float* out) {
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const g = pad(columns, gradients + u * table.cols, s.gradients);
    const float* const w = update.params.decay == WeightDecay::kL2
                               ? read_row(columns, table, update.runs.rows[u], s, 0)
                               : nullptr;
    float* const sums = out + u * statistic_blocks(table.cols);
    if (w != nullptr) {
      squares<true>(g, w, update.params.weight_decay, s.padded, sums);
    } else {
      squares<false>(g, nullptr, 0.0F, s.padded, sums);
    }
  }
}

template <SparseOptimizerKind kRule, bool kL2>
RowOverflow statistic_range_by(const SparseUpdate& update,
                               Range range,
                               float* gradients,
                               const float* mean_squares) {
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  RowOverflow overflow;
  Batch batch{};
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    float* const kept = gradients + u * table.cols;
    batch.g[0] = kept;
    take_row<kRule>(columns, table, update.runs.rows[u], 0, s, batch);
    if constexpr (traits(kRule).is_row_wise) {
      batch.mean_square[0] = mean_squares[u];
      make_rates<kRule, kL2>(update.params, batch);
    }
    if (!compute_row<kRule, kL2>(columns, update, batch, 0, s)) {
      overflow.add(table.whole_row(batch.row[0]));
      *kept = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    write_state<kRule>(columns, update, batch, 0, s);
    if (update.params.max_norm > 0.0F) {
      copy_floats(columns, s.new_row, kept);
    } else {
      write_row(columns, update, batch.row[0], s.new_row, s);
    }
  }
  return overflow;
}

RowOverflow statistic_range(const SparseUpdate& update,
                            Range range,
                            float* gradients,
                            const float* mean_squares) {
  return with_rule(update.params, [&]<SparseOptimizerKind kRule, bool kL2>() HWY_ATTR {
    return statistic_range_by<kRule, kL2>(update, range, gradients, mean_squares);
  });
}

void row_square_range(std::int64_t cols, Range range, const float* rows, float* out) {
  const Columns<0> columns(cols);
  const RowScratch s = make_scratch(cols, 1);
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const row = pad(columns, rows + u * cols, s.gradients);
    squares<false>(row, nullptr, 0.0F, s.padded, out + u * statistic_blocks(cols));
  }
}

RowOverflow store_range(const SparseUpdate& update,
                        Range range,
                        const float* rows,
                        const float* row_squares) {
  const RowTable& table = update.table;
  const Columns<0> columns(table.cols);
  const RowScratch s = make_scratch(table.cols, 1);
  RowOverflow overflow;
  for (std::int64_t u = range.begin; u < range.end; ++u) {
    const float* const values = rows + u * table.cols;
    if (std::isnan(*values)) {
      continue;  // counted when it was computed
    }
    copy_floats(columns, values, s.new_row);
    fill_tail(columns, s.new_row, 0.0F);
    if (!limit_norm(update.params, row_squares[u], s.new_row, s.padded)) {
      overflow.add(table.whole_row(update.runs.rows[u]));
      continue;
    }
    write_row(columns, update, update.runs.rows[u], s.new_row, s);
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

// A row counts as much as an entry: 128 rows of one entry each, as many as in other tasks.
constexpr std::int64_t kCostPerTask = 2 * kRowsPerTask;

/// The first row at or behind `cost`: that of rows and entries before it.
std::int64_t row_at(const RowRuns& runs, std::int64_t cost) {
  std::int64_t begin = 0;
  std::int64_t end = runs.num_rows;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (middle + runs.segment_entries[runs.row_segments[middle]] < cost) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace

std::int64_t update_tasks(const RowRuns& runs) {
  return (runs.num_rows + runs.num_entries + kCostPerTask - 1) / kCostPerTask;
}

Range update_task(const RowRuns& runs, std::int64_t task) {
  return {row_at(runs, task * kCostPerTask), row_at(runs, (task + 1) * kCostPerTask)};
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
