// The keys of the pipeline section: what is read, and what is refused by name.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

TEST(PipelineKeys, MistakesAreNamed) {
  const auto with = [](const std::string& line) {
    try {
      parse_config(changed("seed: 7", "seed: 7\npipeline: {" + line + "}"), "test.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(with("lookahead: 0"),
            "test.yaml:3:23: pipeline.lookahead: must be 1 to 1024 micro-batches, is 0");
  EXPECT_EQ(with("micro_batches: 0"),
            "test.yaml:3:27: pipeline.micro_batches: must be 1 to 1024, is 0");
  EXPECT_EQ(with("micro_batches: [1, 0, 2]"),
            "test.yaml:3:27: pipeline.micro_batches: must be 1 to 1024, is 0");
  EXPECT_EQ(with("micro_batches: []"),
            "test.yaml:3:27: pipeline.micro_batches: expected a number, or a list of sizes such as "
            "[1, 2, 2, 1], found a list of 0");
  EXPECT_EQ(with("schedule: fast"),
            "test.yaml:3:22: pipeline.schedule: 'fast' is none of auto, sync, prefetch, dbp, fwp, "
            "nested");
  EXPECT_EQ(with("schedule: sync, micro_batches: 7"), "no error") << "it has no effect";
}

TEST(PipelineKeys, ANumberOfMicroBatchesStandsForEqualSizes) {
  const auto sizes = [](const std::string& value) {
    const std::vector<std::string> overrides = {"pipeline.micro_batches=" + value};
    return parse_config(small_yaml(), "test.yaml", overrides).pipeline.micro_batches.sizes;
  };
  EXPECT_EQ(sizes("3"), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(sizes("[8]"), (std::vector<std::int64_t>{8})) << "one of some size is one";
  EXPECT_EQ(sizes("[1, 2, 1]"), (std::vector<std::int64_t>{1, 2, 1}));
}

}  // namespace
}  // namespace weft::spec
