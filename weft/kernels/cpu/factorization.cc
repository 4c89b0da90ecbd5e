// DeepFM's second-order term: one pass over the fields' vectors, 16 columns at a time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/kernels/interaction.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/factorization.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace {

using FieldList = std::span<const Matrix<const float>>;

void fm_forward(const FieldList& fields, const Matrix<float>& sums, float* out) {
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

void fm_backward(const FieldList& fields,
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
#include "weft/kernels/cpu/fields.h"

namespace weft::kernels {

HWY_EXPORT(fm_forward_on_target);
HWY_EXPORT(fm_backward_on_target);

namespace cpu {

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
