// Any bytes as statistics: a workload whose numbers a planner can use, or Error(kConfig).
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/error.h"
#include "weft/planner/workload.h"

namespace {

weft::spec::Config one_feature() {
  weft::spec::Config config;
  config.data.format = weft::spec::DataFormat::kCriteo;
  config.tables.emplace_back();
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 100;
  config.sparse_features.emplace_back();
  config.sparse_features[0].name = config.sparse_features[0].column = "c";
  config.sparse_features[0].table = "t";
  return config;
}

void require(bool condition) {
  if (!condition) {
    __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto workload = weft::planner::make_workload(one_feature(), text, "fuzz");
    const weft::planner::FeatureUse& use = workload.features.at(0);
    require(use.length >= 0.0 && std::isfinite(use.length));
    require(use.present >= 0.0 && use.present <= 1.0);
    double shares = 0.0;
    double rows = 0.0;
    for (const weft::planner::AccessSegment& segment : use.segments) {
      require(segment.rows > 0.0 && segment.share >= 0.0);
      shares += segment.share;
      rows += segment.rows;
    }
    require(std::abs(shares - 1.0) < 1e-6 && rows <= 100.0 * (1.0 + 1e-9));
  } catch (const weft::Error& error) {
    require(error.code() == weft::ErrorCode::kConfig);
  }
  return 0;
}
