// Private to kernels/cpu: the gradient of a row, summed up the tree of parts. Included once per
// Highway target.

#if defined(WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#undef WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#else
#define WEFT_KERNELS_CPU_ROW_GRADIENT_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/base/sum_present.h"
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
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    sums[v] = entry_term<kWeighted>(d, runs, entries.begin, col + v * lanes);
  }
  for (std::int64_t e = entries.begin + 1; e < entries.end; ++e) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], entry_term<kWeighted>(d, runs, e, col + v * lanes));
    }
  }
  HWY_UNROLL(8)
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

/// The sum of the entries of a segment: where its only vector lies, or in `out` [cols].
inline const float* sum_segment(const RowRuns& runs,
                                std::int64_t segment,
                                std::int64_t cols,
                                float* out) {
  const Range entries{runs.segment_entries[segment], runs.segment_entries[segment + 1]};
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

inline const float* add_vectors(const float* left,
                                const float* right,
                                std::int64_t cols,
                                float* out) {
  for_columns(0, cols, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, out + i);
  });
  return out;
}

/// The sum of one or more segments of a row up the tree of parts: where it lies, or in `out`
/// [cols]. Absent parts cost nothing.
inline const float* sum_segments(const RowRuns& runs,
                                 const Range& segments,
                                 std::int64_t cols,
                                 const RowScratch& scratch,
                                 float* out) {
  std::array<const float*, 64> held;  // by slot of the tree
  const auto slot = [&](int depth) {
    return depth == 0 ? out : scratch.slots + (depth - 1) * scratch.padded;
  };
  if (segments.size() == 2) {  // the tree adds two, whatever their parts are
    const float* const left = sum_segment(runs, segments.begin, cols, slot(0));
    return add_vectors(left, sum_segment(runs, segments.begin + 1, cols, slot(1)), cols, slot(0));
  }
  const auto part_of = [&](std::int64_t i) { return runs.segment_parts[segments.begin + i]; };
  const auto put = [&](std::int64_t i, int depth) {
    held[static_cast<std::size_t>(depth)] =
        sum_segment(runs, segments.begin + i, cols, slot(depth));
  };
  const auto join = [&](int depth) {
    const auto left = static_cast<std::size_t>(depth);
    held[left] = add_vectors(held[left], held[left + 1], cols, slot(depth));
  };
  sum_present(segments.size(), part_of, put, join);
  return held[0];
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
  const Range segments{runs.row_segments[u], runs.row_segments[u + 1]};
  return sum_segments(runs, segments, update.table.cols, scratch, out);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
