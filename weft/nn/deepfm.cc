// DeepFM (Guo et al., IJCAI 2017) over z = [x, v_1 .. v_F]: each task's logit is the sum of
//   first order   a linear layer over z, without bias
//   second order  the factorisation machine over the vectors of dim D, one number for all tasks
//   deep          an MLP over z
// x is the bottom MLP's output and takes part in the second order; without a bottom MLP it is the
// dense values, which do not.
#include <utility>

#include "weft/kernels/elementwise.h"
#include "weft/kernels/interaction.h"
#include "weft/nn/concatenated.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

class DeepFm final : public DenseModel {
 public:
  DeepFm(layout::DenseModel description, layout::DeepFm parts, const ModelShape& shape)
      : DenseModel(std::move(description), shape, parts.dlogits), parts_(std::move(parts)) {}

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  [[nodiscard]] Concatenated all() const { return {description_, parts_.all}; }

  [[nodiscard]] Mlp first_order() const { return {description_, parts_.first_order}; }

  [[nodiscard]] Mlp deep() const { return {description_, parts_.deep}; }

  [[nodiscard]] bool has_bottom() const { return !parts_.all.bottom.empty(); }

  layout::DeepFm parts_;
};

void DeepFm::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<float> z = all().forward(weights_, input, lane).as<float>();
  const Matrix<float> first = lane.get<float>(parts_.first, input.size, shape_.tasks);
  first_order().forward(weights_, lane, z, first);
  deep().forward(weights_, lane, z, logits);
  kernels::add(*lane.ctx, {.from = first, .to = logits});

  const Matrix<float> sums = lane.get<float>(parts_.sums, input.size, parts_.dim);
  float* second = lane.get<float>(parts_.second, input.size);
  if (has_bottom()) {
    lane.fields.insert(lane.fields.begin(), z.slice_cols(0, parts_.dim));
  }
  kernels::factorization_forward(*lane.ctx, {.fields = lane.fields, .sums = sums, .out = second});
  for (std::int64_t t = 0; t < shape_.tasks; ++t) {
    kernels::add(*lane.ctx,
                 {.from = matrix(second, input.size, 1), .to = logits.slice_cols(t, t + 1)});
  }
}

void DeepFm::run_backward(const SliceInput& input,
                          ModelTerms& terms,
                          ModelLane& lane,
                          Matrix<float> dlogits,
                          SliceGradients& gradients) const {
  const Matrix<float> z = all().values(input, lane).as<float>();
  const Matrix<float> dz = lane.get<float>(parts_.dz, input.size, parts_.all.width);
  const Matrix<float> dfirst = lane.get<float>(parts_.dfirst, input.size, parts_.all.width);
  deep().backward(weights_, terms, lane, {z, {}, dlogits, dz});
  first_order().backward(weights_, terms, lane, {z, {}, dlogits, dfirst});
  kernels::add(*lane.ctx, {.from = dfirst, .to = dz});

  // All tasks share the second order: its gradient is the sum over them, in order.
  const Matrix<float> dsecond = lane.get<float>(parts_.dsecond, input.size, 1);
  kernels::assign(*lane.ctx, {.from = dlogits.slice_cols(0, 1), .to = dsecond});
  for (std::int64_t t = 1; t < shape_.tasks; ++t) {
    kernels::add(*lane.ctx, {.from = dlogits.slice_cols(t, t + 1), .to = dsecond});
  }
  all().split_gradients(input, lane, dz, gradients);
  if (has_bottom()) {
    lane.dfields.insert(lane.dfields.begin(), dz.slice_cols(0, parts_.dim));
  }
  kernels::factorization_backward(*lane.ctx,
                                  {.fields = lane.fields,
                                   .sums = lane.get<float>(parts_.sums, input.size, parts_.dim),
                                   .dout = dsecond.data,
                                   .dfields = lane.dfields});
  all().backward(weights_, input, terms, lane, dz, gradients);
}

}  // namespace

std::unique_ptr<Model> make_deepfm(const spec::Model& options, const ModelShape& shape) {
  layout::DenseModel description(options.compute);
  layout::DeepFm parts(description, options, shape);
  return std::make_unique<DeepFm>(std::move(description), std::move(parts), shape);
}

}  // namespace weft::nn
