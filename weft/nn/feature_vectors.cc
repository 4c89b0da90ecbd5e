#include "weft/nn/feature_vectors.h"

#include "weft/kernels/sequence.h"

namespace weft::nn {

namespace {

kernels::Sequences sequences_of(const SliceInput& input, std::size_t f) {
  return {input.sequences[f].values, input.sequences[f].offsets, input.size};
}

}  // namespace

void FeatureVectors::forward(const Weights& weights,
                             const SliceInput& input,
                             ModelLane& lane) const {
  lane.vectors.clear();
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const Feature& feature = features_[f];
    if (feature.kind == Kind::kPooled) {
      lane.vectors.push_back(input.pooled[f]);
      continue;
    }
    const Matrix<float> vector = lane.get<float>(feature.vector, input.size, feature.dim);
    lane.vectors.push_back(vector);
    if (feature.kind == Kind::kMean) {
      kernels::sequence_mean_forward(*lane.ctx,
                                     {.sequences = sequences_of(input, f), .out = vector});
    } else {
      attend(weights, input, lane, f);
    }
  }
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const Feature& feature = features_[f];
    if (feature.projection.empty()) {
      lane.fields.push_back(lane.vectors[f]);
      continue;
    }
    const Matrix<float> field = lane.get<float>(feature.field, input.size, field_dim_);
    Mlp(model_, feature.projection).forward(weights, lane, lane.vectors[f], field);
    lane.fields.push_back(field);
  }
}

void FeatureVectors::attend(const Weights& weights,
                            const SliceInput& input,
                            ModelLane& lane,
                            std::size_t f) const {
  const Feature& feature = features_[f];
  const kernels::Sequences sequences = sequences_of(input, f);
  const std::int64_t rows = layout::padded_elements(sequences.values.rows);
  const Matrix<float> inputs = lane.get<float>(feature.inputs, rows, 4 * feature.dim);
  const Matrix<float> element_weights = lane.get<float>(feature.weights, rows, 1);
  kernels::attention_inputs(
      *lane.ctx,
      {.sequences = sequences, .target = input.pooled[feature.target], .inputs = inputs});
  Mlp(model_, feature.attention).forward(weights, lane, inputs, element_weights);
  kernels::attention_pool(*lane.ctx,
                          {.sequences = sequences,
                           .weights = element_weights.data,
                           .out = lane.get<float>(feature.vector, input.size, feature.dim)});
}

void FeatureVectors::place_gradients(const SliceInput& input,
                                     ModelLane& lane,
                                     SliceGradients& gradients) const {
  lane.dvectors.clear();
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const Feature& feature = features_[f];
    lane.dvectors.push_back(feature.kind == Kind::kPooled
                                ? gradients.pooled[f]
                                : lane.get<float>(feature.dvector, input.size, feature.dim));
    lane.dfields.push_back(feature.projection.empty()
                               ? lane.dvectors[f]
                               : lane.get<float>(feature.dfield, input.size, field_dim_));
  }
}

void FeatureVectors::backward(const Weights& weights,
                              const SliceInput& input,
                              ModelTerms& terms,
                              ModelLane& lane,
                              SliceGradients& gradients) const {
  // The features' fields are the last ones: a bottom MLP's output may come before them.
  const std::size_t first = lane.fields.size() - features_.size();
  for (std::size_t f = 0; f < features_.size(); ++f) {
    if (!features_[f].projection.empty()) {
      Mlp(model_, features_[f].projection)
          .backward(
              weights, terms, lane,
              {lane.vectors[f], lane.fields[first + f], lane.dfields[first + f], lane.dvectors[f]});
    }
  }
  // Only now: a target's gradient gets the sequences' shares on top, in the order of features.
  for (std::size_t f = 0; f < features_.size(); ++f) {
    if (features_[f].kind == Kind::kMean) {
      kernels::sequence_mean_backward(*lane.ctx, {.sequences = sequences_of(input, f),
                                                  .dout = lane.dvectors[f],
                                                  .dvalues = gradients.sequences[f]});
    } else if (features_[f].kind == Kind::kAttention) {
      attend_backward(weights, input, terms, lane, f, gradients);
    }
  }
}

void FeatureVectors::attend_backward(const Weights& weights,
                                     const SliceInput& input,
                                     ModelTerms& terms,
                                     ModelLane& lane,
                                     std::size_t f,
                                     SliceGradients& gradients) const {
  const Feature& feature = features_[f];
  const kernels::Sequences sequences = sequences_of(input, f);
  const std::int64_t rows = layout::padded_elements(sequences.values.rows);
  const std::int64_t width = 4 * feature.dim;
  const Matrix<float> inputs = lane.get<float>(feature.inputs, rows, width);
  const Matrix<float> dinputs = lane.get<float>(feature.dinputs, rows, width);
  const Matrix<float> element_weights = lane.get<float>(feature.weights, rows, 1);
  const Matrix<float> dweights = lane.get<float>(feature.dweights, rows, 1);

  kernels::attention_weights_backward(
      *lane.ctx,
      {.sequences = sequences, .dout = lane.dvectors[f], .dweights = dweights.data, .rows = rows});
  Mlp(model_, feature.attention)
      .backward(weights, terms, lane, {inputs, element_weights, dweights, dinputs});
  kernels::attention_backward(*lane.ctx, {.sequences = sequences,
                                          .target = input.pooled[feature.target],
                                          .weights = element_weights.data,
                                          .dout = lane.dvectors[f],
                                          .dinputs = dinputs,
                                          .dvalues = gradients.sequences[f],
                                          .dtarget = gradients.pooled[feature.target]});
}

}  // namespace weft::nn
