// The files that users start from, and the generated reference.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/spec/changed.h"
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

TEST(Examples, PointNowhereOutsideTheRepository) {
  for (const char* name : {"synthetic", "movielens", "criteo", "dlrm_kaggle", "dcnv2_mlperf"}) {
    SCOPED_TRACE(name);
    const Config config = load_config(std::string(WEFT_SOURCE_DIR "/examples/") + name + ".yaml");
    for (const std::vector<std::string>& paths : {config.data.path, config.data.eval_path}) {
      for (const std::string& path : paths) {
        EXPECT_EQ(path.find(".."), path.npos) << path;
        EXPECT_NE(path.substr(0, 1), "/") << path;
      }
    }
  }
}

TEST(ChangedYaml, ReadsAsTheSame) {
  for (const char* name : {"synthetic", "movielens", "criteo", "dlrm_kaggle", "dcnv2_mlperf"}) {
    SCOPED_TRACE(name);
    const Config config = load_config(std::string(WEFT_SOURCE_DIR "/examples/") + name + ".yaml");
    const std::string text = to_changed_yaml(config);
    EXPECT_EQ(to_yaml(parse_config(text, "again")), to_yaml(config)) << text;
    EXPECT_LT(text.size(), to_yaml(config).size() / 2);
  }
}

TEST(ChangedYaml, HasWhatDiffersAndItsDefault) {
  const Config config = parse_config(
      "version: 1\nbatch_size: 4096\ndata: {format: criteo, path: a.txt}\n"
      "dense_features: [{name: I1, transform: log}]\n"
      "sparse_features: [{name: C1}, {name: C2, salt: x, table: C1}]\n"
      "tables: [{name: C1, num_embeddings: 7, embedding_dim: 8}]\n"
      "sparse_optimizer: {learning_rate: 0.5}\n"
      "model: {type: dlrm, bottom_mlp: [8]}\n",
      "test");
  const std::string text = to_changed_yaml(config);
  EXPECT_EQ(text.find("seed"), text.npos) << text;
  EXPECT_EQ(text.find("tasks"), text.npos) << text;
  EXPECT_EQ(text.find("optimizer:", text.find("\ntables:")), text.npos)
      << "a table takes it over: " << text;
  EXPECT_EQ(text.find("required"), text.npos) << text;
  for (const char* says :
       {"version: 1\nbatch_size: 4096  # default: 2048\n",
        "dense_features:\n  - name: I1\n    transform: log  # default: ",
        "  - name: C1\n  - name: C2\n    table: C1", "    salt: x",
        "  - name: C1\n    num_embeddings: 7", "sparse_optimizer:\n  learning_rate: 0.5"}) {
    EXPECT_NE(text.find(says), text.npos) << says << "\n" << text;
  }
}

TEST(ParametersMarkdown, IsWhatIsCommitted) {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/parameters.md");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, parameters_markdown()) << "run: weft config --markdown > docs/parameters.md";
}

}  // namespace
}  // namespace weft::spec
