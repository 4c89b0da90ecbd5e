// Candidate-up jobs for tests of the planner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/yaml.h"

namespace weft::planner::testing {

struct Use {
  std::int64_t rows = 1000;
  std::int64_t dim = 32;
  std::int64_t length = 1;  ///< ids of every bag
};

/// A valid job on tables t0, t1, ..., each with a pooled feature of its name on generated ids.
inline spec::Config make_config(const std::vector<Use>& tables, std::int64_t batch = 4096) {
  spec::Config config;
  config.batch_size = batch;
  config.data.synthetic.dense_columns = 1;
  config.dense_features.emplace_back();
  config.dense_features[0].name = config.dense_features[0].column = "d1";
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::string name = "t" + std::to_string(t);
    spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
    column.name = name;
    column.cardinality = tables[t].rows;
    column.min_length = column.max_length = tables[t].length;
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = feature.column = feature.table = name;
    feature.mapping = spec::IdMapping::kIdentity;
    spec::Table& table = config.tables.emplace_back();
    table.name = name;
    table.num_embeddings = tables[t].rows;
    table.embedding_dim = tables[t].dim;
  }
  config.model = {.type = spec::ModelKind::kDcnv2, .bottom_mlp = {32}, .top_mlp = {32}};
  spec::validate(config);
  return config;
}

}  // namespace weft::planner::testing
