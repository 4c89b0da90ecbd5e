// Dot interaction, one sample at a time, in the first-level cache (27 x 128 floats are 14 kB), into
// which the next sample's vectors are asked for meanwhile, and the lines of its gradients. A
// sample's vectors are read once, where they lie:
//
//   forward   turn vectors into columns, 16 fields side by side, behind F and D zeros; for some i,
//             for 16 or 32 j: acc_i += column_d[i] * column_d[j..], d in order, so that no sum runs
//             across a register
//   backward  lay dout(i, j) out as a symmetric matrix; for some i, for each 16 or 32 columns:
//             acc_i += dout(j, i) * vector_j, j in order
//
// "Some" are as many as registers hold, which hides the latency of the multiply-add.
#include "weft/kernels/interaction.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/interaction.cc"
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

// The blocks of four of a register, `stride` apart.
template <class Tag, class Vec>
HWY_INLINE void store_blocks(Tag tag, Vec v, float* to, std::int64_t stride) {
  if constexpr (hn::MaxLanes(tag) <= 4) {
    hn::StoreU(v, tag, to);
  } else {
    const hn::Half<Tag> half;
    store_blocks(half, hn::LowerHalf(half, v), to, stride);
    constexpr auto kBlocks = static_cast<std::int64_t>(hn::MaxLanes(tag) / 8);
    store_blocks(half, hn::UpperHalf(half, v), to + kBlocks * stride, stride);
  }
}

// to[d * stride + i] = rows[i][d] for i below 4 and d below 16.
HWY_INLINE void turn_4x16(const Lanes (&rows)[4], float* to, std::int64_t stride) {
  const FloatTag tag;
  for (std::size_t v = 0; v < kVectors; ++v) {
    float* const at = to + static_cast<std::int64_t>(v * kWidth) * stride;
    turn_words(tag, rows[0].v[v], rows[1].v[v], rows[2].v[v], rows[3].v[v],
               [&](auto words, std::int64_t j)
                   HWY_ATTR { store_blocks(tag, words, at + j * stride, 4 * stride); });
  }
}

// columns[d * height + i] = field_i[s, d], with zeros up to whole blocks of 16 d and 4 i.
void turn_fields(const Fields& fields, std::int64_t s, std::int64_t height, float* columns) {
  const auto count = static_cast<std::int64_t>(fields.size());
  const std::int64_t dim = fields[0].cols;
  const std::int64_t next = std::min(s + 1, fields[0].rows - 1);
  for (std::int64_t i = 0; i < count; i += 4) {
    const auto some =
        fields.subspan(static_cast<std::size_t>(i),
                       static_cast<std::size_t>(std::min<std::int64_t>(4, count - i)));
    for (std::int64_t d = 0; d < dim; d += kLanes) {
      Lanes rows[4];
      HWY_UNROLL(4)
      for (std::size_t r = 0; r < 4; ++r) {
        rows[r] = zero_lanes();
      }
      if (some.size() == 4 && dim - d >= kLanes) {
        HWY_UNROLL(4)
        for (std::size_t r = 0; r < 4; ++r) {
          rows[r] = load_lanes(some[r].row(s) + d);
        }
      } else {
        alignas(64) float block[4][kLanes] = {};
        for (std::size_t r = 0; r < some.size(); ++r) {
          std::copy_n(some[r].row(s) + d, std::min(kLanes, dim - d), block[r]);
        }
        HWY_UNROLL(4)
        for (std::size_t r = 0; r < 4; ++r) {
          rows[r] = load_lanes(block[r]);
        }
      }
      for (const Matrix<const float>& field : some) {
        __builtin_prefetch(field.row(next) + d);
      }
      turn_4x16(rows, columns + d * height + i, height);
    }
  }
}

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

// dots[i, j] for kRows rows i from `begin` on and kAcross registers of j from `j` on.
template <int kRows, int kAcross>
void dots_block(const float* columns,
                std::int64_t begin,
                std::int64_t j,
                std::int64_t width,
                std::int64_t height,
                float* dots) {
  Lanes sums[kRows][kAcross];
  clear(sums);
  const float* column = columns;
  for (std::int64_t d = 0; d < width; ++d, column += height) {
    Lanes across[kAcross];
    HWY_UNROLL(2)
    for (int a = 0; a < kAcross; ++a) {
      across[a] = load_lanes(column + j + a * kLanes);
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int a = 0; a < kAcross; ++a) {
        sums[r][a] = mul_add(column[begin + r], across[a], sums[r][a]);
      }
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int a = 0; a < kAcross; ++a) {
      store_lanes(sums[r][a], dots + (begin + r) * height + j + a * kLanes);
    }
  }
}

// dots[i, j] for kRows rows i from `begin` on, within a band of 16, and j up to the band's end.
template <int kRows>
void dots_rows(const float* columns,
               std::int64_t begin,
               std::int64_t width,
               std::int64_t height,
               float* dots) {
  std::int64_t j = 0;
  if constexpr (kWide && kRows <= 12) {
    for (; j + kLanes <= begin; j += 2 * kLanes) {
      dots_block<kRows, 2>(columns, begin, j, width, height, dots);
    }
  }
  for (; j <= begin; j += kLanes) {
    dots_block<kRows, 1>(columns, begin, j, width, height, dots);
  }
}

// dots[i, j] for all i and j < i. Blocks of rows end with a band of 16.
void all_dots(const float* columns,
              std::int64_t count,
              std::int64_t width,
              std::int64_t height,
              float* dots) {
  for (std::int64_t i = 0; i < count;) {
    if constexpr (kWide) {
      const std::int64_t left = std::min(count, round_to_lanes(i + 1)) - i;
      if (left > 12 && i == 0) {
        dots_rows<16>(columns, i, width, height, dots);
        i += 16;
      } else if (left > 8 && left <= 12) {
        dots_rows<12>(columns, i, width, height, dots);
        i += 12;
      } else if (left > 4) {
        dots_rows<8>(columns, i, width, height, dots);
        i += 8;
      } else {
        dots_rows<4>(columns, i, width, height, dots);
        i += 4;
      }
    } else {
      dots_rows<kTogether>(columns, i, width, height, dots);
      i += kTogether;
    }
  }
}

// The strictly lower triangle of dots, row behind row. Whole registers, the surplus of which the
// next rows overwrite, but for those that would go beyond the end.
void pack_triangle(const float* dots, std::int64_t count, std::int64_t height, float* out) {
  const std::int64_t total = num_pairs(count);
  for (std::int64_t i = 1; i < count; ++i) {
    for (std::int64_t j = 0; j < i; j += kLanes) {
      const std::int64_t at = num_pairs(i) + j;
      const float* const from = dots + i * height + j;
      if (at + kLanes <= total) {
        store_lanes(load_lanes(from), out + at);
      } else {
        std::copy_n(from, std::min(kLanes, i - j), out + at);
      }
    }
  }
}

void forward(const Fields& fields, const Matrix<float>& out, float* scratch) {
  const auto count = static_cast<std::int64_t>(fields.size());
  const std::int64_t width = round_to_lanes(fields[0].cols);
  const std::int64_t height = round_to_lanes(count);
  float* const columns = scratch;
  float* const dots = columns + width * height;
  std::fill_n(columns, width * height, 0.0F);  // what is behind F stays so
  for (std::int64_t s = 0; s < out.rows; ++s) {
    turn_fields(fields, s, height, columns);
    all_dots(columns, count, width, height, dots);
    pack_triangle(dots, count, height, out.row(s));
  }
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

// Highway exports functions by name from each target's namespace.
void dot_forward_on_target(std::span<const Matrix<const float>> fields,
                           Matrix<float> out,
                           float* scratch) {
  forward(fields, out, scratch);
}

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

HWY_EXPORT(dot_forward_on_target);
HWY_EXPORT(dot_backward_on_target);

namespace cpu {

void dot_interaction_forward(Context& /*ctx*/, const DotForward& args) {
  WEFT_CHECK(!args.fields.empty());
  WEFT_CHECK(args.out.cols == num_pairs(static_cast<std::int64_t>(args.fields.size())),
             "{} columns", args.out.cols);
  check_fields(args.fields, args.out.rows, args.fields[0].cols);
  HWY_DYNAMIC_DISPATCH(dot_forward_on_target)(args.fields, args.out, args.scratch);
}

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
