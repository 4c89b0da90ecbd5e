// Private to kernels/cpu: the gradient of a row, summed up the tree of parts. Included once per
// Highway target.

#if defined(WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#undef WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#else
#define WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/kernels/cpu/random_words-inl.h"
#include "weft/kernels/cpu/row_update-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/sparse_update.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

inline RowScratch make_scratch(std::int64_t cols, std::int64_t parts) {
  const std::int64_t blocks = statistic_blocks(cols);
  const std::int64_t padded = blocks * kStatisticBlock;
  const std::int64_t calls = batch_calls(padded / RowDraws::kColumns);
  const std::int64_t words = RowDraws::kColumns * calls;
  static_assert(RowDraws::kColumns * kSpareCalls >= kSpareWords);
  const std::int64_t slots = tree_slots(parts);
  float* at = ThreadScratch::get((2 * kBatch + 6 + slots) * padded + words + 4 * calls + blocks);
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
  scratch.words = reinterpret_cast<std::uint32_t*>(take(words));
  scratch.calls = reinterpret_cast<std::uint64_t*>(take(4 * calls));  // two lists of 64 bits
  scratch.slots = take(slots * padded);
  scratch.blocks = take(blocks);
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

inline const float* summed_gradient(const SparseUpdate& update,
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

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
