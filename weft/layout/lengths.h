/// Lengths of buffers as functions of counts. The functions are templates over the number: the
/// allocators call them with exact counts (std::int64_t), the planner with what it expects of a
/// batch (Expected).
///
/// Lengths of one owner are a struct of Arrays with all(), a tuple of them; held_bytes() adds up
/// what they take. Plain values and pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "weft/layout/blocks.h"

namespace weft::layout {

/// A count or a length, as it is on average.
struct Expected {
  double value = 0.0;
  bool varies = false;  ///< from batch to batch; else it is the same in each

  Expected& operator+=(const Expected& other) {
    value += other.value;
    varies = varies || (other.varies && other.value != 0.0);
    return *this;
  }

  friend Expected operator+(Expected a, const Expected& b) { return a += b; }

  /// What is left where `b` is a part of it.
  friend Expected operator-(const Expected& a, const Expected& b) {
    return {a.value - b.value, a.varies || b.varies};
  }

  friend Expected operator+(const Expected& a, std::int64_t b) {
    return {a.value + static_cast<double>(b), a.varies};
  }

  friend Expected operator*(const Expected& a, std::int64_t b) {
    return {a.value * static_cast<double>(b), a.varies};
  }
};

/// The larger of two lengths.
template <typename N>
  requires std::is_arithmetic_v<N>
constexpr N larger(N a, N b) {
  return std::max(a, b);
}

/// The same of expected ones: that of the larger.
inline Expected larger(const Expected& a, const Expected& b) {
  return a.value < b.value ? b : a;
}

/// `count` elements of type T, behind each other.
template <typename T, typename N = std::int64_t>
struct Array {
  N count = {};

  [[nodiscard]] N bytes() const { return count * static_cast<std::int64_t>(sizeof(T)); }
};

/// What a buffer of this length takes after many batches, as allocators count it. `growth`: of the
/// buffers of the device.
inline double held_bytes(const Expected& bytes, double growth = kBufferGrowth) {
  return block_bytes(bytes.varies ? expected_capacity(bytes.value, growth) : bytes.value);
}

/// The same of an array.
template <typename T>
double held_bytes(const Array<T, Expected>& array, double growth = kBufferGrowth) {
  return held_bytes(array.bytes(), growth);
}

/// The same of all arrays of an owner.
template <typename Lengths>
  requires requires(const Lengths& lengths) { lengths.all(); }
double held_bytes(const Lengths& lengths, double growth = kBufferGrowth) {
  return std::apply(
      [growth](const auto&... array) { return (0.0 + ... + held_bytes(array, growth)); },
      lengths.all());
}

/// The lengths of all arrays of an owner together.
template <typename Lengths>
  requires requires(const Lengths& lengths) { lengths.all(); }
auto total_bytes(const Lengths& lengths) {
  return std::apply([](const auto&... array) { return (array.bytes() + ...); }, lengths.all());
}

}  // namespace weft::layout
