/// Private to kernels/cpu: a stable sort of items by some bits of their keys, lowest digit first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace weft::kernels {

// Of 11 bits counts take 8 KiB, a sixth of the first cache.
inline constexpr int kMaxDigitBits = 11;
// Below this a comparison sort is faster than clearing and adding up counts.
inline constexpr std::int64_t kFewItems = 64;

/// A key of 64 bits and where it comes from. Items of fewer bits are of their users' own.
struct WideItem {
  std::uint64_t key_word;
  std::int64_t place_word;

  friend auto operator<=>(const WideItem&, const WideItem&) = default;

  static WideItem make(std::uint64_t key, std::int64_t place) { return {key, place}; }

  [[nodiscard]] std::uint64_t key() const { return key_word; }

  [[nodiscard]] std::int64_t place() const { return place_word; }
};

/// The bits of the largest of `count` numbers from 0 on.
inline int bits_below(std::int64_t count) {
  return count <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
}

/// The bits of keys that are sorted by, cut into digits.
struct Digits {
  int passes = 0;
  int bits = 0;   ///< of a digit
  int first = 0;  ///< lowest bit of the lowest digit

  [[nodiscard]] std::int64_t buckets() const { return std::int64_t{1} << bits; }

  [[nodiscard]] std::uint64_t digit(std::uint64_t key, int pass) const {
    return (key >> (first + pass * bits)) & (static_cast<std::uint64_t>(buckets()) - 1);
  }
};

/// Bits [begin, end) in the number of passes that touches least: a pass moves n items and adds up
/// its counts.
inline Digits choose_digits(int begin, int end, std::int64_t n) {
  const int bits = end - begin;
  Digits best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int passes = (bits + kMaxDigitBits - 1) / kMaxDigitBits; passes > 0 && passes <= bits;
       ++passes) {
    const int digit_bits = (bits + passes - 1) / passes;
    const std::int64_t touched = passes * (n + (std::int64_t{1} << digit_bits));
    if (touched >= least) {
      break;
    }
    least = touched;
    best = {passes, digit_bits, begin};
  }
  return best;
}

/// `kPasses` is digits.passes, or 0 where that is not known to the compiler.
template <int kPasses, typename Memory>
void count_digits(const Memory& memory, std::int64_t n, const Digits& digits) {
  const int passes = kPasses > 0 ? kPasses : digits.passes;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t key = memory.items[i].key();
    for (int pass = 0; pass < passes; ++pass) {
      ++memory.counts[pass * digits.buckets() + static_cast<std::int64_t>(digits.digit(key, pass))];
    }
  }
}

/// Sorts items [n], n > 0, stably; returns where the result lies. `memory` has `items` [n], `other`
/// [n], and `counts` [passes, buckets], which are 0.
template <typename Memory>
auto* sort_by_digits(const Memory& memory, std::int64_t n, const Digits& digits) {
  switch (digits.passes) {
    case 2:
      count_digits<2>(memory, n, digits);
      break;
    case 3:
      count_digits<3>(memory, n, digits);
      break;
    default:
      count_digits<0>(memory, n, digits);
  }
  auto* items = memory.items;
  auto* other = memory.other;
  for (int pass = 0; pass < digits.passes; ++pass) {
    std::int64_t* const starts = memory.counts + pass * digits.buckets();
    if (starts[digits.digit(items[0].key(), pass)] == n) {
      continue;  // all have the same digit
    }
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < digits.buckets(); ++b) {
      sum += std::exchange(starts[b], sum);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      other[starts[digits.digit(items[i].key(), pass)]++] = items[i];
    }
    std::swap(items, other);
  }
  return items;
}

}  // namespace weft::kernels
