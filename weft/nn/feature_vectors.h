// Internal: from features to one vector per sample each, and on to fields of one dim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/layout/dense_model.h"
#include "weft/nn/lane.h"
#include "weft/nn/mlp.h"
#include "weft/nn/parameters.h"

namespace weft::nn {

// Runs a model's feature vectors (layout/dense_model.h): the vectors of sequences, and fields.
class FeatureVectors {
 public:
  // One call's view of them; both outlive it.
  FeatureVectors(const layout::DenseModel& model, const layout::FeatureVectors& parts)
      : model_(model), features_(parts.features), field_dim_(parts.field_dim) {}

  // Sets lane.vectors and appends every feature's field to lane.fields.
  void forward(const Weights& weights, const SliceInput& input, ModelLane& lane) const;

  // Before the model writes gradients: appends, for every feature, where that of its field goes to
  // lane.dfields.
  void place_gradients(const SliceInput& input, ModelLane& lane, SliceGradients& gradients) const;

  // After it wrote them: carries them through projections and sequences.
  void backward(const Weights& weights,
                const SliceInput& input,
                ModelTerms& terms,
                ModelLane& lane,
                SliceGradients& gradients) const;

 private:
  using Kind = layout::FeatureVectors::Kind;
  using Feature = layout::FeatureVectors::Feature;

  void attend(const Weights& weights,
              const SliceInput& input,
              ModelLane& lane,
              std::size_t f) const;
  void attend_backward(const Weights& weights,
                       const SliceInput& input,
                       ModelTerms& terms,
                       ModelLane& lane,
                       std::size_t f,
                       SliceGradients& gradients) const;

  const layout::DenseModel& model_;
  const std::vector<Feature>& features_;
  std::int64_t field_dim_;
};

}  // namespace weft::nn
