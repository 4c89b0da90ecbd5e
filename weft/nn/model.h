/// The dense model: from dense values and feature vectors to logits, and back. It knows nothing of
/// tables or ranks. Formulas: docs/models.md.
///
/// Notation   b samples of one part, Dn dense values, F features, T tasks.
/// Parts      a part's forward, loss and backward run on the calling thread alone, with a
///            workspace of its own; several parts run at once. The rule of parts (base/parts.h)
///            adds up their gradients afterwards.
/// Order      a part's logits and gradients depend on its samples in their order, its size, the
///            weights and the target (kernels/target.h), and on nothing else: not on threads, on
///            other parts, or on where inputs lie. From AVX-512 on, a sample's logits do not depend
///            on the other samples of its part either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/optim/dense.h"
#include "weft/spec/config.h"
#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::nn {

using optim::ParameterLayout;

/// One feature as the model sees it.
struct FeatureShape {
  std::string name;
  std::int64_t dim = 0;
  bool sequence = false;     ///< one vector per id; otherwise one per sample
  std::int64_t target = -1;  ///< sequence: index of the pooled feature attended with; -1 = the mean
};

/// What a model is built for.
struct ModelShape {
  std::int64_t dense = 0;  ///< Dn
  std::vector<FeatureShape> features;
  std::int64_t tasks = 1;
};

/// The vectors of one sequence feature: sample s has rows [offsets[s], offsets[s + 1]).
struct SequenceView {
  Matrix<const float> values;             ///< [n, dim]
  const std::int64_t* offsets = nullptr;  ///< [b + 1], offsets[0] = 0
};

/// Inputs of one part: views that must outlive forward and backward. `pooled` and `sequences` have
/// an entry per feature each; the one that does not apply is empty.
struct PartInput {
  std::int64_t size = 0;      ///< b
  Matrix<const float> dense;  ///< [b, Dn]
  std::vector<Matrix<const float>> pooled;
  std::vector<SequenceView> sequences;
};

/// Where backward writes the gradients of the feature vectors, all of them: the same shapes.
struct PartGradients {
  std::vector<Matrix<float>> pooled;
  std::vector<Matrix<float>> sequences;
};

/// Activations and scratch memory of one part in flight; made by Model::make_workspace. Grows to
/// the largest part seen, then allocates nothing. Used by one thread at a time.
class Workspace {
 public:
  virtual ~Workspace() = default;
};

class Model {
 public:
  /// Builds a model. Throws Error(kConfig) naming the key: dims that differ without
  /// projection_dim, a bottom MLP of another width, a missing one, a target that is not a pooled
  /// feature of the same dim, bf16 below AVX-512.
  static std::unique_ptr<Model> create(const spec::Model& options, const ModelShape& shape);
  virtual ~Model() = default;

  /// Names, shapes and places of all weights.
  [[nodiscard]] virtual const ParameterLayout& layout() const = 0;

  /// Initial values of flat[layout().size()]: a pure function of (seed, name, index in the
  /// parameter); gaps are zero. Host memory.
  virtual void init_parameters(std::uint64_t seed, float* flat) const = 0;

  /// Takes the weights for the calls that follow: once after every change of `flat`, which must
  /// stay as it is until the next call. Makes the bf16 copies. Not beside forward or backward.
  virtual void prepare(Context& ctx, const float* flat) = 0;

  [[nodiscard]] virtual std::unique_ptr<Workspace> make_workspace() const = 0;

  /// logits[b, T]. The workspace then holds what backward needs.
  virtual void forward(const PartInput& input,
                       Workspace& workspace,
                       Matrix<float> logits) const = 0;

  /// Gradients from dlogits[b, T], after forward with the same input and workspace. Overwrites
  /// flat_gradients[layout().size()], gaps with zeros, and everything in `gradients`.
  virtual void backward(const PartInput& input,
                        Workspace& workspace,
                        Matrix<const float> dlogits,
                        float* flat_gradients,
                        PartGradients& gradients) const = 0;
};

}  // namespace weft::nn
