// The files that users start from, and the generated reference.
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "weft/spec/describe.h"
#include "weft/spec/yaml.h"

namespace weft::spec {
namespace {

TEST(Examples, LoadAndRoundTrip) {
  for (const char* name : {"synthetic", "movielens", "criteo", "dlrm_kaggle", "dcnv2_mlperf"}) {
    SCOPED_TRACE(name);
    const Config config = load_config(std::string(WEFT_SOURCE_DIR "/examples/") + name + ".yaml");
    EXPECT_FALSE(config.tables.empty());
    const std::string text = to_yaml(config);
    EXPECT_EQ(to_yaml(parse_config(text, "again")), text);
  }
}

TEST(ParametersMarkdown, IsWhatIsCommitted) {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/parameters.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, parameters_markdown()) << "run: weft config --markdown > docs/parameters.md";
}

}  // namespace
}  // namespace weft::spec
