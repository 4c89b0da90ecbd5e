// Internal: from features to one vector per sample each, and on to fields of one dim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/nn/builder.h"
#include "weft/nn/lane.h"
#include "weft/nn/mlp.h"

namespace weft::nn {

// One vector [b, dim] per feature: pooled ones as they come, sequences through target attention
// or their mean. Then, where a model wants all of one dim D, fields: vectors of other dims go
// through "dense.projection.<feature>", a linear layer without bias.
class FeatureVectors {
 public:
  FeatureVectors() = default;

  // `field_dim` 0: fields are the vectors themselves.
  FeatureVectors(Builder& builder,
                 const spec::Model& options,
                 const ModelShape& shape,
                 std::int64_t field_dim);

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
  enum class Kind : std::uint8_t { kPooled, kMean, kAttention };

  struct Feature {
    Kind kind = Kind::kPooled;
    std::int64_t dim = 0;
    std::size_t target = 0;       // kAttention
    Mlp attention;                // 4 dim -> 1
    Mlp projection;               // empty: the field is the vector
    std::size_t vector_slot = 0;  // sequences
    std::size_t dvector_slot = 0;
    std::size_t field_slot = 0;  // projected ones
    std::size_t dfield_slot = 0;
    std::size_t inputs_slot = 0;  // attention: [n, 4 dim]
    std::size_t dinputs_slot = 0;
    std::size_t weights_slot = 0;  // [n, 1]
    std::size_t dweights_slot = 0;
  };

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

  std::int64_t field_dim_ = 0;
  std::vector<Feature> features_;
};

// The dim that all features share or are projected to. Throws Error(kConfig) naming two features
// whose dims differ where model.projection_dim is 0.
std::int64_t common_dim(const spec::Model& options, const ModelShape& shape);

// Rows of a product over n elements of sequences: n rounded up to a multiple of an eighth of the
// power of two below it, at least of 16. The number of elements changes with every batch; so
// there are few shapes, at most an eighth of the work is wasted, and zeros add nothing.
std::int64_t padded_elements(std::int64_t n);

}  // namespace weft::nn
