// Keys of the section `pipeline`: what is refused, and that what a refusal names works.
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/spec/pipeline.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

std::string refusal_of_key(const std::string& section) {
  try {
    parse_config(changed("seed: 7", "pipeline: " + section), "test.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(ClusterParts, ValuesThatMeanNothingAreRefused) {
  EXPECT_EQ(refusal_of_key("{cluster_parts: 1}"),
            "test.yaml:2:27: pipeline.cluster_parts: a run of 1 part leaves every sample in its "
            "part; set 2 or more, or 0");
  EXPECT_EQ(refusal_of_key("{cluster_parts: -2}"),
            "test.yaml:2:27: pipeline.cluster_parts: must be 0 to 65536 parts, is -2");
  EXPECT_EQ(refusal_of_key("{cluster_parts: 2.5}"),
            "test.yaml:2:27: pipeline.cluster_parts: expected an integer, found '2.5'");
  EXPECT_EQ(refusal_of_key("{cluster_part: 2}"),
            "test.yaml:2:12: pipeline.cluster_part: unknown key; did you mean 'cluster_parts'?");
}

TEST(ClusterParts, IsTheJobsAlsoWhereAPlanChoosesTheRest) {
  Plan plan{.ranks = 1, .parts = 8, .tables = {}};
  plan.pipeline.schedule = PipelineSchedule::kNested;
  const Pipeline made = pipeline_of({.cluster_parts = 4}, plan);
  EXPECT_EQ(made.schedule, PipelineSchedule::kNested);
  EXPECT_EQ(made.cluster_parts, 4);
  EXPECT_EQ(plan_to_yaml(plan).find("cluster_parts"), std::string::npos);
}

TEST(ClusterParts, RunsThatRanksCutThroughAreRefusedWithWhatWorks) {
  const auto refusal = [](std::int64_t run, std::int64_t parts, std::int64_t ranks) {
    try {
      check_cluster_parts({.cluster_parts = run}, parts, ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(4, 8, 4),
            "pipeline.cluster_parts: rank 1 of 4 begins at part 2 of 8, inside the run of parts 0 "
            "to 3 whose samples are clustered together; set pipeline.cluster_parts=2, or "
            "numerics.parts=16 (that changes the order of sums)");
  EXPECT_EQ(refusal(4, 8, 3),
            "pipeline.cluster_parts: rank 1 of 3 begins at part 2 of 8, inside the run of parts 0 "
            "to 3 whose samples are clustered together; set pipeline.cluster_parts=0, since no run "
            "of 2 or more parts fits these ranks, or numerics.parts=12 (that changes the order of "
            "sums)");
  EXPECT_EQ(refusal(1000, 1000, 1000),
            "pipeline.cluster_parts: rank 1 of 1000 begins at part 1 of 1000, inside the run of "
            "parts 0 to 999 whose samples are clustered together; set pipeline.cluster_parts=0, "
            "since no run of 2 or more parts fits these ranks");
}

TEST(ClusterParts, WhatARefusalNamesIsTaken) {
  const auto number_after = [](const std::string& text, const std::string& key) {
    const std::size_t at = text.find(key);
    return at == std::string::npos ? std::int64_t{-1} : std::stoll(text.substr(at + key.size()));
  };
  int refused = 0;
  for (std::int64_t parts = 1; parts <= 24; ++parts) {
    for (std::int64_t ranks = 1; ranks <= parts; ++ranks) {
      for (std::int64_t run = 0; run <= 26; ++run) {
        bool cut = false;
        for (std::int64_t r = 1; r < ranks && run > 0; ++r) {
          cut = cut || rank_parts(parts, ranks, r).begin % run != 0;
        }
        try {
          check_cluster_parts({.cluster_parts = run}, parts, ranks);
          EXPECT_FALSE(cut) << run << " of " << parts << " on " << ranks;
        } catch (const Error& error) {
          EXPECT_TRUE(cut) << error.what();
          ++refused;
          const std::string text = error.what();
          const std::int64_t other_run = number_after(text, "set pipeline.cluster_parts=");
          const std::int64_t other_parts = number_after(text, "numerics.parts=");
          EXPECT_NE(other_run, 1) << text;
          EXPECT_NO_THROW(check_cluster_parts({.cluster_parts = other_run}, parts, ranks)) << text;
          EXPECT_NO_THROW(check_cluster_parts({.cluster_parts = run}, other_parts, ranks)) << text;
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace weft::spec
