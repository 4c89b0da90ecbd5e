// DLRM (Naumov et al., 2019): x = bottom(dense); fields x, v_1 .. v_F of one dim D; the head sees
// [x, all dots of two different fields].
#include "weft/base/error.h"
#include "weft/kernels/interaction.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

class Dlrm final : public DenseModel {
 public:
  Dlrm(const spec::Model& options, const ModelShape& shape);

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  [[nodiscard]] std::int64_t top_width() const {
    return (bottom_.empty() ? 0 : dim_) + kernels::num_pairs(num_fields_);
  }

  // Of the bottom MLP's output in the head's input: 0 where there is none.
  [[nodiscard]] std::int64_t pairs_begin() const { return bottom_.empty() ? 0 : dim_; }

  float* interaction_scratch(ModelLane& lane) const {
    return lane.get<float>(interaction_slot_, kernels::dot_interaction_scratch(num_fields_, dim_));
  }

  std::int64_t dim_;
  std::int64_t num_fields_;
  Mlp bottom_;
  FeatureVectors features_;
  Mlp top_;
  std::size_t top_in_slot_ = 0;
  std::size_t dtop_in_slot_ = 0;
  std::size_t interaction_slot_ = 0;
};

Dlrm::Dlrm(const spec::Model& options, const ModelShape& shape)
    : DenseModel(options, shape),
      dim_(common_dim(options, shape)),
      num_fields_(static_cast<std::int64_t>(shape.features.size()) + (shape.dense > 0 ? 1 : 0)) {
  if (shape.dense > 0) {
    if (options.bottom_mlp.empty()) {
      fail(ErrorCode::kConfig,
           "model.bottom_mlp: DLRM needs one for its {} dense features, ending in width {}",
           shape.dense, dim_);
    }
    if (dim_ > 0 && options.bottom_mlp.back() != dim_) {
      fail(ErrorCode::kConfig,
           "model.bottom_mlp ends in width {}, but DLRM's vectors have dim {}{}; make them equal",
           options.bottom_mlp.back(), dim_,
           options.projection_dim > 0 ? " (model.projection_dim)" : "");
    }
    dim_ = options.bottom_mlp.back();
    bottom_ = Mlp(builder_, shape.dense, hidden_layers("dense.bottom", options.bottom_mlp));
  }
  if (num_fields_ < 2) {
    fail(ErrorCode::kConfig,
         "model.type: dlrm needs two vectors to interact (dense features make one), this model "
         "has {}",
         num_fields_);
  }
  features_ = FeatureVectors(builder_, options, shape, dim_);
  top_ = make_head("dense.top", top_width());
  top_in_slot_ = builder_.add_slot();
  dtop_in_slot_ = builder_.add_slot();
  interaction_slot_ = builder_.add_slot();
}

void Dlrm::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<float> top_in = lane.get<float>(top_in_slot_, input.size, top_width());
  if (!bottom_.empty()) {
    const Matrix<float> x = top_in.slice_cols(0, dim_);
    bottom_.forward(weights_, lane, input.dense, x);
    lane.fields.push_back(x);
  }
  features_.forward(weights_, input, lane);
  kernels::dot_interaction_forward(*lane.ctx, {.fields = lane.fields,
                                               .out = top_in.slice_cols(pairs_begin(), top_width()),
                                               .scratch = interaction_scratch(lane)});
  top_.forward(weights_, lane, top_in, logits);
}

void Dlrm::run_backward(const SliceInput& input,
                        ModelTerms& terms,
                        ModelLane& lane,
                        Matrix<float> dlogits,
                        SliceGradients& gradients) const {
  const Matrix<float> top_in = lane.get<float>(top_in_slot_, input.size, top_width());
  const Matrix<float> dtop_in = lane.get<float>(dtop_in_slot_, input.size, top_width());
  // The head reads no logits: its output layer has no activation.
  top_.backward(weights_, terms, lane, {top_in, {}, dlogits, dtop_in});
  const Matrix<float> dx = dtop_in.slice_cols(0, pairs_begin());
  if (!bottom_.empty()) {
    lane.dfields.push_back(dx);
  }
  features_.place_gradients(input, lane, gradients);
  // x reaches the head by itself too, so the interaction's share is added to it.
  kernels::dot_interaction_backward(*lane.ctx,
                                    {.fields = lane.fields,
                                     .dout = dtop_in.slice_cols(pairs_begin(), top_width()),
                                     .dfields = lane.dfields,
                                     .accumulate = bottom_.empty() ? 0 : 1,
                                     .scratch = interaction_scratch(lane)});
  features_.backward(weights_, input, terms, lane, gradients);
  if (!bottom_.empty()) {
    bottom_.backward(weights_, terms, lane, {input.dense, top_in.slice_cols(0, dim_), dx, {}});
  }
}

}  // namespace

std::unique_ptr<Model> make_dlrm(const spec::Model& options, const ModelShape& shape) {
  return std::make_unique<Dlrm>(options, shape);
}

}  // namespace weft::nn
