// The work of a step as benchmarks count it, against the library's own figures.
#include "bench/step_work.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "weft/data/loader.h"
#include "weft/nn/model.h"
#include "weft/spec/yaml.h"

namespace weft::bench {
namespace {

spec::Config load(const std::string& name, std::vector<std::string> overrides = {}) {
  return spec::load_config(std::string(WEFT_SOURCE_DIR) + "/bench/" + name + ".yaml", overrides);
}

class Models : public testing::TestWithParam<const char*> {};

TEST_P(Models, HaveAsManyParametersAsCounted) {
  const spec::Config config = load(GetParam());
  nn::ModelShape shape{.dense = 13, .features = {}, .tasks = 1};
  for (const spec::SparseFeature& feature : config.sparse_features) {
    shape.features.push_back({.name = feature.name, .dim = config.tables[0].embedding_dim});
  }
  const auto model = nn::Model::create(config.model, shape);
  EXPECT_EQ(dense_parameters(config), model->layout().num_weights());
}

TEST_P(Models, HaveThreeProductsPerLayerButTheFirst) {
  const spec::Config config = load(GetParam(), {"model.compute=bf16"});
  const auto products = dense_products(config, 32);
  EXPECT_EQ(products.size() % 3, 2U);
  double forward = 0.0;
  double all = 0.0;
  for (const DenseProduct& product : products) {
    all += product.shape.flops();
    forward += product.pass == "forward" ? product.shape.flops() : 0.0;
    EXPECT_EQ(product.shape.in, DType::kBFloat16);
    EXPECT_EQ(product.shape.out, product.pass == "weight" ? DType::kFloat32 : DType::kBFloat16);
  }
  EXPECT_EQ(all, 3.0 * forward - products.front().shape.flops());
}

INSTANTIATE_TEST_SUITE_P(Bench, Models, testing::Values("dlrm_kaggle", "dcnv2_mlperf"));

constexpr std::int64_t kMemory = std::int64_t{1} << 26;

/// The work of two batches of 64 samples of DCNv2.
StepWork count(const spec::Config& config, std::vector<data::Batch>& batches) {
  const data::Vocabularies none;
  data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                      data::LoaderOptions::train(config, 0, 1, 8));
  batches.resize(2);
  for (data::Batch& batch : batches) {
    loader.next(batch);
  }
  return step_work(config, batches, kMemory);
}

TEST(StepWork, CountsWhatIsInTheBatches) {
  std::vector<data::Batch> batches;
  const StepWork work =
      count(load("dcnv2_mlperf", {"batch_size=64", "data.synthetic.samples=256"}), batches);
  EXPECT_EQ(work.samples, 64.0);
  EXPECT_EQ(work.ids, 64.0 * 214.0);
  EXPECT_EQ(work.vector_bytes, 64.0 * 26.0 * 128.0 * 4.0);
  EXPECT_EQ(work.dense_state, 1.0);
  ASSERT_EQ(work.lookups.size(), 1U);
  EXPECT_EQ(work.lookups[0].row_bytes, 512);
  EXPECT_EQ(work.lookups[0].rows(), work.ids);
  EXPECT_EQ(work.gradients[0].rows(), work.ids);
}

TEST(StepWork, ListsTouchedRowsOnceWithTheirState) {
  std::vector<data::Batch> batches;
  const StepWork work =
      count(load("dcnv2_mlperf", {"batch_size=64", "data.synthetic.samples=256"}), batches);
  ASSERT_EQ(work.updates.size(), 1U);
  EXPECT_EQ(work.updates[0].row_bytes, 1024);
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const auto& rows = work.updates[0].batches[b];
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    const std::set<std::int64_t> touched(work.lookups[0].batches[b].begin(),
                                         work.lookups[0].batches[b].end());
    EXPECT_EQ(std::set<std::int64_t>(rows.begin(), rows.end()), touched);
    EXPECT_EQ(rows.size(), touched.size());
    EXPECT_LE(rows.back() + 1024, kMemory);
  }
}

TEST(StepWork, RowWiseStateIsAPlaceOfItsOwn) {
  std::vector<data::Batch> batches;
  const StepWork work = count(load("dcnv2_mlperf", {"batch_size=64", "data.synthetic.samples=256",
                                                    "sparse_optimizer.type=row_wise_adagrad"}),
                              batches);
  ASSERT_EQ(work.updates.size(), 2U);
  EXPECT_EQ(work.updates[0].row_bytes, 512);
  EXPECT_EQ(work.updates[1].row_bytes, 4);
  EXPECT_EQ(work.updates[0].rows(), work.updates[1].rows());
}

}  // namespace
}  // namespace weft::bench
