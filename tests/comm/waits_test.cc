// Who is named where ranks wait for ranks that wait.
#include "weft/comm/waits.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weft::comm {
namespace {

/// Rank `self` waits for these, in a group of all ranks.
Wait waiting(int self, const std::vector<int>& missing, const std::string& group = "world") {
  Wait wait{.self = {self, self},
            .group = group,
            .stamp = {.sequence = 7, .collective = Collective::kMerge},
            .seconds = 2.0,
            .missing = {}};
  for (const int rank : missing) {
    wait.missing.push_back({rank, rank});
  }
  return wait;
}

std::vector<int> blamed(const Wait& first, const std::vector<Wait>& all) {
  std::vector<int> ranks;
  for (const NumberedRank& rank : find_fault(first, all).missing) {
    ranks.push_back(rank.in_world);
  }
  return ranks;
}

// 9 is late in a merge of 24 ranks: 8 waits for it, 0 for 8, 16 for the result of 0, 17 for that
// of 16. Whoever asks first, it is 9.
TEST(Waits, InATreeTheLateRankIsNamedWhoeverAsks) {
  const std::vector<Wait> all = {waiting(0, {8}), waiting(8, {9}), waiting(16, {0}),
                                 waiting(17, {16})};
  for (const Wait& first : all) {
    const Wait found = find_fault(first, all);
    EXPECT_EQ(found.missing, (std::vector<NumberedRank>{{9, 9}}));
    EXPECT_EQ(found.self.in_world, 8) << "the one that waits for it";
  }
}

TEST(Waits, OfSeveralLateRanksAllAreNamed) {
  const std::vector<Wait> all = {waiting(0, {1, 2, 3}), waiting(2, {4}, "other")};
  EXPECT_EQ(blamed(all[0], all), (std::vector<int>{1, 3}));
}

TEST(Waits, ARankWithSeveralWaitsIsFollowedInAll) {
  // Rank 1's streams wait for 2 and for 0, which began with 1 missing.
  const std::vector<Wait> all = {waiting(0, {1}, "vectors"), waiting(1, {0}, "dense"),
                                 waiting(1, {2}, "ids")};
  EXPECT_EQ(blamed(all[0], all), (std::vector<int>{2}));
  EXPECT_EQ(find_fault(all[0], all).group, "ids");
}

TEST(Waits, InACircleTheWaitOfTheFewestCounts) {
  // A stream of rank 3 waits for all, whose streams wait for another one of rank 3.
  const std::vector<Wait> all = {waiting(0, {3}, "vectors"), waiting(1, {3}, "vectors"),
                                 waiting(3, {0, 1}, "dense")};
  for (const Wait& first : all) {
    EXPECT_EQ(blamed(first, all), (std::vector<int>{3}));
  }
  EXPECT_EQ(blamed(waiting(0, {1}), {waiting(0, {1}), waiting(1, {0})}), (std::vector<int>{1}))
      << "of equals the one that asks";
}

TEST(Waits, WithoutAnswersTheMissingAreNamed) {
  EXPECT_EQ(blamed(waiting(5, {1, 2}), {}), (std::vector<int>{1, 2}));
}

TEST(Waits, TheErrorSaysWhoDidNotAnswer) {
  Wait wait = waiting(8, {9, 10});
  wait.missing[0].in_group = 1;
  const std::vector<int> silent = {9, 40};
  const Error error = timed_out(wait, silent);
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_EQ(error.origin_rank(), 8);
  EXPECT_STREQ(
      error.what(),
      "merge #7 of group 'world': rank 8 has waited 2.0 s and these are missing: rank 1 "
      "(world rank 9), rank 10 (rank 1 (world rank 9) did not answer when asked: stopped, "
      "or out of reach); look at what they are doing, or raise the timeout if a step takes "
      "that long");
}

}  // namespace
}  // namespace weft::comm
