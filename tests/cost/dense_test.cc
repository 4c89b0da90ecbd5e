// Work of the dense model against the models that are built.
#include "weft/cost/dense.h"

#include <string>
#include <vector>

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

struct Built {
  double parameters = 0;
  double bucket = 0;
};

Built build(const spec::Config& config) {
  nn::ModelShape shape;
  shape.dense = static_cast<std::int64_t>(config.dense_features.size());
  for (const spec::SparseFeature& feature : config.sparse_features) {
    const auto table = static_cast<std::size_t>(spec::table_index(config, feature));
    shape.features.push_back({.name = feature.name,
                              .dim = config.tables[table].embedding_dim,
                              .sequence = feature.pooling == spec::Pooling::kNone,
                              .target = feature.target.empty() ? -1 : 0});
  }
  Built built;
  const auto model = nn::Model::create(config.model, shape);  // keeps the layout
  for (const auto& parameter : model->layout().parameters()) {
    built.parameters += static_cast<double>(parameter.size());
  }
  built.bucket = static_cast<double>(model->layout().size());
  return built;
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
      const DenseWork work = dense_work(config);
      const Built built = build(config);
      EXPECT_EQ(work.parameters, built.parameters) << sequence;
      EXPECT_EQ(work.bucket, built.bucket) << sequence;
    }
  }
}

TEST(DenseWork, FlopsByHand) {
  const spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const DenseWork work = dense_work(config);
  // 3 -> 16 -> 8; six dots of fields of 8; 8 + 6 -> 32 -> 1: layers are rounded up to 16.
  const double first = 2 * 16 * 16;
  const double layers = first + 2 * (16 * 16 + 16 * 32 + 32 * 16);
  EXPECT_EQ(work.forward_flops, layers);
  EXPECT_EQ(work.dot_forward_flops, 2 * 6 * 8);
  // The dense values take no gradient. Dots of four fields with eight.
  EXPECT_EQ(work.backward_flops, 2 * layers - first);
  EXPECT_EQ(work.dot_backward_flops, 4 * 4 * 8 * 16);
}

TEST(DenseWork, BytesByHand) {
  spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const double in = 3 + 16 + 14 + 32;
  const double out = 16 + 8 + 32 + 1;
  const double active = 16 + 8 + 32;
  const double vectors = 3 * 8;
  const double fields = 4 * 8;
  const DenseWork work = dense_work(config);
  EXPECT_EQ(work.layers.held, 4 * (in + out));
  EXPECT_EQ(work.layers.forward, 4 * (in + out) + 4 * (2 * fields + 2 * 6));
  EXPECT_EQ(work.layers.backward, 4 * (2 * in + 3 * out + 3 * active) + 4 * fields);
  EXPECT_EQ(work.kept.held, 8 * vectors + 4 * (in + out));
  EXPECT_EQ(work.kept.forward, 4 * vectors);
  EXPECT_EQ(work.kept.backward, 8 * vectors + 12 * (in + out));
  EXPECT_EQ(work.checked_bytes, 4 * vectors);
  config.model.compute = spec::Compute::kBf16;  // vectors stay fp32
  EXPECT_EQ(dense_work(config).layers.held, 2 * (in + out));
  EXPECT_EQ(dense_work(config).kept.held, 8 * vectors + 2 * (in + out));
}

TEST(DenseWork, CrossLayersMoveTheirWidth) {
  const auto bytes = [](int layers) {
    return dense_work(config_of("model: {type: dcnv2, cross_rank: 4, top_mlp: [8], cross_layers: " +
                                std::to_string(layers) + "}"))
        .layers;
  };
  const double width = 3 + 3 * 8;
  const double linear = width + 4;  // into and out of both products
  EXPECT_EQ(bytes(3).forward - bytes(2).forward, 2 * 4 * linear + 16 * width);
  EXPECT_EQ(bytes(3).backward - bytes(2).backward, 5 * 4 * linear + 32 * width);
}

TEST(DenseWork, AttentionRunsPerElement) {
  const spec::Config config = config_of(
      "model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32], attention_mlp: [4]}", true);
  const double element = 2 * (32 * 16 + 16 * 16) + 2 * 8;
  EXPECT_EQ(dense_work(config, 11).forward_flops - dense_work(config, 1).forward_flops,
            10 * element);
}

TEST(DenseWork, SequencesHaveTheirOwnLengths) {
  const spec::Config config =
      config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}", true);
  const auto bytes = [&](double pooled, double sequence) {
    return dense_work(config, std::vector<double>{pooled, 1, sequence}).kept.forward;
  };
  EXPECT_EQ(bytes(1, 11) - bytes(1, 1), 10 * 8 * 4);
  EXPECT_EQ(bytes(11, 1), bytes(1, 1));
}

TEST(DenseBatches, AreCutIntoSlices) {
  EXPECT_EQ(dense_batch(4096, 8, 4, 2048).slice, 512);
  EXPECT_EQ(dense_batch(8192, 8, 4, 4096).slice, 512);
  EXPECT_EQ(dense_batch(4104, 8, 4, 2052).slice, 513.0 / 2);
  EXPECT_EQ(dense_batch(5, 8, 4, 3).slice, 1);
}

TEST(DenseTimes, AtTheRateOfThePrecision) {
  const topology::Cluster cluster = topology::small_cluster({{1, 1}});  // without a cache
  spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  const DenseWork work{.forward_flops = 1e6,
                       .backward_flops = 2e6,
                       .weight_flops = 8e5,
                       .layers = {.held = 10, .forward = 6e3, .backward = 1e4},
                       .kept = {.held = 10, .forward = 4e3, .backward = 1.5e4},
                       .weight_bytes = 3e3,
                       .checked_bytes = 5e3,
                       .parameters = 1e6};
  const DenseBatch batch{.samples = 100, .parts = 2, .slice = 50};
  const double packed = 16e6 / 1e11;
  const double summed = 2 * 12e6 / 2e11;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 1e-4 + 1e6 / 1e11 + packed);
  EXPECT_DOUBLE_EQ(backward_s(cluster, config, work, batch), 2e-4 + 3e6 / 1e11 + summed);
  EXPECT_DOUBLE_EQ(weight_gradients_s(cluster, config, work, batch), 0.8e-4 + 3e5 / 1e11 + summed);
  config.model.compute = spec::Compute::kBf16;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 0.25e-4 + 1e6 / 1e11 + packed);
  config.dense_optimizer.type = spec::DenseOptimizerKind::kSgd;
  EXPECT_DOUBLE_EQ(dense_update_s(cluster, config, work), 12e6 / 1e11);
  config.dense_optimizer.type = spec::DenseOptimizerKind::kAdam;
  EXPECT_DOUBLE_EQ(dense_update_s(cluster, config, work), 28e6 / 1e11);
}

TEST(DenseTimes, DotsHaveTheirOwnRate) {
  topology::Cluster cluster = topology::small_cluster({{1, 1}});
  const spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  DenseWork work;
  work.dot_forward_flops = 1e6;
  work.dot_backward_flops = 3e6;
  const DenseBatch batch{.samples = 100, .parts = 1, .slice = 100};
  const double products = cluster.compute.gemm_fp32.value;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 1e8 / products);
  cluster.compute.dots.value = products / 5;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 5e8 / products);
  EXPECT_DOUBLE_EQ(backward_s(cluster, config, work, batch), 15e8 / products);
}

TEST(DenseTimes, WhatACacheHoldsIsNear) {
  topology::Cluster cluster = topology::small_cluster({{1, 1}});
  const spec::Config config = config_of("model: {type: dlrm, bottom_mlp: [16, 8], top_mlp: [32]}");
  DenseWork work;
  work.layers = {.held = 100, .forward = 1e3, .backward = 0};
  work.kept = {.held = 10, .forward = 1e3, .backward = 0};
  const DenseBatch batch{.samples = 100, .parts = 1, .slice = 10};
  const double far = 1e5 / 1e11;
  const double near = 1e5 / 2e11;
  cluster.compute.cache.value = 1000;  // a slice of layers, all that is kept
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 2 * near);
  cluster.compute.cache.value = 500;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), far + near);
  cluster.threads = 2;  // a slice has half of the cache, what is kept all of it
  cluster.compute.cache.value = 1000;
  EXPECT_DOUBLE_EQ(forward_s(cluster, config, work, batch), 0.5 * (far + near) + near);
}

}  // namespace
}  // namespace weft::cost
