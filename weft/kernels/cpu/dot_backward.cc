// The gradients of dot interaction, one sample at a time, in the first-level cache (27 x 128 floats
// are 14 kB), into which the next sample's vectors are asked for meanwhile, and the lines of its
// gradients. A sample's vectors are read once, where they lie: dout(i, j) is laid out as a
// symmetric matrix; for some fields i, for each 16 or 32 columns: acc_i += dout(j, i) * vector_j, j
// in order. "Some" are as many as registers hold, which hides the latency of the multiply-add.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/kernels/interaction.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/dot_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"
#include "weft/kernels/cpu/turn-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace {

using Fields = std::span<const Matrix<const float>>;

// Registers of 16 floats, of which there are 32: up to 24 sums, each value read for two of them.
constexpr bool kWide = kVectors == 1;
// Elsewhere vectors whose sums are in registers together: eight of them.
constexpr int kTogether = std::max(1, 8 / static_cast<int>(kVectors));

std::int64_t round_to_lanes(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// The first `count` floats, and zeros behind them.
HWY_INLINE Lanes load_some(const float* from, std::int64_t count) {
  if (count >= kLanes) {
    return load_lanes(from);
  }
  alignas(64) float block[kLanes] = {};
  std::copy_n(from, count, block);
  return load_lanes(block);
}

// The pairs' gradients as a symmetric matrix [F rounded up to 4, height] with zeros on the
// diagonal and behind F.
void fill_square(const float* pairs, std::int64_t count, std::int64_t height, float* square) {
  const std::int64_t total = num_pairs(count);
  for (std::int64_t i = 0; i < count; ++i) {
    float* const row = square + i * height;
    for (std::int64_t j = 0; j < i; j += kLanes) {  // too much of a row is written over below
      store_lanes(load_some(pairs + num_pairs(i) + j, total - num_pairs(i) - j), row + j);
    }
  }
  for (std::int64_t i = 0; i < count; i += 4) {
    for (std::int64_t j = 0; j < i; j += 4) {
      turn_4x4(square + i * height + j, height, square + j * height + i, height);
    }
    for (std::int64_t k = i; k < std::min(i + 4, count); ++k) {
      for (std::int64_t j = i; j < k; ++j) {
        square[j * height + k] = square[k * height + j];
      }
      square[k * height + k] = 0.0F;
    }
  }
}

// Where a sample's vectors lie for backward, and the next one's: in the fields, or padded rows.
struct InFields {
  const Fields& fields;
  std::int64_t s, next;

  [[nodiscard]] const float* row(std::int64_t j) const {
    return fields[static_cast<std::size_t>(j)].row(s);
  }

  [[nodiscard]] const float* next_row(std::int64_t j) const {
    return fields[static_cast<std::size_t>(j)].row(next);
  }
};

struct InRows {
  const float* rows;
  std::int64_t width;

  [[nodiscard]] const float* row(std::int64_t j) const { return rows + j * width; }

  [[nodiscard]] const float* next_row(std::int64_t j) const { return row(j); }
};

template <int kRows, int kAcross>
HWY_INLINE void clear(Lanes (&sums)[kRows][kAcross]) {
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int a = 0; a < kAcross; ++a) {
      sums[r][a] = zero_lanes();
    }
  }
}

// What backward() makes of a sample, and where.
struct BackwardSample {
  std::int64_t s, next, height;
  const float* square;
  std::span<const Matrix<float>> dfields;
  std::int64_t accumulate;
};

// Columns [d, d + kAcross registers) of the gradients of fields [begin, begin + kRows). Branches by
// field are in loops of their own, over memory: beside sums they would keep these out of registers.
template <int kRows, int kAcross, typename Vectors>
void backward_block(const BackwardSample& sample,
                    const Vectors& vectors,
                    std::int64_t begin,
                    std::int64_t d) {
  const auto count = static_cast<std::int64_t>(sample.dfields.size());
  const std::int64_t cols = std::min(sample.dfields[0].cols - d, kAcross * kLanes);
  const auto to = [&](std::int64_t r) {
    return sample.dfields[static_cast<std::size_t>(begin + r)].row(sample.s) + d;
  };
  const auto in_block = [&](std::int64_t n) { return std::min<std::int64_t>(n - begin, kRows); };
  Lanes sums[kRows][kAcross];
  clear(sums);
  alignas(64) float block[kRows][kAcross * kLanes];
  if (begin < sample.accumulate) {
    std::fill_n(&block[0][0], kRows * kAcross * kLanes, 0.0F);
    for (std::int64_t r = 0; r < in_block(std::min(sample.accumulate, count)); ++r) {
      std::copy_n(to(r), cols, block[r]);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int a = 0; a < kAcross; ++a) {
        sums[r][a] = load_lanes(block[r] + a * kLanes);
      }
    }
  }
  const float* factors = sample.square + begin;
  for (std::int64_t j = 0; j < count; ++j, factors += sample.height) {
    const float* const row = vectors.row(j) + d;
    Lanes across[kAcross];
    HWY_UNROLL(2)
    for (int a = 0; a < kAcross; ++a) {
      across[a] = load_lanes(row + a * kLanes);
    }
    if (begin == 0) {
      __builtin_prefetch(vectors.next_row(j) + d);
      __builtin_prefetch(vectors.next_row(j) + d + (kAcross - 1) * kLanes);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int a = 0; a < kAcross; ++a) {
        sums[r][a] = mul_add(factors[r], across[a], sums[r][a]);
      }
    }
  }
  if constexpr (kAcross == 2) {  // a gradient of one line comes in time without it
    for (std::int64_t r = 0; r < in_block(count); ++r) {
      float* const next = sample.dfields[static_cast<std::size_t>(begin + r)].row(sample.next) + d;
      __builtin_prefetch(next, 1);
      __builtin_prefetch(next + kLanes, 1);
    }
  }
  if (begin + kRows <= count && cols == kAcross * kLanes) {
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int a = 0; a < kAcross; ++a) {
        store_lanes(sums[r][a], to(r) + a * kLanes);
      }
    }
    return;
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int a = 0; a < kAcross; ++a) {
      store_lanes(sums[r][a], block[r] + a * kLanes);
    }
  }
  for (std::int64_t r = 0; r < in_block(count); ++r) {
    std::copy_n(block[r], cols, to(r));
  }
}

template <int kRows, typename Vectors>
void backward_rows(const BackwardSample& sample, const Vectors& vectors, std::int64_t begin) {
  const std::int64_t dim = sample.dfields[0].cols;
  std::int64_t d = 0;
  if constexpr (kWide) {
    for (; d + kLanes < dim; d += 2 * kLanes) {
      backward_block<kRows, 2>(sample, vectors, begin, d);
    }
  }
  for (; d < dim; d += kLanes) {
    backward_block<kRows, 1>(sample, vectors, begin, d);
  }
}

template <typename Vectors>
void backward_sample(const BackwardSample& sample, const Vectors& vectors) {
  const auto count = static_cast<std::int64_t>(sample.dfields.size());
  for (std::int64_t i = 0; i < count;) {
    if constexpr (kWide) {
      const std::int64_t left = count - i;
      // 13 to 16 fields are two blocks of 8: a block of 4 has too few sums to hide their latency.
      const int rows = left > 16 || (left > 8 && left <= 12) ? 12 : left > 4 ? 8 : 4;
      (rows == 12  ? backward_rows<12, Vectors>
       : rows == 8 ? backward_rows<8, Vectors>
                   : backward_rows<4, Vectors>)(sample, vectors, i);
      i += rows;
    } else {
      backward_rows<kTogether>(sample, vectors, i);
      i += kTogether;
    }
  }
}

void backward(const Fields& fields,
              const Matrix<const float>& dout,
              std::span<const Matrix<float>> dfields,
              std::int64_t accumulate,
              float* scratch) {
  const auto count = static_cast<std::int64_t>(fields.size());
  const std::int64_t dim = fields[0].cols;
  const std::int64_t width = round_to_lanes(dim);
  const std::int64_t height = round_to_lanes(count);
  float* const square = scratch;
  float* const rows = square + height * height;
  std::fill_n(square, height * height, 0.0F);
  if (width != dim) {
    std::fill_n(rows, count * width, 0.0F);  // what is behind D stays so
  }
  for (std::int64_t s = 0; s < dout.rows; ++s) {
    fill_square(dout.row(s), count, height, square);
    const std::int64_t next = std::min(s + 1, dout.rows - 1);
    const BackwardSample sample{s, next, height, square, dfields, accumulate};
    if (width == dim) {
      backward_sample(sample, InFields{fields, s, next});
    } else {
      for (std::int64_t j = 0; j < count; ++j) {
        std::copy_n(fields[static_cast<std::size_t>(j)].row(s), dim, rows + j * width);
      }
      backward_sample(sample, InRows{rows, width});
    }
  }
}

}  // namespace

// Highway exports a function by name from each target's namespace.
void dot_backward_on_target(std::span<const Matrix<const float>> fields,
                            Matrix<const float> dout,
                            std::span<const Matrix<float>> dfields,
                            std::int64_t accumulate,
                            float* scratch) {
  backward(fields, dout, dfields, accumulate, scratch);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "weft/base/error.h"
#include "weft/kernels/cpu/fields.h"

namespace weft::kernels {

HWY_EXPORT(dot_backward_on_target);

namespace cpu {

void dot_interaction_backward(Context& /*ctx*/, const DotBackward& args) {
  WEFT_CHECK(!args.fields.empty() && args.fields.size() == args.dfields.size());
  WEFT_CHECK(args.dout.cols == num_pairs(static_cast<std::int64_t>(args.fields.size())),
             "{} columns", args.dout.cols);
  check_fields(args.fields, args.dout.rows, args.fields[0].cols);
  check_fields(args.dfields, args.dout.rows, args.fields[0].cols);
  HWY_DYNAMIC_DISPATCH(dot_backward_on_target)
  (args.fields, args.dout, args.dfields, args.accumulate, args.scratch);
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
