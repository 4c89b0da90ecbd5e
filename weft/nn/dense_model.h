// Internal: what the three models share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/nn/builder.h"
#include "weft/nn/feature_vectors.h"
#include "weft/nn/mlp.h"
#include "weft/nn/workspace.h"

namespace weft::nn {

class DenseModel : public Model {
 public:
  DenseModel(const spec::Model& options, const ModelShape& shape);

  [[nodiscard]] const ParameterLayout& layout() const final { return builder_.layout(); }

  void init_parameters(std::uint64_t seed, float* flat) const final;
  void prepare(Context& ctx, const float* flat) final;
  [[nodiscard]] std::unique_ptr<Workspace> make_workspace() const final;
  void forward(const PartInput& input, Workspace& workspace, Matrix<float> logits) const final;
  void backward(const PartInput& input,
                Workspace& workspace,
                Matrix<const float> dlogits,
                float* flat_gradients,
                PartGradients& gradients) const final;

 protected:
  virtual void run_forward(const PartInput& input,
                           PartWorkspace& workspace,
                           Matrix<float> logits) const = 0;

  // Overwrites the gradients of all parameters and all features; dlogits is the model's to change.
  virtual void run_backward(const PartInput& input,
                            PartWorkspace& workspace,
                            Matrix<float> dlogits,
                            float* flat_gradients,
                            PartGradients& gradients) const = 0;

  // Hidden layers "<name>.i" with ReLU and an output layer of `tasks`.
  Mlp make_head(const char* name, std::int64_t in);

  Builder builder_;
  spec::Model options_;
  ModelShape shape_;
  Weights weights_;

 private:
  void check_input(const PartInput& input) const;

  std::size_t dlogits_slot_;
  std::vector<BFloat16> half_;
};

std::unique_ptr<Model> make_dlrm(const spec::Model& options, const ModelShape& shape);
std::unique_ptr<Model> make_dcnv2(const spec::Model& options, const ModelShape& shape);
std::unique_ptr<Model> make_deepfm(const spec::Model& options, const ModelShape& shape);

}  // namespace weft::nn
