// Damaged texts: whatever the bytes, the parser returns a configuration or throws weft::Error.
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/spec/small_config.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

/// Words that mean something to YAML or to the expansion.
constexpr std::array<std::string_view, 40> kWords = {"{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     ":",
                                                     ": ",
                                                     "- ",
                                                     "#",
                                                     "&a ",
                                                     "*a",
                                                     "!",
                                                     "!!",
                                                     "|\n",
                                                     ">\n",
                                                     "---\n",
                                                     "...\n",
                                                     "%YAML 1.1\n",
                                                     "'",
                                                     "\"",
                                                     "\\",
                                                     "\n",
                                                     "\t",
                                                     "  ",
                                                     "? ",
                                                     ",",
                                                     "{1..9}",
                                                     "{9..1}",
                                                     "{0..99999}",
                                                     "{}",
                                                     "~",
                                                     "null",
                                                     ".nan",
                                                     "-1",
                                                     "1e309",
                                                     "99999999999999999999",
                                                     "\x01",
                                                     "\xff",
                                                     "\xef\xbb\xbf",
                                                     "<<: *a\n",
                                                     "version: 1\n"};

class Random {
 public:
  explicit Random(std::uint64_t key) : key_(key) {}

  std::size_t below(std::size_t n) {
    const auto words = philox(key_, counter_++, 0);
    return n == 0 ? 0 : words[0] % n;
  }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

std::string mutate(std::string text, Random& random) {
  const std::size_t changes = 1 + random.below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = random.below(text.size() + 1);
    const std::size_t length = random.below(12);
    switch (random.below(5)) {
      case 0:
        text.insert(at, kWords[random.below(kWords.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random.below(text.size() + 1), length * 8));
        break;
      case 3:
        text.insert(at, 1, static_cast<char>(random.below(256)));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

template <typename Parse>
void survive(const std::vector<std::string>& seeds, int rounds, const Parse& parse) {
  Random random(random_key(1, RandomPurpose::kTest, "yaml"));
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    const std::string text = mutate(seeds[random.below(seeds.size())], random);
    try {
      parse(text);
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kConfig || error.code() == ErrorCode::kUsage)
          << error.what();
      ++refused;
    }  // any other exception fails the test
  }
  EXPECT_GT(refused, rounds / 4);
  EXPECT_LT(refused, rounds);
}

TEST(YamlMutation, ConfigurationOrError) {
  std::ifstream file(WEFT_SOURCE_DIR "/examples/movielens.yaml");
  const std::string example{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  survive({small_yaml(), example}, 3000, [](const std::string& text) {
    const Config config = parse_config(text, "fuzz");
    const std::string canonical = to_yaml(config);
    EXPECT_EQ(to_yaml(parse_config(canonical, "again")), canonical);
  });
}

TEST(YamlMutation, OverrideOrError) {
  survive({"train.steps=10", "tables.C1.num_embeddings=100", "model.top_mlp=[4, 5]",
           "tables=[{name: 'C{1..3}', num_embeddings: [1, 2, 3], embedding_dim: 8}]"},
          1500, [](const std::string& text) {
            const std::array<std::string, 1> overrides = {text};
            parse_config(small_yaml(), "fuzz", overrides);
          });
}

TEST(YamlMutation, PlanOrError) {
  const Plan plan{.version = 1,
                  .ranks = 2,
                  .parts = 8,
                  .tables = {{.table = "a",
                              .sharding = Sharding::kTableWise,
                              .hot = {{0, 2}, {3, 4}},
                              .shards = {{.rank = 1, .rows = {0, 5}, .cols = {0, 16}}}}}};
  survive({plan_to_yaml(plan)}, 1500,
          [](const std::string& text) { plan_from_yaml(text, "fuzz"); });
}

}  // namespace
}  // namespace weft::spec
