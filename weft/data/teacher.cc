#include "weft/data/teacher.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/base/philox.h"

namespace weft::data {
namespace {

constexpr std::uint64_t kHiddenCounter = 1;  // upper counter word; effects have 0

// A standard normal draw (Box and Muller).
double normal(std::uint64_t key, std::uint64_t index, std::uint64_t which) {
  const auto words = philox(key, index, which);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double(words[0], words[1])));
  return radius * std::cos(2.0 * std::numbers::pi * uniform_double(words[2], words[3]));
}

double shape(std::uint64_t rank) {
  return std::sqrt(Teacher::kHalf / (Teacher::kHalf + static_cast<double>(rank)));
}

// The variance a column's effects would have with normal draws of variance exactly one.
double shape_variance(const ZipfSampler& popularity, std::uint64_t ranks) {
  double variance = 0.0;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    variance += popularity.probability(rank) * shape(rank) * shape(rank);
  }
  return variance;
}

}  // namespace

Teacher::Teacher(const spec::SyntheticConfig& config,
                 const std::vector<ZipfSampler>& popularity,
                 std::uint64_t seed) {
  std::vector<std::uint64_t> keys;
  double variance = 0.0;
  for (std::size_t i = 0; i < config.columns.size(); ++i) {
    keys.push_back(random_key(seed, RandomPurpose::kTeacher, config.columns[i].name));
    variance += add_column(config.columns[i], popularity[i], keys.back());
  }
  const double deviation = variance > 0.0 ? std::sqrt(variance) : 1.0;
  hidden_.resize(config.columns.size());
  add_pairs(popularity, keys, kPairShare * deviation);
  add_dense(config.dense_columns, random_key(seed, RandomPurpose::kTeacher),
            kDenseShare * deviation);
}

// One popular id's draw may be most of a column's variance. The draws are scaled so that a column
// weighs what its teacher_scale says, whatever the seed. Returns the column's variance.
double Teacher::add_column(const spec::SyntheticColumn& column,
                           const ZipfSampler& popularity,
                           std::uint64_t key) {
  const std::uint64_t ranks =
      std::min(static_cast<std::uint64_t>(column.cardinality), kEffectRanks);
  std::vector<double> draws(ranks);
  double mean = 0.0;
  double square = 0.0;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    draws[rank] = normal(key, rank, 0) * shape(rank);
    mean += popularity.probability(rank) * draws[rank];
    square += popularity.probability(rank) * draws[rank] * draws[rank];
  }
  const double wanted = shape_variance(popularity, ranks);
  const double drawn = square - mean * mean;
  const bool varies = drawn > 1e-9 * square;  // a column of one id does not
  const double scale = column.teacher_scale * (varies ? std::sqrt(wanted / drawn) : 1.0);
  std::vector<float>& effects = effects_.emplace_back(ranks);
  std::transform(draws.begin(), draws.end(), effects.begin(),
                 [scale](double draw) { return static_cast<float>(draw * scale); });
  return varies ? column.teacher_scale * column.teacher_scale * wanted : 0.0;
}

// A product of two vectors of kHidden normal numbers has variance kHidden x (that of a number)^2.
void Teacher::add_pairs(const std::vector<ZipfSampler>& popularity,
                        const std::vector<std::uint64_t>& keys,
                        double deviation) {
  const std::int64_t pairs = std::min(kMaxPairs, static_cast<std::int64_t>(popularity.size() / 2));
  for (std::size_t i = 0; i < static_cast<std::size_t>(2 * pairs); ++i) {
    const auto cardinality = static_cast<std::uint64_t>(effects_[i].size());
    const std::uint64_t ranks = std::min(cardinality, kHiddenRanks);
    const double spread = std::sqrt(std::max(shape_variance(popularity[i], ranks), 1e-12));
    const double wanted = deviation / std::sqrt(static_cast<double>(kHidden * pairs));
    const double scale = std::sqrt(wanted) / spread;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      for (std::int64_t j = 0; j < kHidden; ++j) {
        const auto index = rank * kHidden + static_cast<std::uint64_t>(j);
        hidden_[i].push_back(
            static_cast<float>(normal(keys[i], index, kHiddenCounter) * shape(rank) * scale));
      }
    }
  }
}

void Teacher::add_dense(std::int64_t columns, std::uint64_t key, double deviation) {
  std::vector<double> draws;
  double square = 0.0;
  for (std::int64_t i = 0; i < columns; ++i) {
    draws.push_back(normal(key, static_cast<std::uint64_t>(i), 0));
    square += draws.back() * draws.back();
  }
  for (const double draw : draws) {
    dense_weights_.push_back(static_cast<float>(draw * deviation / std::sqrt(square)));
  }
}

}  // namespace weft::data
