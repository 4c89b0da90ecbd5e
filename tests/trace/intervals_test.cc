#include "weft/trace/intervals.h"

#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace weft::trace {
namespace {

constexpr std::int64_t kEnd = 40;

std::vector<Interval> random_intervals(std::mt19937& random) {
  std::uniform_int_distribution<std::int64_t> time(0, kEnd);
  std::vector<Interval> intervals(random() % 8);
  for (Interval& interval : intervals) {
    interval = {time(random), time(random)};  // some end before they begin
  }
  return intervals;
}

std::vector<bool> bits_of(const std::vector<Interval>& intervals) {
  std::vector<bool> bits(kEnd);
  for (const Interval& interval : intervals) {
    for (std::int64_t t = interval.begin; t < interval.end; ++t) {
      bits[static_cast<std::size_t>(t)] = true;
    }
  }
  return bits;
}

void expect_moments(const Moments& moments) {
  for (std::size_t i = 0; i < moments.size(); ++i) {
    EXPECT_LT(moments[i].begin, moments[i].end);
    EXPECT_TRUE(i == 0 || moments[i - 1].end < moments[i].begin);
  }
}

// Against moment by moment.
TEST(Intervals, AreSets) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto first = random_intervals(random);
    const auto second = random_intervals(random);
    const Moments a = unite(first);
    const Moments b = unite(second);
    const std::vector<bool> in_a = bits_of(first);
    const std::vector<bool> in_b = bits_of(second);
    std::vector<bool> both(kEnd), either(kEnd), only(kEnd);
    std::int64_t count = 0;
    for (std::size_t t = 0; t < both.size(); ++t) {
      both[t] = in_a[t] && in_b[t];
      either[t] = in_a[t] || in_b[t];
      only[t] = in_a[t] && !in_b[t];
      count += in_a[t] ? 1 : 0;
    }
    EXPECT_EQ(bits_of(a), in_a);
    EXPECT_EQ(bits_of(intersect(a, b)), both);
    EXPECT_EQ(bits_of(unite(a, b)), either);
    EXPECT_EQ(bits_of(subtract(a, b)), only);
    EXPECT_EQ(length(a), count);
    for (const Moments& moments : {a, unite(a, b)}) {
      expect_moments(moments);
    }
  }
}

}  // namespace
}  // namespace weft::trace
