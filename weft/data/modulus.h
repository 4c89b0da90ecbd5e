/// Private to data/: remainders by a number that is not known to the compiler, without a division.
#pragma once

#include <cstdint>

namespace weft::data {

/// x mod `divisor`, exact for every x. Cost: two multiplications.
class Modulus {
 public:
  /// Requires divisor >= 1.
  explicit Modulus(std::uint64_t divisor)
      : divisor_(divisor), reciprocal_(~std::uint64_t{0} / divisor) {}

  std::uint64_t operator()(std::uint64_t x) const {
    // 2^64 / divisor - reciprocal_ is at most 1, so x * reciprocal_ / 2^64 is below x / divisor by
    // less than 1, and its floor is the quotient or one less.
    const std::uint64_t quotient = high_product(x, reciprocal_);
    const std::uint64_t rest = x - quotient * divisor_;
    return rest >= divisor_ ? rest - divisor_ : rest;
  }

 private:
  static std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64);
  }

  std::uint64_t divisor_;
  std::uint64_t reciprocal_;
};

}  // namespace weft::data
