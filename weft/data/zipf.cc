#include "weft/data/zipf.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/base/error.h"

namespace weft::data {
namespace {

constexpr std::uint64_t kBucketsPerOctave = 32;  // width of a bucket = first rank / this
constexpr std::int64_t kSummed = 4096;           // terms of the normaliser added one by one

// 2^32 x a probability, as a threshold that a 32-bit word is compared with. A share of one would
// not fit; 2^32 - 1 is as near as 32 bits come.
std::uint32_t to_word(double share) {
  return static_cast<std::uint32_t>(std::clamp(share * kTwo32, 0.0, kTwo32 - 1.0));
}

// The sum of k^-s for k in [1, n]: the first terms, then Euler-Maclaurin with two corrections,
// whose error is far below the last bit at kSummed terms.
double generalised_harmonic(std::int64_t n, double s) {
  double sum = 0.0;
  const std::int64_t direct = std::min(n, kSummed);
  for (std::int64_t k = 1; k <= direct; ++k) {
    sum += std::pow(static_cast<double>(k), -s);
  }
  if (n <= kSummed) {
    return sum;
  }
  const double a = static_cast<double>(kSummed);
  const double b = static_cast<double>(n);
  const double ratio = std::log(b / a);
  // The integral of x^-s over [a, b], stable near s = 1.
  const double power = (1.0 - s) * ratio;
  const double integral =
      std::pow(a, 1.0 - s) * ratio * (std::abs(power) < 1e-12 ? 1.0 : std::expm1(power) / power);
  const double ends = 0.5 * (std::pow(b, -s) - std::pow(a, -s));
  const double slopes = s / 12.0 * (std::pow(a, -s - 1.0) - std::pow(b, -s - 1.0));
  return sum + integral + ends + slopes;
}

}  // namespace

ZipfSampler::ZipfSampler(std::int64_t n, double exponent) : exponent_(exponent), total_(0.0) {
  WEFT_CHECK(n >= 1 && n <= kMaxRanks && exponent >= 0.0, "n {}, exponent {}", n, exponent);
  total_ = generalised_harmonic(n, exponent);
  std::vector<double> weights;
  const auto end = static_cast<std::uint64_t>(n);
  for (std::uint64_t first = 0; first < end;) {
    const double a = static_cast<double>(first + 1);
    const std::uint64_t wanted = std::max<std::uint64_t>(1, (first + 1) / kBucketsPerOctave);
    const std::uint64_t width = std::min(wanted, end - first);
    Bucket bucket;
    bucket.first = first;
    bucket.width = static_cast<std::uint32_t>(width);
    bucket.squeeze = to_word(std::pow(static_cast<double>(first + width) / a, -exponent));
    buckets_.push_back(bucket);
    weights.push_back(static_cast<double>(width) * std::pow(a, -exponent));
    first += width;
  }
  build_alias(std::move(weights));
}

// Vose's construction: slots below the mean are filled up by slots above it.
void ZipfSampler::build_alias(std::vector<double> weights) {
  double total = 0.0;
  for (const double weight : weights) {
    total += weight;
  }
  std::vector<std::uint32_t> small;
  std::vector<std::uint32_t> large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] *= static_cast<double>(weights.size()) / total;
    (weights[i] < 1.0 ? small : large).push_back(static_cast<std::uint32_t>(i));
  }
  while (!small.empty() && !large.empty()) {
    const std::uint32_t low = small.back();
    const std::uint32_t high = large.back();
    small.pop_back();
    buckets_[low].threshold = to_word(weights[low]);
    buckets_[low].alias = high;
    weights[high] -= 1.0 - weights[low];
    if (weights[high] < 1.0) {
      large.pop_back();
      small.push_back(high);
    }
  }
  // What is left is full up to rounding: its alias is itself.
  for (const std::vector<std::uint32_t>* rest : {&small, &large}) {
    for (const std::uint32_t index : *rest) {
      buckets_[index].threshold = to_word(1.0);
      buckets_[index].alias = index;
    }
  }
}

bool ZipfSampler::accept(const Bucket& bucket, std::uint64_t rank, std::uint32_t word) const {
  const double ratio = static_cast<double>(rank + 1) / static_cast<double>(bucket.first + 1);
  return static_cast<double>(word) < std::pow(ratio, -exponent_) * kTwo32;
}

double ZipfSampler::probability(std::uint64_t rank) const {
  return std::pow(static_cast<double>(rank + 1), -exponent_) / total_;
}

Scatter::Scatter(std::uint64_t n, std::uint64_t key) : n_(n) {
  WEFT_CHECK(n >= 1, "a bijection of nothing");
  const int bits = n <= 1 ? 0 : static_cast<int>(std::bit_width(n - 1));
  mask_ = bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  WordStream words(key);
  mask_key_ = words.next() & mask_;
  multiplier0_ = words.next() | 1;
  multiplier1_ = words.next() | 1;
  multiplier2_ = words.next() | 1;
  shift_ = std::max(1, (bits + 1) / 2);
}

}  // namespace weft::data
