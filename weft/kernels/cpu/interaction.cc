// Dot interaction, one sample at a time:
//
//   copy the F vectors of the sample into rows of `scratch`, padded with zeros to 16 floats
//   forward   for i: for j < i, four at a time: acc_j += row_i * row_j; out = sum over lanes
//   backward  for i, up to eight at a time: for each 16 columns: acc_i += dout(i, j) * row_j, j in
//             order, dout as a full symmetric matrix with zeros for j = i
//
// The copy costs F D floats against F² D / 2 multiply-adds, makes tails and strides vanish, and
// keeps a sample in the first-level cache (27 x 128 floats are 14 kB). Four pairs at a time reuse
// row i and hide the latency of the multiply-add.
#include "weft/kernels/interaction.h"

#include <algorithm>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/interaction.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace {

using Fields = std::span<const Matrix<const float>>;

// Row i of the sample, padded: scratch[i * padded ..].
void gather(const Fields& fields, std::int64_t s, std::int64_t padded, float* scratch) {
  for (const Matrix<const float>& field : fields) {
    // Whole blocks as registers: a call of memcpy for 64 bytes costs more than the copy.
    const float* const row = field.row(s);
    std::int64_t d = 0;
    for (; d + kLanes <= field.cols; d += kLanes) {
      store_lanes(load_lanes(row + d), scratch + d);
    }
    for (; d < padded; ++d) {
      scratch[d] = d < field.cols ? row[d] : 0.0F;
    }
    scratch += padded;
  }
}

float dot(const float* a, const float* b, std::int64_t padded) {
  Lanes sum = zero_lanes();
  for (std::int64_t d = 0; d < padded; d += kLanes) {
    sum = mul_add(load_lanes(a + d), load_lanes(b + d), sum);
  }
  return sum_lanes(sum);
}

// out[0..4) = a · b, a · (b + padded), ..
void dot4(const float* a, const float* b, std::int64_t padded, float* out) {
  Lanes sum0 = zero_lanes();
  Lanes sum1 = zero_lanes();
  Lanes sum2 = zero_lanes();
  Lanes sum3 = zero_lanes();
  for (std::int64_t d = 0; d < padded; d += kLanes) {
    const Lanes x = load_lanes(a + d);
    sum0 = mul_add(x, load_lanes(b + d), sum0);
    sum1 = mul_add(x, load_lanes(b + padded + d), sum1);
    sum2 = mul_add(x, load_lanes(b + 2 * padded + d), sum2);
    sum3 = mul_add(x, load_lanes(b + 3 * padded + d), sum3);
  }
  out[0] = sum_lanes(sum0);
  out[1] = sum_lanes(sum1);
  out[2] = sum_lanes(sum2);
  out[3] = sum_lanes(sum3);
}

void forward(const Fields& fields, const Matrix<float>& out, float* scratch) {
  const auto count = static_cast<std::int64_t>(fields.size());
  const std::int64_t padded = (fields[0].cols + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t s = 0; s < out.rows; ++s) {
    gather(fields, s, padded, scratch);
    float* pair = out.row(s);
    for (std::int64_t i = 1; i < count; ++i) {
      const float* row = scratch + i * padded;
      std::int64_t j = 0;
      for (; j + 4 <= i; j += 4) {
        dot4(row, scratch + j * padded, padded, pair + j);
      }
      for (; j < i; ++j) {
        pair[j] = dot(row, scratch + j * padded, padded);
      }
      pair += i;
    }
  }
}

// The pairs' gradients as a symmetric matrix [F, stride] with zeros on the diagonal and behind F.
void expand(const float* pairs, std::int64_t count, std::int64_t stride, float* full) {
  std::fill(full, full + count * stride, 0.0F);
  for (std::int64_t i = 1; i < count; ++i) {
    for (std::int64_t j = 0; j < i; ++j) {
      full[i * stride + j] = full[j * stride + i] = pairs[num_pairs(i) + j];
    }
  }
}

// Fields whose gradients are summed together: eight registers of sums hide the latency of the
// multiply-add, and each row of `scratch` is loaded once for all of them.
constexpr std::int64_t kTogether =
    std::max<std::int64_t>(1, 8 / static_cast<std::int64_t>(kVectors));

// Columns [d, d + width) of the gradients of fields [i, i + kTogether) that exist.
void backward_block(const float* full,
                    std::int64_t stride,
                    const float* rows,
                    std::int64_t padded,
                    std::int64_t count,
                    Lanes (&sums)[kTogether]) {
  for (std::int64_t j = 0; j < count; ++j) {
    const Lanes row = load_lanes(rows + j * padded);
    for (std::int64_t r = 0; r < kTogether; ++r) {
      sums[r] = mul_add(full[j * stride + r], row, sums[r]);
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
  const std::int64_t padded = (dim + kLanes - 1) / kLanes * kLanes;
  const std::int64_t stride = (count + kLanes - 1) / kLanes * kLanes;
  float* full = scratch + count * padded;
  alignas(64) float block[kLanes];
  for (std::int64_t s = 0; s < dout.rows; ++s) {
    gather(fields, s, padded, scratch);
    expand(dout.row(s), count, stride, full);
    for (std::int64_t i = 0; i < count; i += kTogether) {
      const std::int64_t end = std::min(count, i + kTogether);
      for (std::int64_t d = 0; d < dim; d += kLanes) {
        const std::int64_t width = std::min(kLanes, dim - d);
        Lanes sums[kTogether];
        for (std::int64_t r = 0; r < kTogether; ++r) {
          sums[r] = zero_lanes();
          if (i + r < std::min(accumulate, count)) {
            std::fill(block, block + kLanes, 0.0F);
            std::copy_n(dfields[static_cast<std::size_t>(i + r)].row(s) + d, width, block);
            sums[r] = load_lanes(block);
          }
        }
        backward_block(full + i, stride, scratch + d, padded, count, sums);
        for (std::int64_t k = i; k < end; ++k) {
          float* to = dfields[static_cast<std::size_t>(k)].row(s) + d;
          if (width == kLanes) {
            store_lanes(sums[k - i], to);
          } else {
            store_lanes(sums[k - i], block);
            std::copy_n(block, width, to);
          }
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

void dot_interaction_forward(std::span<const Matrix<const float>> fields,
                             Matrix<float> out,
                             float* scratch) {
  WEFT_CHECK(!fields.empty());
  WEFT_CHECK(out.cols == num_pairs(static_cast<std::int64_t>(fields.size())), "{} columns",
             out.cols);
  check_fields(fields, out.rows, fields[0].cols);
  HWY_DYNAMIC_DISPATCH(dot_forward_on_target)(fields, out, scratch);
}

void dot_interaction_backward(std::span<const Matrix<const float>> fields,
                              Matrix<const float> dout,
                              std::span<const Matrix<float>> dfields,
                              std::int64_t accumulate,
                              float* scratch) {
  WEFT_CHECK(!fields.empty() && fields.size() == dfields.size());
  WEFT_CHECK(dout.cols == num_pairs(static_cast<std::int64_t>(fields.size())), "{} columns",
             dout.cols);
  check_fields(fields, dout.rows, fields[0].cols);
  check_fields(dfields, dout.rows, fields[0].cols);
  HWY_DYNAMIC_DISPATCH(dot_backward_on_target)(fields, dout, dfields, accumulate, scratch);
}

void factorization_forward(std::span<const Matrix<const float>> fields,
                           Matrix<float> sums,
                           float* out) {
  check_fields(fields, sums.rows, sums.cols);
  HWY_DYNAMIC_DISPATCH(fm_forward_on_target)(fields, sums, out);
}

void factorization_backward(std::span<const Matrix<const float>> fields,
                            Matrix<const float> sums,
                            const float* dout,
                            std::span<const Matrix<float>> dfields) {
  WEFT_CHECK(fields.size() == dfields.size());
  check_fields(fields, sums.rows, sums.cols);
  check_fields(dfields, sums.rows, sums.cols);
  HWY_DYNAMIC_DISPATCH(fm_backward_on_target)(fields, sums, dout, dfields);
}

}  // namespace weft::kernels

#endif
