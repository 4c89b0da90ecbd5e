// Twenty steps of training against PyTorch (tools/golden/dense_golden.py, in float64): the loss of
// every step, then weights and tables. Tables and their updates are plain loops here; the model,
// the loss and the dense optimizer are Weft's.
//
// Tolerances: logits and losses within 2e-6 relative (a few roundings of fp32), the weights within
// 2e-5 absolute: twenty updates of fp32, each within its learning rate times the relative error of
// its gradient (about 1e-5 where terms cancel).
#include <cmath>
#include <fstream>
#include <map>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/nn/part_data.h"
#include "weft/kernels/loss.h"
#include "weft/nn/model.h"
#include "weft/optim/dense.h"

namespace weft::nn {
namespace {

using nlohmann::json;

constexpr double kLossTolerance = 2e-6;
constexpr double kWeightTolerance = 2e-5;

struct Table {
  std::int64_t dim = 0;
  std::vector<float> rows;
  std::vector<float> sums;
  std::vector<float> vectors;  // pooled [b, dim]
  std::vector<float> dvectors;
};

void pool(Table& table, const json& bags) {
  const auto dim = static_cast<std::size_t>(table.dim);
  table.vectors.assign(bags.size() * dim, 0.0F);
  table.dvectors.assign(bags.size() * dim, 0.0F);
  for (std::size_t s = 0; s < bags.size(); ++s) {
    for (const std::size_t row : bags[s]) {
      for (std::size_t d = 0; d < dim; ++d) {
        table.vectors[s * dim + d] += table.rows[row * dim + d];
      }
    }
  }
}

void update(Table& table, const json& bags, const json& options) {
  const auto dim = static_cast<std::size_t>(table.dim);
  std::map<std::size_t, std::vector<float>> gradients;
  for (std::size_t s = 0; s < bags.size(); ++s) {
    for (const std::size_t row : bags[s]) {
      auto& g = gradients.try_emplace(row, dim, 0.0F).first->second;
      for (std::size_t d = 0; d < dim; ++d) {
        g[d] += table.dvectors[s * dim + d];
      }
    }
  }
  const float lr = options["learning_rate"];
  for (const auto& [row, g] : gradients) {
    float rate = lr;
    if (options["type"] == "row_wise_adagrad") {
      float squares = 0.0F;
      for (const float value : g) {
        squares += value * value;
      }
      table.sums[row] += squares / static_cast<float>(dim);
      rate /= std::sqrt(table.sums[row]) + options["eps"].get<float>();
    }
    for (std::size_t d = 0; d < dim; ++d) {
      table.rows[row * dim + d] -= rate * g[d];
    }
  }
}

spec::Model model_options(const json& c) {
  spec::Model options;
  options.type = c["model"] == "dlrm" ? spec::ModelKind::kDlrm : spec::ModelKind::kDcnv2;
  options.bottom_mlp = c["bottom"].get<std::vector<std::int64_t>>();
  options.top_mlp = c["top"].get<std::vector<std::int64_t>>();
  options.cross_layers = c.value("cross_layers", 0);
  options.cross_rank = c.value("cross_rank", 1);
  return options;
}

spec::DenseOptimizer optimizer_options(const json& c) {
  spec::DenseOptimizer options;
  options.type = c["type"] == "sgd"       ? spec::DenseOptimizerKind::kSgd
                 : c["type"] == "adagrad" ? spec::DenseOptimizerKind::kAdagrad
                                          : spec::DenseOptimizerKind::kAdam;
  options.learning_rate = c["learning_rate"];
  options.eps = c.value("eps", 0.0);
  options.weight_decay = c.value("weight_decay", 0.0);
  options.clip_norm = c.value("clip_norm", 0.0);
  return options;
}

class GoldenTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(PyTorch,
                         GoldenTest,
                         testing::Values("dense_dlrm_adagrad",
                                         "dense_dlrm_sgd",
                                         "dense_dcnv2_adam"),
                         [](const auto& tested) { return std::string(tested.param); });

void expect_near(const std::vector<float>& actual, const json& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i].get<double>(), kWeightTolerance)
        << what << "[" << i << "]";
  }
}

TEST_P(GoldenTest, TwentySteps) {
  std::ifstream file(std::string(WEFT_SOURCE_DIR) + "/tests/golden/" + GetParam() + ".json");
  ASSERT_TRUE(file) << GetParam();
  const json golden = json::parse(file);
  const json& c = golden["case"];
  const std::int64_t b = golden["batch_size"];

  ModelShape shape{c["dense"], {}, 1};
  std::vector<Table> tables;
  for (std::size_t t = 0; t < c["tables"].size(); ++t) {
    tables.push_back({c["tables"][t][1],
                      golden["tables"][t].get<std::vector<float>>(),
                      std::vector<float>(c["tables"][t][0].get<std::size_t>(), 0.0F),
                      {},
                      {}});
    shape.features.push_back({fmt::format("f{}", t), tables.back().dim});
  }
  const auto device = make_device({});
  const auto model = Model::create(model_options(c), shape);
  const ParameterLayout& layout = model->layout();
  std::vector<float> flat(static_cast<std::size_t>(layout.size()), 0.0F);
  ASSERT_EQ(golden["parameters"].size(), layout.parameters().size());
  for (const auto& p : layout.parameters()) {
    const auto values = golden["parameters"][p.name].get<std::vector<float>>();
    ASSERT_EQ(values.size(), static_cast<std::size_t>(p.size())) << p.name;
    std::copy(values.begin(), values.end(), flat.begin() + p.offset);
  }
  Context ctx{.device = device.get()};
  optim::DenseOptimizer optimizer(optimizer_options(c["dense_optimizer"]), *device, layout.size());
  const Worker worker(*model, *device);

  for (std::size_t step = 0; step < golden["batches"].size(); ++step) {
    const json& batch = golden["batches"][step];
    std::vector<float> dense;
    for (const json& row : batch["dense"]) {
      dense.insert(dense.end(), row.begin(), row.end());
    }
    const auto labels = batch["labels"].get<std::vector<float>>();
    const auto weights = batch["weights"].get<std::vector<float>>();
    SliceInput input;
    SliceGradients gradients;
    input.size = b;
    input.dense = matrix(static_cast<const float*>(dense.data()), b, shape.dense);
    input.sequences.resize(tables.size());
    gradients.sequences.resize(tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      pool(tables[t], batch["bags"][t]);
      input.pooled.push_back(
          matrix(static_cast<const float*>(tables[t].vectors.data()), b, tables[t].dim));
      gradients.pooled.push_back(matrix(tables[t].dvectors.data(), b, tables[t].dim));
    }
    std::vector<float> logits(static_cast<std::size_t>(b));
    std::vector<float> dlogits(logits.size());
    std::vector<float> flat_gradients(flat.size());
    model->prepare(ctx, flat.data());
    worker.forward(input, matrix(logits.data(), b, 1));
    double weight_sum = 0.0;
    for (const float w : weights) {
      weight_sum += static_cast<double>(w);
    }
    const std::vector<float> scale = {static_cast<float>(1.0 / weight_sum)};
    double loss = 0.0;
    const auto column = [b](const std::vector<float>& values) {
      return matrix(values.data(), b, 1);
    };
    std::int64_t first_bad = 0;
    kernels::bce_loss(ctx, {.logits = column(logits),
                            .labels = column(labels),
                            .weights = column(weights),
                            .scale = scale,
                            .dlogits = matrix(dlogits.data(), b, 1),
                            .loss_sums = &loss,
                            .first_bad = &first_bad});
    EXPECT_EQ(first_bad, -1);
    const double expected = golden["losses"][step];
    // After some steps weights differ by fp32 rounding, and the loss follows them.
    ASSERT_NEAR(loss / weight_sum, expected, (1 + static_cast<double>(step)) * kLossTolerance)
        << "step " << step;
    if (step == 0) {
      for (std::size_t s = 0; s < logits.size(); ++s) {
        ASSERT_NEAR(logits[s], golden["first_logits"][s].get<double>(), kLossTolerance) << s;
      }
    }
    worker.backward(input, column(dlogits), gradients);
    worker.sum_slice(flat_gradients.data());
    optimizer.step(ctx, flat.data(), flat_gradients.data(), 1.0,
                   static_cast<std::int64_t>(step) + 1);
    for (std::size_t t = 0; t < tables.size(); ++t) {
      update(tables[t], batch["bags"][t], c["sparse_optimizer"]);
    }
  }
  for (const auto& p : layout.parameters()) {
    expect_near({flat.begin() + p.offset, flat.begin() + p.offset + p.size()},
                golden["final_parameters"][p.name], p.name);
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    expect_near(tables[t].rows, golden["final_tables"][t], fmt::format("table {}", t));
    expect_near(tables[t].sums, golden["final_sums"][t], fmt::format("sums of table {}", t));
  }
}

}  // namespace
}  // namespace weft::nn
