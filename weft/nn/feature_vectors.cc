#include "weft/nn/feature_vectors.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"
#include "weft/kernels/sequence.h"

namespace weft::nn {

namespace {

void check_target(const FeatureShape& feature, const ModelShape& shape) {
  if (feature.target >= static_cast<std::int64_t>(shape.features.size())) {
    fail(ErrorCode::kConfig, "sequence feature '{}': its target is feature {} of {}", feature.name,
         feature.target, shape.features.size());
  }
  const FeatureShape& target = shape.features[static_cast<std::size_t>(feature.target)];
  if (target.sequence) {
    fail(ErrorCode::kConfig,
         "sequence feature '{}': its target '{}' is a sequence itself; name a pooled feature",
         feature.name, target.name);
  }
  if (target.dim != feature.dim) {
    fail(ErrorCode::kConfig,
         "sequence feature '{}' (dim {}): its target '{}' has dim {}; attention needs one dim for "
         "both, so give them one table or tables of one embedding_dim",
         feature.name, feature.dim, target.name, target.dim);
  }
}

kernels::Sequences sequences_of(const SliceInput& input, std::size_t f) {
  return {input.sequences[f].values, input.sequences[f].offsets, input.size};
}

}  // namespace

std::int64_t common_dim(const spec::Model& options, const ModelShape& shape) {
  if (options.projection_dim > 0) {
    return options.projection_dim;
  }
  for (const FeatureShape& feature : shape.features) {
    if (feature.dim != shape.features[0].dim) {
      fail(ErrorCode::kConfig,
           "model: feature '{}' has dim {} and feature '{}' has dim {}, but their vectors interact "
           "and must have one dim; set model.projection_dim to project them, or give their tables "
           "one embedding_dim",
           shape.features[0].name, shape.features[0].dim, feature.name, feature.dim);
    }
  }
  return shape.features.empty() ? 0 : shape.features[0].dim;
}

std::int64_t padded_elements(std::int64_t n) {
  const auto below = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  const std::int64_t step = std::max<std::int64_t>(16, below / 8);
  return (n + step - 1) / step * step;
}

FeatureVectors::FeatureVectors(Builder& builder,
                               const spec::Model& options,
                               const ModelShape& shape,
                               std::int64_t field_dim)
    : field_dim_(field_dim) {
  for (const FeatureShape& declared : shape.features) {
    Feature feature;
    feature.dim = declared.dim;
    if (declared.sequence) {
      const bool attended =
          options.sequence == spec::SequencePooling::kAttention && declared.target >= 0;
      feature.kind = attended ? Kind::kAttention : Kind::kMean;
      feature.vector_slot = builder.add_slot();
      feature.dvector_slot = builder.add_slot();
    }
    if (feature.kind == Kind::kAttention) {
      check_target(declared, shape);
      feature.target = static_cast<std::size_t>(declared.target);
      const std::string name = "dense.attention." + declared.name;
      auto layers = hidden_layers(name, options.attention_mlp);
      layers.push_back(
          {fmt::format("{}.{}", name, layers.size()), 1, kernels::Activation::kNone, Bias::kZero});
      feature.attention = Mlp(builder, 4 * declared.dim, layers);
      feature.inputs_slot = builder.add_slot();
      feature.dinputs_slot = builder.add_slot();
      feature.weights_slot = builder.add_slot();
      feature.dweights_slot = builder.add_slot();
    }
    if (field_dim > 0 && declared.dim != field_dim) {
      feature.projection = Mlp(builder, declared.dim,
                               {{"dense.projection." + declared.name, field_dim,
                                 kernels::Activation::kNone, Bias::kNone}});
      feature.field_slot = builder.add_slot();
      feature.dfield_slot = builder.add_slot();
    }
    features_.push_back(std::move(feature));
  }
}

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
    const Matrix<float> vector = lane.get<float>(feature.vector_slot, input.size, feature.dim);
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
    const Matrix<float> field = lane.get<float>(feature.field_slot, input.size, field_dim_);
    feature.projection.forward(weights, lane, lane.vectors[f], field);
    lane.fields.push_back(field);
  }
}

void FeatureVectors::attend(const Weights& weights,
                            const SliceInput& input,
                            ModelLane& lane,
                            std::size_t f) const {
  const Feature& feature = features_[f];
  const kernels::Sequences sequences = sequences_of(input, f);
  const std::int64_t rows = padded_elements(sequences.values.rows);
  const Matrix<float> inputs = lane.get<float>(feature.inputs_slot, rows, 4 * feature.dim);
  const Matrix<float> element_weights = lane.get<float>(feature.weights_slot, rows, 1);
  kernels::attention_inputs(
      *lane.ctx,
      {.sequences = sequences, .target = input.pooled[feature.target], .inputs = inputs});
  feature.attention.forward(weights, lane, inputs, element_weights);
  kernels::attention_pool(*lane.ctx,
                          {.sequences = sequences,
                           .weights = element_weights.data,
                           .out = lane.get<float>(feature.vector_slot, input.size, feature.dim)});
}

void FeatureVectors::place_gradients(const SliceInput& input,
                                     ModelLane& lane,
                                     SliceGradients& gradients) const {
  lane.dvectors.clear();
  for (std::size_t f = 0; f < features_.size(); ++f) {
    const Feature& feature = features_[f];
    lane.dvectors.push_back(feature.kind == Kind::kPooled
                                ? gradients.pooled[f]
                                : lane.get<float>(feature.dvector_slot, input.size, feature.dim));
    lane.dfields.push_back(feature.projection.empty()
                               ? lane.dvectors[f]
                               : lane.get<float>(feature.dfield_slot, input.size, field_dim_));
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
      features_[f].projection.backward(
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
  const std::int64_t rows = padded_elements(sequences.values.rows);
  const std::int64_t width = 4 * feature.dim;
  const Matrix<float> inputs = lane.get<float>(feature.inputs_slot, rows, width);
  const Matrix<float> dinputs = lane.get<float>(feature.dinputs_slot, rows, width);
  const Matrix<float> element_weights = lane.get<float>(feature.weights_slot, rows, 1);
  const Matrix<float> dweights = lane.get<float>(feature.dweights_slot, rows, 1);

  kernels::attention_weights_backward(
      *lane.ctx,
      {.sequences = sequences, .dout = lane.dvectors[f], .dweights = dweights.data, .rows = rows});
  feature.attention.backward(weights, terms, lane, {inputs, element_weights, dweights, dinputs});
  kernels::attention_backward(*lane.ctx, {.sequences = sequences,
                                          .target = input.pooled[feature.target],
                                          .weights = element_weights.data,
                                          .dout = lane.dvectors[f],
                                          .dinputs = dinputs,
                                          .dvalues = gradients.sequences[f],
                                          .dtarget = gradients.pooled[feature.target]});
}

}  // namespace weft::nn
