// Tables, bags and gradients for the parity tests of the sparse kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <hwy/highway.h>

#include "weft/kernels/rows.h"
#include "weft/kernels/sparse_update.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels::test {

inline const std::vector<std::int64_t> kDims = {1, 3, 4, 8, 15, 16, 17, 32, 33, 64, 100, 128, 130};
inline const std::vector<DType> kRowTypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                                             DType::kSplitBFloat16};

/// The Highway targets of this build that the machine has.
inline std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> found;
#if HWY_ARCH_X86
  for (const std::int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) != 0) {
      found.push_back(target);
    }
  }
#else
  found.push_back(HWY_NEON);
#endif
  return found;
}

/// Runs the kernels on one target as long as it lives.
class OnTarget {
 public:
  explicit OnTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  ~OnTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

using Random = std::mt19937_64;

inline std::int64_t below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

/// Of both signs and many sizes, so that the order of addition shows in the bits.
inline float number(Random& random) {
  const auto mantissa = static_cast<float>(below(random, 1 << 24)) * 0x1.0p-23F - 1.0F;
  return std::ldexp(mantissa, static_cast<int>(below(random, 12)) - 8);
}

/// How ids fall on the rows.
enum class Skew { kUniform, kHot, kOneRow };

struct BagsCase {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets = {0};
  std::vector<float> weights;
  std::vector<std::int32_t> parts;
  std::vector<float> grads;
  bool pooled = true;
  bool weighted = false;
  std::int64_t cols = 0;

  [[nodiscard]] Bags bags() const {
    return {ids.data(), offsets.data(), weighted ? weights.data() : nullptr,
            static_cast<std::int64_t>(offsets.size()) - 1};
  }

  [[nodiscard]] GradientBlock block() const {
    return {bags(), pooled, grads.data(), cols, parts.data()};
  }
};

struct BagsShape {
  std::int64_t bags = 40;
  std::int64_t longest = 4;  ///< ids of a bag: 0 … longest
  std::int64_t rows = 30;
  std::int64_t cols = 16;
  std::int64_t parts = 8;
  Skew skew = Skew::kUniform;
  bool pooled = true;
  bool weighted = false;
};

inline std::int64_t pick_row(Random& random, const BagsShape& shape) {
  switch (shape.skew) {
    case Skew::kHot:
      return below(random, 4) != 0 ? below(random, 2) % shape.rows : below(random, shape.rows);
    case Skew::kOneRow:
      return shape.rows - 1;
    case Skew::kUniform:
      break;
  }
  return below(random, shape.rows);
}

inline BagsCase make_bags(Random& random, const BagsShape& shape) {
  BagsCase result;
  result.pooled = shape.pooled;
  result.weighted = shape.weighted;
  result.cols = shape.cols;
  for (std::int64_t b = 0; b < shape.bags; ++b) {
    const std::int64_t length = below(random, shape.longest + 1);
    for (std::int64_t i = 0; i < length; ++i) {
      result.ids.push_back(pick_row(random, shape));
      result.weights.push_back(number(random));
    }
    result.offsets.push_back(static_cast<std::int64_t>(result.ids.size()));
    result.parts.push_back(static_cast<std::int32_t>(b * shape.parts / shape.bags));
  }
  const std::size_t vectors =
      shape.pooled ? static_cast<std::size_t>(shape.bags) : result.ids.size();
  for (std::size_t i = 0; i < vectors * static_cast<std::size_t>(shape.cols); ++i) {
    result.grads.push_back(number(random));
  }
  return result;
}

/// Rows with state, in one of both layouts, in memory of its own.
struct TableCase {
  RowTable view;
  std::int64_t rows = 0;
  std::vector<std::byte> weights;
  std::vector<std::byte> state;  ///< empty where interleaved
  std::vector<std::byte> low;    ///< low halves of split_bf16; empty where interleaved

  TableCase(const TableCase&) = delete;
  TableCase& operator=(const TableCase&) = delete;

  TableCase(Random& random,
            std::int64_t num_rows,
            std::int64_t cols,
            DType dtype,
            SparseOptimizerKind rule)
      : rows(num_rows) {
    const bool interleaved = state_floats(rule, 2) > state_floats(rule, 1);
    const bool split = dtype == DType::kSplitBFloat16;
    const std::int64_t row_bytes = cols * (split ? 2 : size_of(dtype));
    const std::int64_t low_bytes = split ? cols * 2 : 0;
    const std::int64_t state_bytes = state_floats(rule, cols) * 4;
    const std::int64_t aligned = (row_bytes + 3) / 4 * 4;
    const std::int64_t aligned_low = (low_bytes + 3) / 4 * 4;
    view.dtype = dtype;
    view.cols = cols;
    view.dim = cols;
    view.weight_stride = interleaved ? aligned + state_bytes + aligned_low : row_bytes;
    view.state_stride = interleaved ? view.weight_stride : state_bytes;
    view.low_stride = interleaved ? view.weight_stride : low_bytes;
    weights.resize(static_cast<std::size_t>(rows * view.weight_stride));
    state.resize(static_cast<std::size_t>(interleaved ? 0 : rows * state_bytes));
    view.weights = weights.data();
    if (state_bytes > 0) {
      view.state = interleaved ? weights.data() + aligned : state.data();
    }
    low.resize(static_cast<std::size_t>(interleaved ? 0 : rows * low_bytes));
    if (split) {
      view.low = interleaved ? weights.data() + aligned + state_bytes : low.data();
    }
    fill(random, rule);
  }

  void fill(Random& random, SparseOptimizerKind rule) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < view.cols; ++i) {
        set(row, i, number(random));
      }
      for (std::int64_t i = 0; i < state_floats(rule, view.cols); ++i) {
        state_at(row)[i] = std::abs(number(random));
      }
    }
  }

  void set(std::int64_t row, std::int64_t col, float value) {
    std::byte* const at = weights.data() + row * view.weight_stride;
    if (view.dtype == DType::kFloat32) {
      reinterpret_cast<float*>(at)[col] = value;
    } else if (view.dtype == DType::kSplitBFloat16) {
      const SplitBFloat16 halves = to_split_bfloat16(value);
      reinterpret_cast<BFloat16*>(at)[col] = halves.high;
      low_at(row)[col] = halves.low;
    } else {
      reinterpret_cast<std::uint16_t*>(at)[col] =
          view.dtype == DType::kFloat16 ? to_float16(value).bits : to_bfloat16(value).bits;
    }
  }

  [[nodiscard]] float* state_at(std::int64_t row) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(view.state) + row * view.state_stride);
  }

  [[nodiscard]] std::int16_t* low_at(std::int64_t row) const {
    return reinterpret_cast<std::int16_t*>(static_cast<std::byte*>(view.low) +
                                           row * view.low_stride);
  }

  /// The bytes of rows and state.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = weights;
    all.insert(all.end(), state.begin(), state.end());
    all.insert(all.end(), low.begin(), low.end());
    return all;
  }

  void restore(const std::vector<std::byte>& all) {
    std::memcpy(weights.data(), all.data(), weights.size());
    if (!state.empty()) {
      std::memcpy(state.data(), all.data() + weights.size(), state.size());
    }
    if (!low.empty()) {
      std::memcpy(low.data(), all.data() + weights.size() + state.size(), low.size());
    }
  }
};

}  // namespace weft::kernels::test
