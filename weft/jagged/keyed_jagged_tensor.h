/// JaggedTensor and KeyedJaggedTensor: bags of ids, in host memory.
///
/// Notation   F features, B samples, N ids in all.
/// Layout     key-major: all bags of feature 0 (sample 0, 1, ..), then of feature 1, and so on.
///            bag (f, b) = values[offsets[f*B + b] .. offsets[f*B + b + 1]).
/// Widths     ids and offsets are int64 in memory; narrow only on the wire.
/// Reuse      vectors keep their capacity from batch to batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// The bags of one feature: a view.
struct JaggedView {
  std::span<const std::int64_t> offsets;  ///< [B + 1], absolute positions in the parent's values
  const std::int64_t* values = nullptr;   ///< of the parent
  const float* weights = nullptr;         ///< of the parent, null where it has none

  [[nodiscard]] std::int64_t batch() const { return static_cast<std::int64_t>(offsets.size()) - 1; }

  [[nodiscard]] std::int64_t length(std::int64_t b) const {
    return offsets[static_cast<std::size_t>(b) + 1] - offsets[static_cast<std::size_t>(b)];
  }

  [[nodiscard]] std::span<const std::int64_t> bag(std::int64_t b) const {
    return {values + offsets[static_cast<std::size_t>(b)], static_cast<std::size_t>(length(b))};
  }

  [[nodiscard]] std::int64_t num_values() const { return offsets.back() - offsets.front(); }
};

struct KeyedJaggedTensor {
  std::vector<std::string> keys;      ///< [F] feature names
  std::int64_t batch = 0;             ///< B
  std::vector<std::int64_t> values;   ///< [N]
  std::vector<std::int64_t> offsets;  ///< [F*B + 1], ascending from 0 to N
  std::vector<float> weights;         ///< [N] or empty; 1 for features without weights

  [[nodiscard]] std::int64_t num_features() const { return static_cast<std::int64_t>(keys.size()); }

  /// Returns the bags of feature f, as a view of this tensor's vectors. Throws Error(kUsage) unless
  /// 0 <= f < F.
  [[nodiscard]] JaggedView feature(std::int64_t f) const;

  /// Throws Error(kData) naming the first inconsistency (feature, sample, both values).
  void validate() const;

  friend bool operator==(const KeyedJaggedTensor&, const KeyedJaggedTensor&) = default;
};

/// The bags of several features in memory that the caller has: what a KeyedJaggedTensor has,
/// without owning it. The memory stays as it is for as long as the view is used.
struct KeyedJaggedView {
  KeyedJaggedView() = default;

  /// Of a tensor. Implicit, as a string_view is of a string.
  KeyedJaggedView(const KeyedJaggedTensor& tensor)  // NOLINT(google-explicit-constructor)
      : values(tensor.values),
        offsets(tensor.offsets),
        weights(tensor.weights),
        num_features(tensor.num_features()),
        batch(tensor.batch) {}

  std::span<const std::int64_t> values;   ///< [N]
  std::span<const std::int64_t> offsets;  ///< [F*B + 1], ascending from 0 to N
  std::span<const float> weights;         ///< [N] or empty
  std::int64_t num_features = 0;          ///< F
  std::int64_t batch = 0;                 ///< B

  /// Returns the bags of feature f. REQUIRES: 0 <= f < F.
  [[nodiscard]] JaggedView feature(std::int64_t f) const {
    return {.offsets = offsets.subspan(static_cast<std::size_t>(f * batch),
                                       static_cast<std::size_t>(batch) + 1),
            .values = values.data(),
            .weights = weights.empty() ? nullptr : weights.data()};
  }
};

/// A tensor from lengths [F*B]. Throws Error(kData) on a negative length or a wrong total.
KeyedJaggedTensor from_lengths(std::vector<std::string> keys,
                               std::int64_t batch,
                               std::span<const std::int64_t> lengths,
                               std::vector<std::int64_t> values,
                               std::vector<float> weights = {});

/// The features `order` of `input`, in that order; a feature may appear more than once.
KeyedJaggedTensor permute(const KeyedJaggedTensor& input, std::span<const std::int64_t> order);

/// Consecutive groups of features: `sizes` sums to F.
std::vector<KeyedJaggedTensor> split(const KeyedJaggedTensor& input,
                                     std::span<const std::int64_t> sizes);

/// All features of all inputs, one after the other. Batches must be equal; weights are 1 where
/// an input has none and another has some.
KeyedJaggedTensor concat(std::span<const KeyedJaggedTensor* const> inputs);

/// Samples [begin, end) of every feature.
KeyedJaggedTensor slice_samples(const KeyedJaggedTensor& input,
                                std::int64_t begin,
                                std::int64_t end);

}  // namespace weft
