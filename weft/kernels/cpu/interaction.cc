// Dot interaction, one sample at a time, in the first-level cache (27 x 128 floats are 14 kB):
//
//   rows      the F vectors of the sample side by side, padded with zeros to 16 floats and vectors
//   forward   turn rows into columns; for some i, for 16 j < i: acc_i += row_i[d] * column_d[j..],
//             d in order, so that no sum runs across a register
//   backward  for some i, for each 16 columns: acc_i += dout(i, j) * row_j, j in order
//
// "Some" are as many as hide the latency of the multiply-add. dout(i, j) lies in the packed
// triangle: behind each other for j < i by j, for j > i by i; only the square around the diagonal
// is laid out for it.
#include "weft/kernels/interaction.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "weft/base/parts.h"

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

// Vectors whose sums are in registers together: eight of them.
constexpr std::int64_t kTogether =
    std::max<std::int64_t>(1, 8 / static_cast<std::int64_t>(kVectors));

std::int64_t round_to_lanes(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

// The sample's vectors as rows [F rounded up, D rounded up]; what is behind F and D is left alone.
void gather(const Fields& fields, std::int64_t s, std::int64_t width, float* rows) {
  for (const Matrix<const float>& field : fields) {
    // Whole blocks as registers: a call of memcpy for 64 bytes costs more than the copy.
    const float* const row = field.row(s);
    std::int64_t d = 0;
    for (; d + kLanes <= field.cols; d += kLanes) {
      store_lanes(load_lanes(row + d), rows + d);
    }
    for (; d < field.cols; ++d) {
      rows[d] = row[d];
    }
    rows += width;
  }
}

// dots[i, j] for rows i of [begin, begin + kTogether) and j of [0, begin + kTogether).
void dots_of(const float* rows,
             const float* columns,
             std::int64_t begin,
             std::int64_t width,
             std::int64_t height,
             float* dots) {
  for (std::int64_t j = 0; j < begin + kTogether; j += kLanes) {
    Lanes sums[kTogether];
    for (Lanes& sum : sums) {
      sum = zero_lanes();
    }
    const float* const row = rows + begin * width;
    for (std::int64_t d = 0; d < width; ++d) {
      const Lanes column = load_lanes(columns + d * height + j);
      HWY_UNROLL(8)
      for (std::int64_t r = 0; r < kTogether; ++r) {
        sums[r] = mul_add(row[r * width + d], column, sums[r]);
      }
    }
    for (std::int64_t r = 0; r < kTogether; ++r) {
      store_lanes(sums[r], dots + (begin + r) * height + j);
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
  float* const rows = scratch;
  float* const columns = rows + height * width;
  float* const dots = columns + width * height;
  std::fill_n(rows, 2 * height * width, 0.0F);  // what is behind F and D stays so
  for (std::int64_t s = 0; s < out.rows; ++s) {
    gather(fields, s, width, rows);
    for (std::int64_t i = 0; i < count; i += 4) {
      for (std::int64_t d = 0; d < width; d += 4) {
        turn_4x4(rows + i * width + d, width, columns + d * height + i, height);
      }
    }
    for (std::int64_t i = 0; i < count; i += kTogether) {
      dots_of(rows, columns, i, width, height, dots);
    }
    pack_triangle(dots, count, height, out.row(s));
  }
}

// Fields [begin, end) of the pairs' gradients with each other, as a symmetric matrix with zeros on
// the diagonal.
using Square = float[kTogether][kTogether];

void fill_square(const float* pairs, std::int64_t begin, std::int64_t end, Square& square) {
  for (std::int64_t i = 0; i < end - begin; ++i) {
    const float* const row = pairs + num_pairs(begin + i) + begin;
    for (std::int64_t j = 0; j < i; ++j) {
      square[i][j] = square[j][i] = row[j];
    }
    square[i][i] = 0.0F;
  }
}

// Adds columns of the gradients of fields [begin, end), at most kTogether of them; `rows` points to
// those columns. Sums of fields that do not exist are anything.
void backward_block(const float* pairs,
                    const Square& square,
                    Range block,
                    std::int64_t count,
                    const float* rows,
                    std::int64_t width,
                    Lanes (&sums)[kTogether]) {
  const float* below[kTogether];
  for (std::int64_t r = 0; r < kTogether; ++r) {
    below[r] = pairs + num_pairs(std::min(block.begin + r, block.end - 1));
  }
  for (std::int64_t j = 0; j < block.begin; ++j) {
    const Lanes row = load_lanes(rows + j * width);
    HWY_UNROLL(8)
    for (std::int64_t r = 0; r < kTogether; ++r) {
      sums[r] = mul_add(below[r][j], row, sums[r]);
    }
  }
  for (std::int64_t j = block.begin; j < block.end; ++j) {
    const Lanes row = load_lanes(rows + j * width);
    HWY_UNROLL(8)
    for (std::int64_t r = 0; r < kTogether; ++r) {
      sums[r] = mul_add(square[j - block.begin][r], row, sums[r]);
    }
  }
  for (std::int64_t j = block.end; j < count; ++j) {
    const Lanes row = load_lanes(rows + j * width);
    const float* const right = pairs + num_pairs(j) + block.begin;
    HWY_UNROLL(8)
    for (std::int64_t r = 0; r < kTogether; ++r) {
      sums[r] = mul_add(right[r], row, sums[r]);
    }
  }
}

void load_some(const float* from, std::int64_t count, Lanes& to) {
  alignas(64) float block[kLanes] = {};
  std::copy_n(from, count, block);
  to = load_lanes(block);
}

void store_some(const Lanes& from, std::int64_t count, float* to) {
  if (count == kLanes) {
    store_lanes(from, to);
    return;
  }
  alignas(64) float block[kLanes];
  store_lanes(from, block);
  std::copy_n(block, count, to);
}

void backward(const Fields& fields,
              const Matrix<const float>& dout,
              std::span<const Matrix<float>> dfields,
              std::int64_t accumulate,
              float* scratch) {
  const auto count = static_cast<std::int64_t>(fields.size());
  const std::int64_t dim = fields[0].cols;
  const std::int64_t width = round_to_lanes(dim);
  Square square = {};
  std::fill_n(scratch, count * width, 0.0F);
  for (std::int64_t s = 0; s < dout.rows; ++s) {
    gather(fields, s, width, scratch);
    for (std::int64_t i = 0; i < count; i += kTogether) {
      const Range block{i, std::min(count, i + kTogether)};
      fill_square(dout.row(s), block.begin, block.end, square);
      for (std::int64_t d = 0; d < dim; d += kLanes) {
        const std::int64_t cols = std::min(kLanes, dim - d);
        Lanes sums[kTogether];
        for (std::int64_t r = 0; r < kTogether; ++r) {
          sums[r] = zero_lanes();
          if (i + r < std::min(accumulate, count)) {
            load_some(dfields[static_cast<std::size_t>(i + r)].row(s) + d, cols, sums[r]);
          }
        }
        backward_block(dout.row(s), square, block, count, scratch + d, width, sums);
        for (std::int64_t k = block.begin; k < block.end; ++k) {
          store_some(sums[k - i], cols, dfields[static_cast<std::size_t>(k)].row(s) + d);
        }
      }
    }
  }
}

void fm_forward(const Fields& fields, const Matrix<float>& sums, float* out) {
  const std::int64_t dim = sums.cols;
  for (std::int64_t s = 0; s < sums.rows; ++s) {
    Lanes total = zero_lanes();
    for (std::int64_t d = 0; d < dim; d += kLanes) {
      const std::int64_t width = std::min(kLanes, dim - d);
      Lanes sum = zero_lanes();
      Lanes squares = zero_lanes();
      for (const Matrix<const float>& field : fields) {
        alignas(64) float block[kLanes] = {};
        std::copy_n(field.row(s) + d, width, block);
        const Lanes x = load_lanes(block);
        sum = mul_add(1.0F, x, sum);
        squares = mul_add(x, x, squares);
      }
      alignas(64) float block[kLanes];
      store_lanes(sum, block);
      std::copy_n(block, width, sums.row(s) + d);
      total = mul_add(-1.0F, squares, mul_add(sum, sum, total));
    }
    out[s] = 0.5F * sum_lanes(total);
  }
}

void fm_backward(const Fields& fields,
                 const Matrix<const float>& sums,
                 const float* dout,
                 std::span<const Matrix<float>> dfields) {
  for (std::size_t f = 0; f < fields.size(); ++f) {
    for (std::int64_t s = 0; s < sums.rows; ++s) {
      const float* x = fields[f].row(s);
      const float* sum = sums.row(s);
      float* to = dfields[f].row(s);
      for (std::int64_t d = 0; d < sums.cols; ++d) {
        to[d] += dout[s] * (sum[d] - x[d]);
      }
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

void fm_forward_on_target(std::span<const Matrix<const float>> fields,
                          Matrix<float> sums,
                          float* out) {
  fm_forward(fields, sums, out);
}

void fm_backward_on_target(std::span<const Matrix<const float>> fields,
                           Matrix<const float> sums,
                           const float* dout,
                           std::span<const Matrix<float>> dfields) {
  fm_backward(fields, sums, dout, dfields);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "weft/base/error.h"

namespace weft::kernels {

HWY_EXPORT(dot_forward_on_target);
HWY_EXPORT(dot_backward_on_target);
HWY_EXPORT(fm_forward_on_target);
HWY_EXPORT(fm_backward_on_target);

namespace {

template <typename T>
void check_fields(std::span<const Matrix<T>> fields, std::int64_t rows, std::int64_t dim) {
  for (const Matrix<T>& field : fields) {
    WEFT_CHECK(field.rows == rows && field.cols == dim, "field [{}, {}] among [{}, {}]", field.rows,
               field.cols, rows, dim);
  }
}

}  // namespace

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

void factorization_forward(Context& /*ctx*/, const FactorizationForward& args) {
  check_fields(args.fields, args.sums.rows, args.sums.cols);
  HWY_DYNAMIC_DISPATCH(fm_forward_on_target)(args.fields, args.sums, args.out);
}

void factorization_backward(Context& /*ctx*/, const FactorizationBackward& args) {
  WEFT_CHECK(args.fields.size() == args.dfields.size());
  check_fields(args.fields, args.sums.rows, args.sums.cols);
  check_fields(args.dfields, args.sums.rows, args.sums.cols);
  HWY_DYNAMIC_DISPATCH(fm_backward_on_target)(args.fields, args.sums, args.dout, args.dfields);
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
