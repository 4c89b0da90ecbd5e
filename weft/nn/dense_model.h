// Internal: what the three models share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/layout/dense_model.h"
#include "weft/nn/feature_vectors.h"
#include "weft/nn/lane.h"
#include "weft/nn/mlp.h"
#include "weft/nn/parameters.h"

namespace weft::nn {

// A model of linear layers and what lies between them. It prepares weights, checks inputs and sums
// gradients; run_forward() and run_backward() are the models' own.
class DenseModel : public Model {
 public:
  // `dlogits`: the block of the gradients of the logits.
  DenseModel(layout::DenseModel description, const ModelShape& shape, std::size_t dlogits);

  [[nodiscard]] const ParameterLayout& layout() const final { return parameters_.layout; }

  // As model.h says.
  void init_parameters(std::uint64_t seed, float* flat) const final;
  void prepare(Context& ctx, const float* flat) final;
  [[nodiscard]] std::unique_ptr<SliceTerms> make_terms(Device& device) const final;
  [[nodiscard]] std::unique_ptr<Lane> make_lane(Device& device) const final;
  void reserve(Lane& lane, const layout::SliceSize& most) const final;
  void forward(Context& ctx, const SliceInput& input, Lane& lane, Matrix<float> logits) const final;
  void backward(Context& ctx, Lane& lane, const Backward& args) const final;

  // One per tile of a layer's weights, the largest first, and the last for all that is no weight.
  [[nodiscard]] std::int64_t num_gradient_tasks() const final {
    return static_cast<std::int64_t>(gradient_tasks_.size()) + 1;
  }

  // As model.h says.
  void sum_gradients(Context& ctx,
                     std::int64_t task,
                     const GradientTerms& terms,
                     Lane& lane,
                     const GradientSums& to) const final;

 protected:
  virtual void run_forward(const SliceInput& input,
                           ModelLane& lane,
                           Matrix<float> logits) const = 0;

  // Overwrites the gradients of all features, and sets those of all layers in `terms`;
  // dlogits is the model's to change.
  virtual void run_backward(const SliceInput& input,
                            ModelTerms& terms,
                            ModelLane& lane,
                            Matrix<float> dlogits,
                            SliceGradients& gradients) const = 0;

  layout::DenseModel description_;
  ModelShape shape_;
  Weights weights_;

 private:
  struct GradientTask {
    std::size_t layer;
    kernels::GradientTile tile;
  };

  void plan_tasks(Context& ctx);
  void sum_weights(Context& ctx,
                   const GradientTask& task,
                   const GradientTerms& terms,
                   ModelLane& lane,
                   const GradientSums& to) const;
  void sum_biases(Context& ctx,
                  const GradientTerms& terms,
                  ModelLane& lane,
                  const GradientSums& to) const;
  void check_input(const SliceInput& input) const;

  Parameters parameters_;
  std::size_t dlogits_;
  std::unique_ptr<kernels::PreparedWeights> prepared_;
  std::vector<Matrix<const float>> matrices_;  // W of every layer
  std::vector<GradientTask> gradient_tasks_;   // the largest first
};

// Makes one of the models, after the checks of Model::create() that concern all of them. Throws
// Error(kConfig) as it says.
std::unique_ptr<Model> make_dlrm(const spec::Model& options, const ModelShape& shape);
std::unique_ptr<Model> make_dcnv2(const spec::Model& options, const ModelShape& shape);
std::unique_ptr<Model> make_deepfm(const spec::Model& options, const ModelShape& shape);

}  // namespace weft::nn
