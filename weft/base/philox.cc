#include "weft/base/philox.h"

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
constexpr int kRounds = 10;

constexpr int kFeistelRounds = 4;

constexpr std::uint32_t low_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}

constexpr std::uint32_t high_word(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                    std::uint64_t counter_low,
                                    std::uint64_t counter_high) {
  std::array<std::uint32_t, 4> x = {low_word(counter_low), high_word(counter_low),
                                    low_word(counter_high), high_word(counter_high)};
  std::uint32_t key0 = low_word(key);
  std::uint32_t key1 = high_word(key);
  for (int round = 0; round < kRounds; ++round) {
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
