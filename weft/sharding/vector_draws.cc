#include "weft/sharding/vector_draws.h"

#include <string>

#include "weft/base/at.h"
#include "weft/base/philox.h"

namespace weft::sharding {
namespace {

std::vector<std::int64_t> rows_of(const std::vector<Range>& ranges) {
  std::vector<std::int64_t> rows;
  for (const Range& range : ranges) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace

DrawKeys::DrawKeys(const spec::Config& config, const Routing& routing)
    : is_on(config.codecs.rounding == CodecRounding::kStochastic) {
  if (!is_on) {
    return;
  }
  const auto key = [&](const std::string& what, const std::string& name) {
    return random_key(config.seed, RandomPurpose::kVectorCodec, what + "/" + name);
  };
  for (const spec::SparseFeature& feature : config.sparse_features) {
    vectors.push_back(key("vectors", feature.name));
    gradients.push_back(key("gradients", feature.name));
  }
  for (const spec::Table& table : config.tables) {
    rows.push_back(key("rows", table.name));
    sums.push_back(key("row gradients", table.name));
  }
  hot_rows.resize(config.tables.size());
  for (const FeatureRoute& route : routing.features) {
    hot_rows[at(route.table)] = rows_of(route.hot);
  }
  for (const RowFetch& fetch : routing.fetches) {
    hot_rows[at(fetch.table)] = rows_of(fetch.hot);
  }
}

}  // namespace weft::sharding
