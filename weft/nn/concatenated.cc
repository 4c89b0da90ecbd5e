#include "weft/nn/concatenated.h"

#include "weft/kernels/elementwise.h"

namespace weft::nn {

Concatenated::Concatenated(Builder& builder,
                           const spec::Model& options,
                           const ModelShape& shape,
                           std::int64_t field_dim)
    : x_width_(options.bottom_mlp.empty() ? shape.dense : options.bottom_mlp.back()),
      width_(x_width_),
      slot_(builder.add_slot()) {
  if (!options.bottom_mlp.empty()) {
    bottom_ = Mlp(builder, shape.dense, hidden_layers("dense.bottom", options.bottom_mlp));
  }
  features_ = FeatureVectors(builder, options, shape, field_dim);
  for (const FeatureShape& feature : shape.features) {
    width_ += field_dim > 0 ? field_dim : feature.dim;
  }
}

Matrix<float> Concatenated::forward(const Weights& weights,
                                    const PartInput& input,
                                    PartWorkspace& workspace) const {
  const Matrix<float> all = values(input, workspace);
  const Matrix<float> x = all.slice_cols(0, x_width_);
  if (has_bottom()) {
    bottom_.forward(weights, workspace, input.dense, x);
  } else if (x_width_ > 0) {
    kernels::copy(input.dense, x);
  }
  features_.forward(weights, input, workspace);
  std::int64_t begin = x_width_;
  for (const Matrix<const float>& field : workspace.fields) {
    kernels::copy(field, all.slice_cols(begin, begin + field.cols));
    begin += field.cols;
  }
  return all;
}

Matrix<float> Concatenated::values(const PartInput& input, PartWorkspace& workspace) const {
  return workspace.get<float>(slot_, input.size, width_);
}

void Concatenated::split_gradients(const PartInput& input,
                                   PartWorkspace& workspace,
                                   Matrix<const float> dvalues,
                                   PartGradients& gradients) const {
  features_.place_gradients(input, workspace, gradients);
  std::int64_t begin = x_width_;
  for (const Matrix<float>& dfield : workspace.dfields) {
    kernels::copy(dvalues.slice_cols(begin, begin + dfield.cols), dfield);
    begin += dfield.cols;
  }
}

void Concatenated::backward(const Weights& weights,
                            const PartInput& input,
                            PartWorkspace& workspace,
                            Matrix<float> dvalues,
                            float* flat_gradients,
                            PartGradients& gradients) const {
  features_.backward(weights, input, workspace, flat_gradients, gradients);
  if (has_bottom()) {
    bottom_.backward(weights, workspace,
                     {input.dense,
                      values(input, workspace).slice_cols(0, x_width_),
                      dvalues.slice_cols(0, x_width_),
                      {}},
                     flat_gradients);
  }
}

}  // namespace weft::nn
