/// BatchMatrices: the vectors and gradients of one batch in the order of its samples, in memory of
/// the step or of the caller.
///
/// Shapes      FeatureMatrices; a column or sequence per feature, of all sets of tables.
/// Memory      the step's buffers grow to the longest batch that has been seen, and are reused.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/jagged/keyed_jagged_tensor.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/vector_wire.h"
#include "weft/spec/config.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// Vectors or gradients of all features of this rank's samples, on the device.
struct FeatureMatrices {
  Matrix<float> pooled;                  ///< [B, pooled_columns]; feature f at pooled_column
  std::vector<Matrix<float>> sequences;  ///< [F]: [ids, D] for sequences, empty otherwise

  /// The columns of feature `f`, or its sequence.
  [[nodiscard]] Matrix<float> of(const FeatureRoute& feature, std::int64_t f) const {
    return feature.pooling == spec::Pooling::kNone
               ? sequences[static_cast<std::size_t>(f)]
               : pooled.slice_cols(feature.pooled_column, feature.pooled_column + feature.dim);
  }
};

/// The columns of a slot among those of its feature; `of` is by feature.
inline VectorPlace in_matrix(const std::vector<Matrix<float>>& of, const SlotKind& slot) {
  const Matrix<float>& m = of[at(slot.feature)];
  return {m.data + slot.cols.begin, m.stride};
}

/// Whose memory the matrices of a step are.
enum class MatrixOwner : std::uint8_t {
  kStep,    ///< the step's, sized for the batch
  kCaller,  ///< the caller's, given per batch: SparseStep::use_outputs(), use_gradients()
};

/// What grad_dist may do to the gradients.
enum class GradientUse : std::uint8_t {
  kChange,  ///< it divides those of means, and rounds what a codec rounds, where they are
  kKeep,    ///< it copies what it changes
};

/// How a caller and a step share memory.
struct SparseStepOptions {
  MatrixOwner outputs = MatrixOwner::kStep;
  MatrixOwner gradients = MatrixOwner::kStep;
  GradientUse gradient_use = GradientUse::kChange;
};

class BatchMatrices {
 public:
  /// `shared`: whose outputs and gradients these are too, so that several sets of tables write and
  /// read one; it outlives this one and is prepared before it. Null: its own.
  BatchMatrices(const Routing& routing,
                Device& device,
                const SparseStepOptions& options,
                const BatchMatrices* shared);

  /// Takes memory for copies of the gradients of these features, which are changed, where the
  /// caller wants them kept. Called once.
  void set_changes(std::span<const std::int64_t> features);

  /// Sizes the step's memory for a batch, and forgets the caller's.
  void prepare(const KeyedJaggedView& sparse);

  /// Takes the caller's matrices for the batch in hand. Throws Error(kUsage) for other shapes.
  void use_outputs(const FeatureMatrices& outputs);
  void use_gradients(const FeatureMatrices& gradients);

  /// Throw Error(kUsage) where the caller owns the matrices and has given none for the batch in
  /// hand.
  void require_outputs() const;
  void require_gradients() const;

  /// As the caller sees them.
  [[nodiscard]] FeatureMatrices& outputs() { return outputs_; }

  [[nodiscard]] FeatureMatrices& gradients() { return gradients_; }

  /// The columns of a feature, or its sequence.
  [[nodiscard]] const Matrix<float>& vectors_of(std::int64_t feature) const {
    return vectors_of_[at(feature)];
  }

  /// The same of the gradients that are divided and sent: the caller's, or copies.
  [[nodiscard]] const Matrix<float>& gradients_of(std::int64_t feature) const {
    return gradients_of_[at(feature)];
  }

  /// Gradients as the caller has given them; those that will be changed and are to be kept are
  /// copied from here to gradients_of().
  [[nodiscard]] Matrix<float> given_gradients_of(std::int64_t feature) const {
    return gradients_.of(routing_.features[at(feature)], feature);
  }

  /// The columns of a slot.
  [[nodiscard]] VectorPlace vectors_of(const SlotKind& slot) const {
    const Matrix<float>& m = vectors_of(slot.feature);
    return {m.data + slot.cols.begin, m.stride};
  }

  /// The same of gradients.
  [[nodiscard]] VectorPlace gradients_of(const SlotKind& slot) const {
    const Matrix<float>& m = gradients_of(slot.feature);
    return {m.data + slot.cols.begin, m.stride};
  }

  /// The step's own memory, for OutputDist::clear_grown().
  [[nodiscard]] std::span<const Buffer> buffers() const { return buffers_; }

 private:
  /// What a step owns of outputs or gradients, in buffers_.
  enum Kind : std::size_t { kOutputs, kGradients };

  [[nodiscard]] Buffer& buffer(Kind kind, std::size_t number) {
    return buffers_[kind * (routing_.features.size() + 1) + number];
  }

  [[nodiscard]] bool is_sequence(std::size_t feature) const {
    return routing_.features[feature].pooling == spec::Pooling::kNone;
  }

  void size(Kind kind, MatrixOwner owner, FeatureMatrices& matrices);
  void check(const FeatureMatrices& given, const char* what) const;
  void view_outputs();
  void view_gradients();

  const Routing& routing_;
  SparseStepOptions options_;
  const BatchMatrices* shared_;
  KeyedJaggedView sparse_;  // of the batch in hand
  FeatureMatrices outputs_, gradients_;
  bool has_outputs_ = false;                              // for the batch in hand
  bool has_gradients_ = false;                            // likewise
  std::vector<Matrix<float>> vectors_of_, gradients_of_;  // [F]
  std::vector<Buffer> buffers_;        // of each kind: pooled, then [F] sequences
  std::vector<std::int64_t> changes_;  // features
  std::vector<Buffer> changed_;        // [changes_]
};

}  // namespace weft::sharding
