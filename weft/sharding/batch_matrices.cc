#include "weft/sharding/batch_matrices.h"

#include <algorithm>
#include <string>

#include "weft/base/error.h"
#include "weft/layout/feature_vectors.h"

namespace weft::sharding {

BatchMatrices::BatchMatrices(const Routing& routing,
                             Device& device,
                             const SparseStepOptions& options,
                             const BatchMatrices* shared)
    : routing_(routing),
      options_(options),
      shared_(shared),
      vectors_of_(routing.features.size()),
      gradients_of_(routing.features.size()) {
  outputs_.sequences.resize(routing.features.size());
  gradients_.sequences.resize(routing.features.size());
  for (std::size_t i = 0; i < layout::kMatrixKinds * (routing.features.size() + 1); ++i) {
    buffers_.emplace_back(device);
  }
}

void BatchMatrices::set_changes(std::span<const std::int64_t> features) {
  if (options_.gradient_use == GradientUse::kKeep) {
    changes_.assign(features.begin(), features.end());
    for (std::size_t i = 0; i < changes_.size(); ++i) {
      changed_.emplace_back(*buffers_.front().device());
    }
  }
}

void BatchMatrices::prepare(const KeyedJaggedView& sparse) {
  sparse_ = sparse;
  std::fill(vectors_of_.begin(), vectors_of_.end(), Matrix<float>{});
  std::fill(gradients_of_.begin(), gradients_of_.end(), Matrix<float>{});
  if (shared_ == nullptr) {
    size(kOutputs, options_.outputs, outputs_);
    size(kGradients, options_.gradients, gradients_);
  } else {
    outputs_ = shared_->outputs_;
    gradients_ = shared_->gradients_;
  }
  has_outputs_ = options_.outputs == MatrixOwner::kStep;
  has_gradients_ = options_.gradients == MatrixOwner::kStep;
  // The caller's have no memory yet.
  if (options_.outputs == MatrixOwner::kStep) {
    view_outputs();
  }
  if (options_.gradients == MatrixOwner::kStep) {
    view_gradients();
  }
}

void BatchMatrices::size(Kind kind, MatrixOwner owner, FeatureMatrices& matrices) {
  const auto of = [&](std::size_t number, std::int64_t rows, std::int64_t cols) {
    const bool own = owner == MatrixOwner::kStep;
    return matrix(own ? buffer(kind, number).resize_for(layout::vectors(rows, cols)) : nullptr,
                  rows, cols);
  };
  matrices.pooled = of(0, sparse_.batch, routing_.pooled_columns);
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    if (is_sequence(f)) {
      const std::int64_t ids = sparse_.feature(static_cast<std::int64_t>(f)).num_values();
      matrices.sequences[f] = of(f + 1, ids, routing_.features[f].dim);
    }
  }
}

void BatchMatrices::use_outputs(const FeatureMatrices& outputs) {
  check(outputs, "outputs");
  outputs_ = outputs;
  has_outputs_ = true;
  view_outputs();
}

void BatchMatrices::use_gradients(const FeatureMatrices& gradients) {
  check(gradients, "gradients");
  gradients_ = gradients;
  has_gradients_ = true;
  view_gradients();
}

void BatchMatrices::require_outputs() const {
  if (!has_outputs_) {
    fail(ErrorCode::kUsage,
         "a lookup has no matrices to write for its batch: call "
         "SparseStep::use_outputs() behind exchange_ids()");
  }
}

void BatchMatrices::require_gradients() const {
  if (!has_gradients_) {
    fail(ErrorCode::kUsage,
         "a step has no gradients of its batch: call "
         "SparseStep::use_gradients() behind exchange_ids()");
  }
}

void BatchMatrices::check(const FeatureMatrices& given, const char* what) const {
  const auto check_one = [what](const Matrix<float>& m, std::int64_t rows, std::int64_t cols,
                                const std::string& of) {
    if (m.rows != rows || m.cols != cols || (m.data == nullptr && rows * cols > 0)) {
      fail(ErrorCode::kUsage, "{} of {}: a matrix of {} x {} numbers is given, {} x {} are needed",
           what, of, m.rows, m.cols, rows, cols);
    }
  };
  check_one(given.pooled, sparse_.batch, routing_.pooled_columns, "pooled features");
  if (given.sequences.size() != routing_.features.size()) {
    fail(ErrorCode::kUsage, "{}: {} sequences are given for {} features", what,
         given.sequences.size(), routing_.features.size());
  }
  for (std::size_t f = 0; f < routing_.features.size(); ++f) {
    if (is_sequence(f)) {
      check_one(given.sequences[f], sparse_.feature(static_cast<std::int64_t>(f)).num_values(),
                routing_.features[f].dim, "feature " + routing_.features[f].name);
    }
  }
}

void BatchMatrices::view_outputs() {
  for (std::size_t f = 0; f < vectors_of_.size(); ++f) {
    vectors_of_[f] = outputs_.of(routing_.features[f], static_cast<std::int64_t>(f));
  }
}

/// The features' columns where the caller has them, or copies of those that are changed.
void BatchMatrices::view_gradients() {
  for (std::size_t f = 0; f < gradients_of_.size(); ++f) {
    gradients_of_[f] = gradients_.of(routing_.features[f], static_cast<std::int64_t>(f));
  }
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    Matrix<float>& m = gradients_of_[at(changes_[i])];
    m = matrix(changed_[i].resize_for(layout::vectors(m.rows, m.cols)), m.rows, m.cols);
  }
}

}  // namespace weft::sharding
