/// Counter-based random numbers: Philox4x32 (Salmon et al., SC 2011). A draw is a pure function of
/// its key and counter, so initial values, shuffles and stochastic rounding depend on ids and never
/// on who draws first.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

/// What a draw is for; part of the key, so that two uses never share a stream.
enum class RandomPurpose : std::uint32_t {
  kInitialValue = 1,
  kStochasticRounding = 2,
  kShuffle = 3,
  kSynthetic = 4,
  kTeacher = 5,
  kReplicaAverage = 6,  ///< stochastic rounding of averages
  kVectorCodec = 7,     ///< of vectors and gradients between ranks
  kTest = 100,
};

/// Rounds of Philox: the authors' usual ten, and the fewest with which it passes BigCrush.
inline constexpr int kPhiloxRounds = 10;
inline constexpr int kFewestPhiloxRounds = 7;

/// Four independent 32-bit words for (key, counter).
std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                    std::uint64_t counter_low,
                                    std::uint64_t counter_high,
                                    int rounds = kPhiloxRounds);

/// A 64-bit key for (seed, purpose, name).
std::uint64_t random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name = {});

/// [0, 1) with 24 bits from one word.
inline float uniform_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24F;
}

/// [0, 1) with 53 bits from two words.
inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t word = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(word >> 11) * 0x1.0p-53;
}

/// A seeded bijection of [0, n): a four-round Feistel network with cycle walking. O(1) memory.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t key);

  [[nodiscard]] std::uint64_t operator()(std::uint64_t index) const;

  /// out[i] = (*this)(first + i), for indices below n. Many at a time, so that their rounds
  /// overlap: about 20 ns each instead of 70.
  void map(std::uint64_t first, std::span<std::int64_t> out) const;

 private:
  [[nodiscard]] std::uint64_t encrypt(std::uint64_t value) const;
  void encrypt_lanes(std::uint64_t* values) const;

  std::uint64_t n_;
  std::uint64_t key_;
  int half_bits_;
};

}  // namespace weft
