#include "bench/step_variant.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/synthetic.h"
#include "weft/data/weft_format.h"
#include "weft/layout/tables.h"
#include "weft/planner/place.h"
#include "weft/spec/yaml.h"

namespace weft::bench {

namespace fs = std::filesystem;

Variant make_variant(const VariantOptions& options, std::int64_t ranks) {
  const std::size_t colon = options.text.find(':');
  if (colon == std::string::npos) {
    fail(ErrorCode::kUsage, "--variant {}: must be LABEL:PATH=VALUE,.. or LABEL:", options.text);
  }
  std::vector<std::string> overrides = options.overrides;
  std::istringstream list(options.text.substr(colon + 1));
  for (std::string item; std::getline(list, item, ',');) {
    overrides.push_back(item);
  }
  Variant variant{.label = options.text.substr(0, colon),
                  .config = spec::load_config(options.config, overrides),
                  .plan = {}};
  if (variant.config.data.format != spec::DataFormat::kSynthetic) {
    fail(ErrorCode::kUsage, "{}: benchmarks generate their data; data.format must be synthetic",
         options.config);
  }
  variant.plan = planner::make_plan(variant.config, ranks);
  return variant;
}

std::string generate_data(const std::string& folder, const Variant& variant) {
  spec::Config data_only;
  data_only.data = variant.config.data;
  data_only.seed = variant.config.seed;
  const std::string path =
      fmt::format("{}/{:016x}.weft", folder, hash_string(spec::to_yaml(data_only)));
  if (!fs::exists(path)) {
    fs::create_directories(folder);
    std::fprintf(stderr, "step_bench: generating %s\n", path.c_str());
    const auto source =
        data::open_synthetic(variant.config.data, variant.config.seed, data::Split::kTrain);
    data::write_weft(*source, path);
  }
  return path;
}

std::int64_t table_bytes(const spec::Config& config) {
  std::int64_t bytes = 0;
  for (const spec::Table& table : config.tables) {
    bytes += layout::row_geometry(table, table.num_embeddings, table.embedding_dim).total_bytes;
  }
  return bytes;
}

std::int64_t available_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") {
      return kib * 1024;
    }
    in.ignore(64, '\n');
  }
  return 0;
}

}  // namespace weft::bench
