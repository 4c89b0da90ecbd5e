// Quartiles, shares and the JSON form.
#include "bench/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weft::bench {
namespace {

TEST(Spread, IsThatOfTheSortedValues) {
  const Spread s = spread({5, 1, 4, 2, 3});
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.q1, 2);
  EXPECT_EQ(s.median, 3);
  EXPECT_EQ(s.q3, 4);
  EXPECT_EQ(s.max, 5);
}

TEST(Spread, LiesBetweenTheTwoNearest) {
  const Spread s = spread({10, 20});
  EXPECT_EQ(s.q1, 12.5);
  EXPECT_EQ(s.median, 15);
  EXPECT_EQ(spread({7}).q3, 7);
}

TEST(Share, IsOneAtTheLimitWhicheverWayIsBetter) {
  Figure rate{"r", {}, "rows/s", Better::kHigher, {50, 50}, Limit{"gather", {100, 100}}};
  EXPECT_EQ(rate.share(), 0.5);
  Figure time{"t", {}, "ms", Better::kLower, {8}, Limit{"copy", {2}}};
  EXPECT_EQ(time.share(), 0.25);
}

TEST(Json, HasFiguresLimitsAndMachine) {
  const Figure figure{"lookup",        {{"dim", "16"}}, "rows/s",
                      Better::kHigher, {1, 2, 3},       Limit{"gather", {4}}};
  const auto json = nlohmann::json::parse(
      to_json("kernels", {figure, {"bare", {}, "ms", Better::kLower, {1}, {}}}));
  EXPECT_EQ(json.at("format"), 1);
  EXPECT_EQ(json.at("program"), "kernels");
  EXPECT_GT(json.at("machine").at("cores"), 0);
  EXPECT_FALSE(json.at("machine").at("cpu").get<std::string>().empty());
  const auto& first = json.at("results").at(0);
  EXPECT_EQ(first.at("parameters").at("dim"), "16");
  EXPECT_EQ(first.at("repetitions"), 3);
  EXPECT_EQ(first.at("median"), 2);
  EXPECT_EQ(first.at("limit").at("name"), "gather");
  EXPECT_EQ(first.at("share"), 0.5);
  EXPECT_FALSE(json.at("results").at(1).contains("limit"));
}

}  // namespace
}  // namespace weft::bench
