// Private to kernels/cpu: what an update of rows asks the memory for beforehand. Included once per
// Highway target.

#if defined(WEFT_KERNELS_CPU_UPDATE_AHEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_UPDATE_AHEAD_INL_H_
#undef WEFT_KERNELS_CPU_UPDATE_AHEAD_INL_H_
#else
#define WEFT_KERNELS_CPU_UPDATE_AHEAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/row_update-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/sparse_update.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// Asks for what rows and entries ahead of the ones in hand need, also behind the task's last row:
/// the next task is often the same thread's.
template <SparseOptimizerKind kRule, int kCols, class Element>
class UpdateAhead {
 public:
  UpdateAhead(const SparseUpdate& update, std::int64_t first, const float* gradients)
      : table_(update.table),
        runs_(update.runs),
        gradients_(gradients),
        weight_bytes_(table_.cols * (Element::of(table_) == DType::kFloat32 ? 4 : 2)),
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
      ask_for_row(runs_.slots[next_row_]);
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

  HWY_INLINE void ask_for_row(std::int64_t slot) const {
    const auto at = [slot](const void* base, std::int64_t stride) {
      return static_cast<const char*>(base) + slot * stride;
    };
    const char* const weights = at(table_.weights, table_.weight_stride);
    if constexpr (kCols == 0) {
      prefetch_row(weights, weight_bytes_);
    } else if (Element::of(table_) == DType::kFloat32) {
      prefetch_lines<kCols * 4>(weights);
    } else {
      prefetch_lines<kCols * 2>(weights);
    }
    if (Element::of(table_) == DType::kSplitBFloat16) {
      prefetch_row(at(table_.low, table_.low_stride), low_bytes_);
    }
    if constexpr (kRule == SparseOptimizerKind::kRowWiseAdagrad) {
      hwy::Prefetch(at(table_.state, table_.state_stride));
    } else if (state_bytes_ > 0) {
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

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
