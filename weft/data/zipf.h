/// Popularity of generated ids: a Zipf law over ranks, and a keyed bijection that scatters the
/// ranks over the ids, so that hot ids are not neighbours.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/hash.h"

namespace weft::data {

inline constexpr double kTwo32 = 4294967296.0;  ///< values of a random word

/// A stream of 64-bit words from one 64-bit state (SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
/// The state comes from Philox, so that every (seed, sample, column) has its own stream.
class WordStream {
 public:
  explicit WordStream(std::uint64_t state) : state_(state) {}

  /// Returns the next word, uniform over 64 bits.
  std::uint64_t next() {
    state_ += kStep;
    return mix64(state_);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state_;
};

/// Draws rank k of [0, n) with probability proportional to (k + 1)^-exponent, exactly, in O(1).
///
/// Ranks are cut into buckets [a, a + max(1, a / 32)). A bucket is drawn by Walker's alias method
/// with the weight of its envelope, width x a^-s; a rank inside it is drawn uniformly and accepted
/// with probability (k / a)^-s. Since (1 + 1/32)^-s is near one, more than nine draws in ten are
/// accepted without computing a power. Memory: about 24 bytes x (64 + 32 ln(n / 64)), which stays
/// in the first cache for any n.
class ZipfSampler {
 public:
  static constexpr std::int64_t kMaxRanks = std::int64_t{1} << 36;

  /// Requires 1 <= n <= kMaxRanks, exponent >= 0.
  ZipfSampler(std::int64_t n, double exponent);

  std::uint64_t operator()(WordStream& words) const {
    while (true) {
      const std::uint64_t first = words.next();
      const std::uint64_t product = (first >> 32) * buckets_.size();
      std::uint64_t index = product >> 32;
      const Bucket* bucket = &buckets_[index];
      if (static_cast<std::uint32_t>(first) >= bucket->threshold) {
        bucket = &buckets_[bucket->alias];
      }
      if (bucket->width == 1) {
        return bucket->first;
      }
      const std::uint64_t second = words.next();
      const std::uint64_t rank = bucket->first + (((second >> 32) * bucket->width) >> 32);
      const auto word = static_cast<std::uint32_t>(second);
      if (word < bucket->squeeze || accept(*bucket, rank, word)) {
        return rank;
      }
    }
  }

  /// Probability of a rank.
  [[nodiscard]] double probability(std::uint64_t rank) const;

 private:
  struct Bucket {
    std::uint64_t first = 0;  // rank, from zero
    std::uint32_t width = 1;
    std::uint32_t squeeze = 0;    // 2^32 x the smallest acceptance of the bucket
    std::uint32_t threshold = 0;  // 2^32 x the share of its own slot of the alias table
    std::uint32_t alias = 0;      // who has the rest of the slot
  };

  [[nodiscard]] bool accept(const Bucket& bucket, std::uint64_t rank, std::uint32_t word) const;
  void build_alias(std::vector<double> weights);

  double exponent_;
  double total_;  // sum of (k + 1)^-exponent
  std::vector<Bucket> buckets_;
};

/// A keyed bijection of [0, n), some nanoseconds a call: odd multiplications and xor-shifts on the
/// smallest power of two that holds n, with cycle walking (under two steps on average). Mixing is
/// enough to scatter hot ids; weft::Permutation mixes better and costs thirty times as much.
class Scatter {
 public:
  Scatter(std::uint64_t n, std::uint64_t key);

  std::uint64_t operator()(std::uint64_t value) const {
    do {
      value = mix(value);
    } while (value >= n_);
    return value;
  }

 private:
  [[nodiscard]] std::uint64_t mix(std::uint64_t value) const {
    value = ((value ^ mask_key_) * multiplier0_) & mask_;
    value ^= value >> shift_;
    value = (value * multiplier1_) & mask_;
    value ^= value >> shift_;
    value = (value * multiplier2_) & mask_;
    return value ^ (value >> shift_);
  }

  std::uint64_t n_;
  std::uint64_t mask_;
  std::uint64_t mask_key_;
  std::uint64_t multiplier0_;
  std::uint64_t multiplier1_;
  std::uint64_t multiplier2_;
  int shift_;
};

}  // namespace weft::data
