#include "weft/base/philox.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft {
namespace {

// The constants of the paper: two multipliers, and the key's step per round (the golden ratio and
// sqrt(3) - 1 as 32-bit fractions).
constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9;
constexpr std::uint32_t kKeyStep1 = 0xBB67AE85;

constexpr int kFeistelRounds = 4;
constexpr std::size_t kLanes = 16;  ///< values encrypted at once; they fit in the vector registers

constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}

constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

/// philox(key, counter[l], counter_high)[0] for every lane l, written so that lanes become vectors.
void first_words(std::uint64_t key,
                 const std::array<std::uint32_t, kLanes>& counter,
                 std::uint32_t counter_high,
                 std::array<std::uint32_t, kLanes>& out) {
  std::array<std::uint32_t, kLanes> x0 = counter;
  std::array<std::uint32_t, kLanes> x1{};
  std::array<std::uint32_t, kLanes> x2;
  std::array<std::uint32_t, kLanes> x3{};
  x2.fill(counter_high);
  std::uint32_t key0 = low_word(key);
  std::uint32_t key1 = high_word(key);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const std::uint64_t product0 = kMultiplier0 * x0[l];
      const std::uint64_t product1 = kMultiplier1 * x2[l];
      x0[l] = high_word(product1) ^ x1[l] ^ key0;
      x1[l] = low_word(product1);
      x2[l] = high_word(product0) ^ x3[l] ^ key1;
      x3[l] = low_word(product0);
    }
    key0 += kKeyStep0;
    key1 += kKeyStep1;
  }
  out = x0;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                    std::uint64_t counter_low,
                                    std::uint64_t counter_high,
                                    int rounds) {
  std::array<std::uint32_t, 4> x = {low_word(counter_low), high_word(counter_low),
                                    low_word(counter_high), high_word(counter_high)};
  std::uint32_t key0 = low_word(key);
  std::uint32_t key1 = high_word(key);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * x[0];
    const std::uint64_t product1 = kMultiplier1 * x[2];
    x = {high_word(product1) ^ x[1] ^ key0, low_word(product1), high_word(product0) ^ x[3] ^ key1,
         low_word(product0)};
    key0 += kKeyStep0;
    key1 += kKeyStep1;
  }
  return x;
}

std::uint64_t random_key(std::uint64_t seed, RandomPurpose purpose, std::string_view name) {
  return hash_combine(hash_combine(mix64(seed), static_cast<std::uint64_t>(purpose)),
                      hash_string(name));
}

// The domain is the smallest power of four that holds n, so that both halves have the same width;
// it has fewer than 4n values, and cycle walking takes fewer than four steps on average.
Permutation::Permutation(std::uint64_t n, std::uint64_t key)
    : n_(n), key_(key), half_bits_(n <= 1 ? 0 : (static_cast<int>(std::bit_width(n - 1)) + 1) / 2) {
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  WEFT_CHECK(index < n_, "index {} of a permutation of {}", index, n_);
  std::uint64_t value = encrypt(index);
  // Following the cycle from a value below n comes back below n, at the latest at `index` itself.
  while (value >= n_) {
    value = encrypt(value);
  }
  return value;
}

void Permutation::map(std::uint64_t first, std::span<std::int64_t> out) const {
  WEFT_CHECK(out.size() <= n_ && first <= n_ - out.size(), "indices {} .. of a permutation of {}",
             first, n_);
  constexpr std::size_t kChunk = 256;
  std::array<std::uint64_t, kChunk + kLanes> values{};
  std::array<std::size_t, kChunk> places{};  // of the values that are still walking their cycle
  for (std::size_t begin = 0; begin < out.size(); begin += kChunk) {
    std::size_t walking = std::min(kChunk, out.size() - begin);
    for (std::size_t i = 0; i < walking; ++i) {
      values[i] = first + begin + i;
      places[i] = begin + i;
    }
    while (walking > 0) {
      for (std::size_t i = 0; i < walking; i += kLanes) {
        encrypt_lanes(&values[i]);
      }
      std::size_t left = 0;
      for (std::size_t i = 0; i < walking; ++i) {
        out[places[i]] = static_cast<std::int64_t>(values[i]);
        places[left] = places[i];
        values[left] = values[i];
        left += values[i] >= n_ ? 1 : 0;
      }
      walking = left;
    }
  }
}

/// encrypt() of kLanes values in place.
void Permutation::encrypt_lanes(std::uint64_t* values) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::array<std::uint32_t, kLanes> left;
  std::array<std::uint32_t, kLanes> right;
  std::array<std::uint32_t, kLanes> words;
  for (std::size_t l = 0; l < kLanes; ++l) {
    left[l] = low_word(values[l] >> half_bits_);
    right[l] = low_word(values[l] & mask);
  }
  for (std::uint32_t round = 0; round < kFeistelRounds; ++round) {
    first_words(key_, right, round, words);
    for (std::size_t l = 0; l < kLanes; ++l) {
      const std::uint32_t mixed = left[l] ^ (words[l] & low_word(mask));
      left[l] = right[l];
      right[l] = mixed;
    }
  }
  for (std::size_t l = 0; l < kLanes; ++l) {
    values[l] = (std::uint64_t{left[l]} << half_bits_) | right[l];
  }
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kFeistelRounds; ++round) {
    const std::uint64_t mixed = left ^ (philox(key_, right, round)[0] & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

}  // namespace weft
