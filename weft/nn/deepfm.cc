// DeepFM (Guo et al., IJCAI 2017) over z = [x, v_1 .. v_F]: each task's logit is the sum of
//   first order   a linear layer over z, without bias
//   second order  the factorisation machine over the vectors of dim D, one number for all tasks
//   deep          an MLP over z
// x is the bottom MLP's output and takes part in the second order; without a bottom MLP it is the
// dense values, which do not.
#include "weft/base/error.h"
#include "weft/kernels/elementwise.h"
#include "weft/kernels/interaction.h"
#include "weft/nn/concatenated.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

class DeepFm final : public DenseModel {
 public:
  DeepFm(const spec::Model& options, const ModelShape& shape);

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  std::int64_t dim_;
  Concatenated all_;
  Mlp first_order_;
  Mlp deep_;
  std::size_t first_slot_;
  std::size_t second_slot_;
  std::size_t sums_slot_;
  std::size_t dz_slot_;
  std::size_t dfirst_slot_;
  std::size_t dsecond_slot_;
};

DeepFm::DeepFm(const spec::Model& options, const ModelShape& shape)
    : DenseModel(options, shape),
      dim_(common_dim(options, shape)),
      all_(builder_, options, shape, dim_, DType::kFloat32),
      first_slot_(builder_.add_slot()),
      second_slot_(builder_.add_slot()),
      sums_slot_(builder_.add_slot()),
      dz_slot_(builder_.add_slot()),
      dfirst_slot_(builder_.add_slot()),
      dsecond_slot_(builder_.add_slot()) {
  if (shape.features.empty()) {
    fail(ErrorCode::kConfig, "model.type: deepfm needs sparse features; declare sparse_features");
  }
  if (all_.has_bottom() && all_.x_width() != dim_) {
    fail(ErrorCode::kConfig,
         "model.bottom_mlp ends in width {}, but DeepFM's vectors have dim {}{}; make them equal, "
         "or remove it to give the dense values to the linear and deep terms only",
         all_.x_width(), dim_, options.projection_dim > 0 ? " (model.projection_dim)" : "");
  }
  first_order_ = Mlp(builder_, all_.width(),
                     {{"dense.linear", shape.tasks, kernels::Activation::kNone, Bias::kNone}});
  deep_ = make_head("dense.deep", all_.width());
}

void DeepFm::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<float> z = all_.forward(weights_, input, lane).as<float>();
  const Matrix<float> first = lane.get<float>(first_slot_, input.size, shape_.tasks);
  first_order_.forward(weights_, lane, z, first);
  deep_.forward(weights_, lane, z, logits);
  kernels::add(*lane.ctx, {.from = first, .to = logits});

  const Matrix<float> sums = lane.get<float>(sums_slot_, input.size, dim_);
  float* second = lane.get<float>(second_slot_, input.size);
  if (all_.has_bottom()) {
    lane.fields.insert(lane.fields.begin(), z.slice_cols(0, dim_));
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
  const Matrix<float> z = all_.values(input, lane).as<float>();
  const Matrix<float> dz = lane.get<float>(dz_slot_, input.size, all_.width());
  const Matrix<float> dfirst = lane.get<float>(dfirst_slot_, input.size, all_.width());
  deep_.backward(weights_, terms, lane, {z, {}, dlogits, dz});
  first_order_.backward(weights_, terms, lane, {z, {}, dlogits, dfirst});
  kernels::add(*lane.ctx, {.from = dfirst, .to = dz});

  // All tasks share the second order: its gradient is the sum over them, in order.
  const Matrix<float> dsecond = lane.get<float>(dsecond_slot_, input.size, 1);
  kernels::assign(*lane.ctx, {.from = dlogits.slice_cols(0, 1), .to = dsecond});
  for (std::int64_t t = 1; t < shape_.tasks; ++t) {
    kernels::add(*lane.ctx, {.from = dlogits.slice_cols(t, t + 1), .to = dsecond});
  }
  all_.split_gradients(input, lane, dz, gradients);
  if (all_.has_bottom()) {
    lane.dfields.insert(lane.dfields.begin(), dz.slice_cols(0, dim_));
  }
  kernels::factorization_backward(*lane.ctx, {.fields = lane.fields,
                                              .sums = lane.get<float>(sums_slot_, input.size, dim_),
                                              .dout = dsecond.data,
                                              .dfields = lane.dfields});
  all_.backward(weights_, input, terms, lane, dz, gradients);
}

}  // namespace

std::unique_ptr<Model> make_deepfm(const spec::Model& options, const ModelShape& shape) {
  return std::make_unique<DeepFm>(options, shape);
}

}  // namespace weft::nn
