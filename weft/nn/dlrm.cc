// DLRM (Naumov et al., 2019): x = bottom(dense); fields x, v_1 .. v_F of one dim D; the head sees
// [x, all dots of two different fields].
#include <utility>

#include "weft/kernels/interaction.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

class Dlrm final : public DenseModel {
 public:
  Dlrm(layout::DenseModel description, layout::Dlrm parts, const ModelShape& shape)
      : DenseModel(std::move(description), shape, parts.dlogits), parts_(std::move(parts)) {}

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  [[nodiscard]] Mlp bottom() const { return {description_, parts_.bottom}; }

  [[nodiscard]] Mlp top() const { return {description_, parts_.top}; }

  [[nodiscard]] FeatureVectors vectors() const { return {description_, parts_.vectors}; }

  [[nodiscard]] bool has_bottom() const { return !parts_.bottom.empty(); }

  // Of the bottom MLP's output in the head's input: 0 where there is none.
  [[nodiscard]] std::int64_t pairs_begin() const { return has_bottom() ? parts_.dim : 0; }

  float* interaction_scratch(ModelLane& lane) const {
    return lane.get<float>(parts_.interaction,
                           kernels::dot_interaction_scratch(parts_.num_fields, parts_.dim));
  }

  layout::Dlrm parts_;
};

void Dlrm::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<float> top_in = lane.get<float>(parts_.top_in, input.size, parts_.top_width);
  if (has_bottom()) {
    const Matrix<float> x = top_in.slice_cols(0, parts_.dim);
    bottom().forward(weights_, lane, input.dense, x);
    lane.fields.push_back(x);
  }
  vectors().forward(weights_, input, lane);
  kernels::dot_interaction_forward(*lane.ctx,
                                   {.fields = lane.fields,
                                    .out = top_in.slice_cols(pairs_begin(), parts_.top_width),
                                    .scratch = interaction_scratch(lane)});
  top().forward(weights_, lane, top_in, logits);
}

void Dlrm::run_backward(const SliceInput& input,
                        ModelTerms& terms,
                        ModelLane& lane,
                        Matrix<float> dlogits,
                        SliceGradients& gradients) const {
  const Matrix<float> top_in = lane.get<float>(parts_.top_in, input.size, parts_.top_width);
  const Matrix<float> dtop_in = lane.get<float>(parts_.dtop_in, input.size, parts_.top_width);
  // The head reads no logits: its output layer has no activation.
  top().backward(weights_, terms, lane, {top_in, {}, dlogits, dtop_in});
  const Matrix<float> dx = dtop_in.slice_cols(0, pairs_begin());
  if (has_bottom()) {
    lane.dfields.push_back(dx);
  }
  vectors().place_gradients(input, lane, gradients);
  // x reaches the head by itself too, so the interaction's share is added to it.
  kernels::dot_interaction_backward(*lane.ctx,
                                    {.fields = lane.fields,
                                     .dout = dtop_in.slice_cols(pairs_begin(), parts_.top_width),
                                     .dfields = lane.dfields,
                                     .accumulate = has_bottom() ? 1 : 0,
                                     .scratch = interaction_scratch(lane)});
  vectors().backward(weights_, input, terms, lane, gradients);
  if (has_bottom()) {
    bottom().backward(weights_, terms, lane,
                      {input.dense, top_in.slice_cols(0, parts_.dim), dx, {}});
  }
}

}  // namespace

std::unique_ptr<Model> make_dlrm(const spec::Model& options, const ModelShape& shape) {
  layout::DenseModel description(options.compute);
  layout::Dlrm parts(description, options, shape);
  return std::make_unique<Dlrm>(std::move(description), std::move(parts), shape);
}

}  // namespace weft::nn
