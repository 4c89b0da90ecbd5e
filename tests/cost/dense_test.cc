// Work of the dense model against the models that are built.
#include "weft/cost/dense.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/nn/model.h"
#include "weft/spec/yaml.h"

namespace weft::cost {
namespace {

spec::Config config_of(const std::string& model, bool sequence = false) {
  std::string text = R"(version: 1
data: {format: synthetic, synthetic: {samples: 10, dense_columns: 3, columns: [
  {name: a, cardinality: 9}, {name: b, cardinality: 9}, {name: c, cardinality: 9}]}}
dense_features: [{name: "d{1..3}"}]
tables:
  - {name: a, num_embeddings: 9, embedding_dim: 8}
  - {name: b, num_embeddings: 9, embedding_dim: 8}
  - {name: c, num_embeddings: 9, embedding_dim: 8}
)";
  text += "sparse_features: [{name: a}, {name: b}, {name: c";
  text += sequence ? ", pooling: none, target: a}]\n" : "}]\n";
  return spec::parse_config(text + model, "job.yaml");
}

double built_parameters(const spec::Config& config) {
  nn::ModelShape shape;
  shape.dense = static_cast<std::int64_t>(config.dense_features.size());
  for (const spec::SparseFeature& feature : config.sparse_features) {
    const auto table = static_cast<std::size_t>(spec::table_index(config, feature));
    shape.features.push_back({.name = feature.name,
                              .dim = config.tables[table].embedding_dim,
                              .sequence = feature.pooling == spec::Pooling::kNone,
                              .target = feature.target.empty() ? -1 : 0});
  }
  double parameters = 0;
  const auto model = nn::Model::create(config.model, shape);  // keeps the layout
  for (const auto& parameter : model->layout().parameters()) {
    parameters += static_cast<double>(parameter.size());
  }
  return parameters;
}

TEST(DenseWork, HasTheParametersOfTheModel) {
  for (const bool sequence : {false, true}) {
    for (const char* model : {
             "model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32, 16]}",
             "model: {type: dlrm, bottom_mlp: [16, 12], top_mlp: [32], projection_dim: 12}",
             "model: {type: dcnv2, bottom_mlp: [16, 6], top_mlp: [32], cross_layers: 2, "
             "cross_rank: 5}",
             "model: {type: dcnv2, top_mlp: []}",
             "model: {type: deepfm, bottom_mlp: [8], top_mlp: [32]}",
             "model: {type: deepfm, top_mlp: [32]}",
         }) {
      SCOPED_TRACE(model);
      const spec::Config config = config_of(model, sequence);
      EXPECT_EQ(dense_work(config).parameters, built_parameters(config)) << sequence;
    }
  }
}

TEST(DenseWork, FlopsByHand) {
  const spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const DenseWork work = dense_work(config);
  // 3 -> 16 -> 8; dots of four fields of 8, padded to 16 of 16; 8 + 6 -> 32 -> 1.
  const double forward = 2 * (3 * 16 + 16 * 8) + 2 * 16 * 16 * 16 + 2 * (14 * 32 + 32);
  EXPECT_EQ(work.forward_flops, forward);
  EXPECT_EQ(work.backward_flops, 2 * forward - 2 * 3 * 16);  // the dense values take no gradient
}

TEST(DenseWork, BytesByHand) {
  spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const double in = 3 + 16 + 14 + 32;
  const double out = 16 + 8 + 32 + 1;
  const double active = 16 + 8 + 32;
  const double vectors = 3 * 8;
  EXPECT_EQ(dense_work(config).forward_bytes, 4 * (in + out) + 4 * vectors);
  EXPECT_EQ(dense_work(config).backward_bytes, 4 * (4 * in + 5 * out + 4 * active) + 8 * vectors);
  config.model.compute = spec::Compute::kBf16;  // vectors stay fp32
  EXPECT_EQ(dense_work(config).forward_bytes, 2 * (in + out) + 4 * vectors);
}

TEST(DenseWork, CrossLayersMoveTheirWidth) {
  const auto bytes = [](int layers) {
    return dense_work(config_of("model: {type: dcnv2, cross_rank: 4, top_mlp: [8], cross_layers: " +
                                std::to_string(layers) + "}"));
  };
  const double width = 3 + 3 * 8;
  const double linear = width + 4;  // into and out of both products
  EXPECT_EQ(bytes(3).forward_bytes - bytes(2).forward_bytes, 2 * 4 * linear + 16 * width);
  EXPECT_EQ(bytes(3).backward_bytes - bytes(2).backward_bytes, 9 * 4 * linear + 32 * width);
}

TEST(DenseWork, AttentionRunsPerElement) {
  const spec::Config config = config_of(
      "model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32], attention_mlp: [4]}", true);
  const double element = 2 * (4 * 8 * 4 + 4) + 2 * 8;
  EXPECT_EQ(dense_work(config, 11).forward_flops - dense_work(config, 1).forward_flops,
            10 * element);
}

TEST(DenseTimes, AtTheRateOfThePrecision) {
  const topology::Cluster cluster = topology::small_cluster({{1, 1}});
  spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const DenseWork work{.forward_flops = 1e6,
                       .backward_flops = 2e6,
                       .forward_bytes = 1e4,
                       .backward_bytes = 3e4,
                       .parameters = 1e6};
  const double packed = 16e6 / 1e11;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, 100), 1e-4 + 1e6 / 1e11 + packed);
  EXPECT_DOUBLE_EQ(backward_s(cluster, config, work, 100), 2e-4 + 3e6 / 1e11);
  config.model.compute = spec::Compute::kBf16;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, 100), 0.25e-4 + 1e6 / 1e11 + packed);
  config.dense_optimizer.type = spec::DenseOptimizerKind::kSgd;
  EXPECT_DOUBLE_EQ(dense_update_s(cluster, config, work), 12e6 / 1e11);
  config.dense_optimizer.type = spec::DenseOptimizerKind::kAdam;
  EXPECT_DOUBLE_EQ(dense_update_s(cluster, config, work), 28e6 / 1e11);
}

}  // namespace
}  // namespace weft::cost
