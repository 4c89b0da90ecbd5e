// Candidate-up jobs for tests of the planner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/yaml.h"
#include "weft/topology/cluster.h"

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

/// Ranks on links of `network` bytes per second between hosts.
inline topology::Cluster made_up_cluster(std::vector<topology::HostGroup> hosts, double network) {
  topology::Cluster cluster;
  cluster.name = "made up";
  cluster.hosts = std::move(hosts);
  cluster.memory.ddr.value = 1e9;
  cluster.compute.gemm_fp32.value = 1e10;
  cluster.compute.copy.value = 1e10;
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.links.self.rank.value = 1e10;
  cluster.links.host.rank.value = 1e9;
  cluster.links.network.rank.value = network;
  cluster.links.network.latency.value = 1e-5;
  return cluster;
}

}  // namespace weft::planner::testing
