/// Private to data/: the planted teacher of a generated click log, the function that decides how
/// likely a click is.
///
/// score(sample) = sum over columns of teacher_scale x mean of effect(column, id) over the bag
///               + sum over dense columns of weight x ln(1 + count)
///               + sum over a few pairs of columns of <hidden(first), hidden(second)>, hidden of a
///                 column being the mean of a vector of kHidden numbers over the bag.
/// Means are of weight x value where the column is weighted. An empty bag and a missing count score
/// nothing. Effects and hidden vectors are normal draws of (seed, column name, popularity rank)
/// that shrink as sqrt(kHalf / (kHalf + rank)) and end after kEffectRanks: what an id seen a few
/// times does cannot be learnt, and a teacher that leans on such ids would set a mark that no model
/// reaches.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/zipf.h"
#include "weft/spec/config.h"

namespace weft::data {

class Teacher {
 public:
  static constexpr std::uint64_t kEffectRanks = 4096;
  static constexpr std::uint64_t kHiddenRanks = 1024;
  static constexpr std::int64_t kHidden = 4;
  static constexpr std::int64_t kMaxPairs = 4;  ///< columns (0, 1), (2, 3), ... are paired
  static constexpr double kHalf = 32.0;
  static constexpr double kDenseShare = 0.5;  ///< deviation of the dense part over the columns'
  static constexpr double kPairShare = 0.25;  ///< and of the pairs' part

  Teacher(const spec::SyntheticConfig& config,
          const std::vector<ZipfSampler>& popularity,
          std::uint64_t seed);

  /// teacher_scale is in it.
  [[nodiscard]] float effect(std::size_t column, std::uint64_t rank) const {
    const std::vector<float>& effects = effects_[column];
    return rank < effects.size() ? effects[rank] : 0.0F;
  }

  /// kHidden numbers, or null where they are zero.
  [[nodiscard]] const float* hidden(std::size_t column, std::uint64_t rank) const {
    const std::vector<float>& vectors = hidden_[column];
    return rank * kHidden < vectors.size() ? &vectors[rank * kHidden] : nullptr;
  }

  [[nodiscard]] bool paired(std::size_t column) const { return !hidden_[column].empty(); }

  [[nodiscard]] float dense_weight(std::size_t column) const { return dense_weights_[column]; }

 private:
  double add_column(const spec::SyntheticColumn& column,
                    const ZipfSampler& popularity,
                    std::uint64_t key);
  void add_pairs(const std::vector<ZipfSampler>& popularity,
                 const std::vector<std::uint64_t>& keys,
                 double deviation);
  void add_dense(std::int64_t columns, std::uint64_t key, double deviation);

  std::vector<std::vector<float>> effects_;
  std::vector<std::vector<float>> hidden_;
  std::vector<float> dense_weights_;
};

}  // namespace weft::data
