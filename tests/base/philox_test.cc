#include "weft/base/philox.h"

#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of the authors' library (Random123, kat_vectors, philox4x32).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(UINT64_MAX, UINT64_MAX, UINT64_MAX),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox(0, 0, 0, kFewestPhiloxRounds),
            (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, kFewestPhiloxRounds),
            (Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, kFewestPhiloxRounds),
            (Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

TEST(Philox, KeysDifferBySeedPurposeAndName) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (const auto purpose : {RandomPurpose::kInitialValue, RandomPurpose::kShuffle}) {
      for (const char* name : {"", "tables.C1", "tables.C2"}) {
        keys.insert(random_key(seed, purpose, name));
      }
    }
  }
  EXPECT_EQ(keys.size(), 60U);
  EXPECT_EQ(random_key(1, RandomPurpose::kTest, "x"), random_key(1, RandomPurpose::kTest, "x"));
}

TEST(Philox, UniformIsInItsRange) {
  EXPECT_EQ(uniform_float(0), 0.0F);
  EXPECT_LT(uniform_float(UINT32_MAX), 1.0F);
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_LT(uniform_double(UINT32_MAX, UINT32_MAX), 1.0);
  double sum = 0;
  constexpr std::uint64_t kDraws = 20000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    sum += uniform_float(philox(7, i, 0)[0]);
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / 141.4);
}

TEST(Permutation, IsABijection) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t n = 0; n <= 70; ++n) {
    sizes.push_back(n);
  }
  for (std::uint64_t n : {255, 256, 257, 1000, 1023, 1024, 1025, 4097, 20000}) {
    sizes.push_back(n);
  }
  for (const std::uint64_t n : sizes) {
    const Permutation permutation(n, 99);
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permutation(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(seen[to]) << "n " << n << ", index " << i;
      seen[to] = true;
    }
  }
}

TEST(Permutation, DependsOnTheKeyAndMoves) {
  const Permutation a(1000, 1);
  const Permutation b(1000, 2);
  const Permutation again(1000, 1);
  int same_as_b = 0;
  int fixed = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a(i), again(i));
    same_as_b += a(i) == b(i) ? 1 : 0;
    fixed += a(i) == i ? 1 : 0;
  }
  EXPECT_LT(same_as_b, 20);  // about one each is expected
  EXPECT_LT(fixed, 20);
}

TEST(Permutation, HugeDomains) {
  for (const std::uint64_t n : {std::uint64_t{1} << 40, (std::uint64_t{1} << 40) + 1, UINT64_MAX}) {
    const Permutation permutation(n, 5);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 100; ++i) {
      EXPECT_LT(permutation(n - 1 - i), n);
      seen.insert(permutation(n - 1 - i));
    }
    EXPECT_EQ(seen.size(), 100U);
  }
}

TEST(Permutation, ManyAtOnceAreTheSame) {
  for (const std::uint64_t n : {1, 2, 5, 16, 17, 255, 256, 257, 4096, 4097, 70000}) {
    const Permutation permutation(n, 31);
    for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{1}, n / 2, n}) {
      std::vector<std::int64_t> out(count);
      permutation.map(n - count, out);
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[i], static_cast<std::int64_t>(permutation(n - count + i)))
            << "n " << n << ", index " << n - count + i;
      }
    }
  }
  const Permutation huge(UINT64_MAX, 5);
  std::vector<std::int64_t> out(40);
  huge.map(UINT64_MAX - 50, out);
  EXPECT_EQ(static_cast<std::uint64_t>(out[39]), huge(UINT64_MAX - 11));
}

TEST(Permutation, RefusesAnIndexOutside) {
  std::vector<std::int64_t> out(3);
  EXPECT_THROW(Permutation(10, 1).map(8, out), Error);
  EXPECT_THROW(Permutation(2, 1).map(0, out), Error);
  EXPECT_THROW(static_cast<void>(Permutation(0, 1)(0)), Error);
  EXPECT_THROW(static_cast<void>(Permutation(10, 1)(10)), Error);
}

}  // namespace
}  // namespace weft
