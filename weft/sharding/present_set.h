/// Private to sharding/: which of many numbers there are in a batch, and the place of each among
/// those: a list of few that is looked into like an array.
///
/// Memory: 1.5 bits per number, kept from batch to batch. Cost: begin() and count() go through 64
/// numbers at a time; place() is two loads and a count of bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/parts.h"

namespace weft::sharding {

/// As std::popcount(), which is a call where the instruction cannot be taken for granted.
constexpr std::int64_t count_bits(std::uint64_t bits) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  bits -= bits >> 1 & kAll / 3;
  bits = (bits & kAll / 5) + (bits >> 2 & kAll / 5);
  bits = (bits + (bits >> 4)) & kAll / 17;
  return static_cast<std::int64_t>(bits * (kAll / 255) >> 56);
}

class PresentSet {
 public:
  /// Numbers of one word, which only one thread may insert at a time.
  static constexpr std::int64_t kWord = 64;

  /// The words of some numbers.
  static constexpr Range words_of(const Range& numbers) {
    return {numbers.begin / kWord, (numbers.end + kWord - 1) / kWord};
  }

  /// Forgets all. Numbers are below `size` from now on.
  void begin(std::int64_t size) {
    const std::size_t words = at((size + kWord - 1) / kWord);
    bits_.assign(words, 0);
    before_.resize(words);
  }

  void insert(std::int64_t number) {
    bits_[at(number / kWord)] |= std::uint64_t{1} << (number % kWord);
  }

  [[nodiscard]] bool has(std::int64_t number) const {
    return (bits_[at(number / kWord)] >> (number % kWord) & 1) != 0;
  }

  /// Gives the numbers of some whole words, which are all in, their places, from `first` on;
  /// returns the place behind the last.
  std::int64_t count(Range words, std::int64_t first) {
    for (std::int64_t w = words.begin; w < words.end; ++w) {
      before_[at(w)] = static_cast<std::uint32_t>(first);
      first += count_bits(bits_[at(w)]);
    }
    return first;
  }

  /// Moves the places of the numbers of some words, which are counted, behind `by` others.
  void move(Range words, std::int64_t by) {
    for (std::int64_t w = words.begin; w < words.end; ++w) {
      before_[at(w)] += static_cast<std::uint32_t>(by);
    }
  }

  /// Those of all numbers; returns how many there are.
  std::int64_t count() { return count({0, std::ssize(bits_)}, 0); }

  /// Once counted: how many there are before `number`, which is its place if it is there.
  [[nodiscard]] std::int64_t place(std::int64_t number) const {
    const std::uint64_t below = (std::uint64_t{1} << (number % kWord)) - 1;
    return before_[at(number / kWord)] + count_bits(bits_[at(number / kWord)] & below);
  }

  /// Calls visit(number, place) for those of `numbers` that there are, ascending.
  template <typename Visit>
  void for_each(Range numbers, const Visit& visit) const {
    for (std::int64_t w = numbers.begin / kWord; w * kWord < numbers.end; ++w) {
      std::uint64_t bits = bits_[at(w)];
      if (bits == 0) {
        continue;
      }
      std::int64_t next = before_[at(w)];  // place of the lowest number that is left
      if (numbers.begin > w * kWord) {
        const std::uint64_t below = (std::uint64_t{1} << (numbers.begin - w * kWord)) - 1;
        next += count_bits(bits & below);
        bits &= ~below;
      }
      if (numbers.end - w * kWord < kWord) {
        bits &= (std::uint64_t{1} << (numbers.end - w * kWord)) - 1;
      }
      for (; bits != 0; bits &= bits - 1) {
        visit(w * kWord + std::countr_zero(bits), next++);
      }
    }
  }

  [[nodiscard]] std::int64_t heap_bytes() const {
    return static_cast<std::int64_t>(8 * bits_.capacity() + 4 * before_.capacity());
  }

 private:
  std::vector<std::uint64_t> bits_;    // [words]
  std::vector<std::uint32_t> before_;  // [words] how many there are before each
};

}  // namespace weft::sharding
