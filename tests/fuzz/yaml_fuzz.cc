// Any bytes as a configuration, as a plan and as an override: a value that can be written and read
// again, or Error(kConfig), never a crash.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/error.h"
#include "weft/spec/plan.h"
#include "weft/spec/yaml.h"

namespace {

constexpr const char* kJob =
    "version: 1\n"
    "data: {synthetic: {columns: [{name: a}]}}\n"
    "sparse_features: [{name: a}]\n"
    "tables: [{name: a, num_embeddings: 4, embedding_dim: 4}]\n"
    "model: {type: dcnv2, top_mlp: [4]}\n";

template <typename Body>
void survive(const Body& body) {
  try {
    body();
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kConfig && error.code() != weft::ErrorCode::kUsage) {
      __builtin_trap();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace spec = weft::spec;
  const std::string text(reinterpret_cast<const char*>(data), size);
  survive([&] {
    const std::string canonical = spec::to_yaml(spec::parse_config(text, "fuzz"));
    if (spec::to_yaml(spec::parse_config(canonical, "again")) != canonical) {
      __builtin_trap();
    }
  });
  survive([&] {
    const spec::Plan plan = spec::plan_from_yaml(text, "fuzz");
    if (spec::plan_from_yaml(spec::plan_to_yaml(plan), "again") != plan) {
      __builtin_trap();
    }
  });
  survive([&] {
    const std::array<std::string, 1> overrides = {text};
    spec::parse_config(kJob, "job", overrides);
  });
  return 0;
}
