/// The dense model: from dense values and feature vectors to logits, and back. It knows nothing of
/// tables or ranks. Formulas: docs/models.md.
///
/// Notation   b samples of one slice, Dn dense values, F features, T tasks.
/// Slices     a part of the batch (base/parts.h) runs in slices of its samples: forward, loss and
///            backward of a slice on one thread; several slices run at once. Then the gradients of
///            the weights are summed over slices and parts by tiles of the weights, again several
///            at once.
/// Order      a slice's logits and gradients depend on its samples in their order, its size, the
///            weights and the target (kernels/target.h), and on nothing else: not on threads, on
///            other slices, or on where inputs lie. Sums over slices follow the rule of parts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/layout/dense_model.h"
#include "weft/optim/dense.h"
#include "weft/spec/config.h"
#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::nn {

using optim::ParameterLayout;

using layout::FeatureShape;
using layout::ModelShape;

/// The vectors of one sequence feature: sample s has rows [offsets[s], offsets[s + 1]).
struct SequenceView {
  Matrix<const float> values;             ///< [n, dim]
  const std::int64_t* offsets = nullptr;  ///< [b + 1], offsets[0] = 0
};

/// Inputs of one slice: views that must outlive forward and backward. `pooled` and `sequences` have
/// an entry per feature each; the one that does not apply is empty.
struct SliceInput {
  std::int64_t size = 0;      ///< b
  Matrix<const float> dense;  ///< [b, Dn]
  std::vector<Matrix<const float>> pooled;
  std::vector<SequenceView> sequences;
};

/// Where backward writes the gradients of the feature vectors, all of them: the same shapes.
struct SliceGradients {
  std::vector<Matrix<float>> pooled;
  std::vector<Matrix<float>> sequences;
};

/// What one slice contributes to the gradients of the weights: the operands of products; made by
/// Model::make_terms. Grows to the largest slice seen, then allocates nothing. Written by one
/// thread, and read by several when gradients are summed.
class SliceTerms {
 public:
  virtual ~SliceTerms() = default;
};

/// What one thread works with, whichever slice or tile it has in hand: the activations of that
/// slice and scratch memory; made by Model::make_lane. Grows as SliceTerms.
class Lane {
 public:
  virtual ~Lane() = default;
};

/// The slices whose gradients are summed: those of the parts of one node of the tree of parts.
struct GradientTerms {
  Range node;
  std::span<const std::span<SliceTerms* const>> parts;  ///< [node.size()]; empty: no samples
  std::int64_t most_parts = 0;   ///< of a later call's node: memory is taken for so many
  std::int64_t most_slices = 0;  ///< of a later call, likewise
};

/// A dense model for inputs of one shape. It owns no weights. Calls that are const may run at once,
/// each with a lane of its own.
class Model {
 public:
  /// Builds a model. Throws Error(kConfig) naming the key: dims that differ without
  /// projection_dim, a bottom MLP of another width, a missing one, a target that is not a pooled
  /// feature of the same dim.
  static std::unique_ptr<Model> create(const spec::Model& options, const ModelShape& shape);
  virtual ~Model() = default;

  /// Names, shapes and places of all weights.
  [[nodiscard]] virtual const ParameterLayout& layout() const = 0;

  /// Initial values of flat[layout().size()]: a pure function of (seed, name, index in the
  /// parameter); gaps are zero. Host memory.
  virtual void init_parameters(std::uint64_t seed, float* flat) const = 0;

  /// Takes the weights for the calls that follow: once after every change of `flat`, which must
  /// stay as it is until the next call. Lays them out for the products, rounded in bf16 compute.
  /// Not beside the other calls. All calls with a context are on one device, which outlives the
  /// model, and whose memory `flat`, inputs and outputs are.
  virtual void prepare(Context& ctx, const float* flat) = 0;

  /// Makes what the calls below work with: terms for each slice of a step, a lane for each thread.
  /// Their memory is the device's; device and model outlive them.
  [[nodiscard]] virtual std::unique_ptr<SliceTerms> make_terms(Device& device) const = 0;
  [[nodiscard]] virtual std::unique_ptr<Lane> make_lane(Device& device) const = 0;

  /// Makes room in the lane for slices of up to this size, so that it does not grow from one to the
  /// next. Not between forward() and backward() of a slice.
  virtual void reserve(Lane& lane, const layout::SliceSize& most) const = 0;

  /// logits[b, T]. The lane then holds what backward needs.
  virtual void forward(Context& ctx,
                       const SliceInput& input,
                       Lane& lane,
                       Matrix<float> logits) const = 0;

  /// What backward() reads and writes.
  struct Backward {
    const SliceInput& input;      ///< the object of the lane's last forward()
    Matrix<const float> dlogits;  ///< [b, T]
    SliceTerms& terms;            ///< overwritten
    SliceGradients& gradients;    ///< overwritten
  };

  /// Gradients from dlogits, after forward() of the same input object in that lane, and before it
  /// has another.
  virtual void backward(Context& ctx, Lane& lane, const Backward& args) const = 0;

  /// Tasks that together write all of flat[layout().size()], each its own elements. After
  /// prepare().
  [[nodiscard]] virtual std::int64_t num_gradient_tasks() const = 0;

  /// Where sum_gradients() writes.
  struct GradientSums {
    float* flat = nullptr;             ///< [layout().size()]
    std::int32_t* infinite = nullptr;  ///< [num_gradient_tasks()]: 1 where a sum is not finite
  };

  /// Sums the gradients of task `task` over `terms`, and writes the task's word of `infinite`;
  /// zeros where no part has samples.
  virtual void sum_gradients(Context& ctx,
                             std::int64_t task,
                             const GradientTerms& terms,
                             Lane& lane,
                             const GradientSums& to) const = 0;
};

}  // namespace weft::nn
