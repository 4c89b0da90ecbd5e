// Lookups, row gradients and optimizers against PyTorch (tools/golden/embedding_golden.py).

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/embedding/sparse_job.h"

namespace weft::embedding::test {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file =
      json::parse(std::ifstream(std::string(WEFT_SOURCE_DIR) + "/tests/golden/embedding.json"));
  return file;
}

// fp32 against fp32 in another order, or fp64: a few roundings of numbers near 1 per step.
void expect_near(const std::vector<float>& got, const json& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto value = expected[i].get<double>();
    ASSERT_NEAR(static_cast<double>(got[i]), value, 2e-6 + 1e-5 * std::abs(value))
        << what << ", element " << i;
  }
}

StepData read_step(const json& step, bool weighted) {
  constexpr std::int64_t kParts = 3;
  StepData data{.dim = golden()["dim"].get<std::int64_t>(), .features = std::vector<Feature>(1)};
  Feature& feature = data.features[0];
  feature.ids = step["ids"].get<std::vector<std::int64_t>>();
  feature.offsets = step["offsets"].get<std::vector<std::int64_t>>();
  if (weighted) {
    feature.weights = step["weights"].get<std::vector<float>>();
  }
  feature.grads = step["upstream"].get<std::vector<float>>();
  const auto bags = static_cast<std::int64_t>(feature.offsets.size()) - 1;
  for (std::int64_t part = 0; part < kParts; ++part) {
    for (std::int64_t bag = part_samples(bags, kParts, part).begin;
         bag < part_samples(bags, kParts, part).end; ++bag) {
      feature.parts.push_back(static_cast<std::int32_t>(part));
    }
  }
  return data;
}

std::unique_ptr<TableShard> make_shard(Device& device, const spec::SparseOptimizer& optimizer) {
  spec::Table table =
      make_table(golden()["rows"].get<std::int64_t>(), golden()["dim"].get<std::int64_t>());
  table.optimizer = optimizer;
  auto shard = whole(device, table, 3);
  const auto initial = golden()["initial"].get<std::vector<float>>();
  shard->write_state(0, 0, table.num_embeddings, 0, table.embedding_dim, initial.data());
  return shard;
}

spec::SparseOptimizer read_optimizer(const json& one) {
  const std::map<std::string, SparseOptimizerKind> kinds = {
      {"sgd", SparseOptimizerKind::kSgd},
      {"adagrad", SparseOptimizerKind::kAdagrad},
      {"row_wise_adagrad", SparseOptimizerKind::kRowWiseAdagrad},
      {"adam", SparseOptimizerKind::kAdam},
      {"row_wise_adam", SparseOptimizerKind::kRowWiseAdam}};
  const std::map<std::string, spec::WeightDecayMode> modes = {
      {"none", spec::WeightDecayMode::kNone},
      {"l2", spec::WeightDecayMode::kL2},
      {"decoupled", spec::WeightDecayMode::kDecoupled}};
  spec::SparseOptimizer optimizer;
  optimizer.type = kinds.at(one["optimizer"].get<std::string>());
  optimizer.weight_decay_mode = modes.at(one["decay"].get<std::string>());
  optimizer.max_norm = one["max_norm"].get<double>();
  optimizer.learning_rate = golden()["learning_rate"].get<double>();
  optimizer.eps = golden()["eps"].get<double>();
  optimizer.beta1 = golden()["beta1"].get<double>();
  optimizer.beta2 = golden()["beta2"].get<double>();
  optimizer.weight_decay = golden()["weight_decay"].get<double>();
  optimizer.initial_accumulator = golden()["initial_accumulator"].get<double>();
  return optimizer;
}

TEST(Golden, LookupsAndRowGradients) {
  const std::unique_ptr<Device> device = make_device({});
  const auto dim = golden()["dim"].get<std::int64_t>();
  for (const json& lookup : golden()["lookups"]) {
    const auto shard = make_shard(*device, {});
    const bool weighted = lookup["weighted"].get<bool>();
    const StepData step = read_step(golden()["steps"]["lazy"][0], weighted);
    const Bags bags = step.features[0].bags();
    std::vector<float> out(static_cast<std::size_t>(bags.bags * dim));
    const kernels::BagLookup work = shard->lookup({bags, true, out.data(), dim});
    Context ctx;
    kernels::embedding_bag(ctx, std::span(&work, 1));
    expect_near(out, lookup["output"], "lookup");
    RowGradients gradients(*device, *shard);
    gradients.coalesce(ctx, step.blocks());
    gradients.accumulate(ctx);
    std::vector<float> gradient(lookup["gradient"].size());
    for (std::int64_t u = 0; u < gradients.num_unique(); ++u) {
      std::memcpy(gradient.data() + gradients.unique_rows()[u] * dim,
                  gradients.row_gradients() + u * dim, static_cast<std::size_t>(dim) * 4);
    }
    expect_near(gradient, lookup["gradient"], "gradient");
  }
}

TEST(Golden, Optimizers) {
  const std::unique_ptr<Device> device = make_device({});
  for (const json& one : golden()["cases"]) {
    const auto shard = make_shard(*device, read_optimizer(one));
    RowGradients gradients(*device, *shard);
    Context ctx;
    std::int64_t step = 0;
    for (const json& data : golden()["steps"][one["steps"].get<std::string>()]) {
      const StepData batch = read_step(data, one["weighted"].get<bool>());
      gradients.coalesce(ctx, batch.blocks());
      shard->update(ctx, gradients, {.learning_rate_factor = 1.0, .step = ++step, .seed = kSeed});
    }
    std::vector<float> weights(one["result"].size());
    shard->read_state(0, 0, golden()["rows"].get<std::int64_t>(), weights.data());
    expect_near(weights, one["result"],
                one["optimizer"].get<std::string>() + " " + one["decay"].get<std::string>() +
                    " by " + one["source"].get<std::string>());
  }
}

}  // namespace
}  // namespace weft::embedding::test
