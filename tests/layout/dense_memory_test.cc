// Lengths of the dense model's memory against what its objects have of their device and of the
// host.
#include "weft/layout/dense_memory.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/kernels/target.h"
#include "weft/nn/model.h"
#include "weft/optim/dense.h"
#include "weft/spec/config.h"
#include "weft/tensor/device.h"
#include "weft/tensor/host_memory.h"  // WEFT_ADDRESS_SANITIZER
#include "weft/tensor/memory_use.h"

namespace weft::layout {
namespace {

struct Case {
  const char* name;
  spec::Model options;
  ModelShape shape;
};

spec::Model options_of(spec::ModelKind kind,
                       std::vector<std::int64_t> bottom,
                       std::vector<std::int64_t> top,
                       std::int64_t projection = 0) {
  spec::Model options;
  options.type = kind;
  options.bottom_mlp = std::move(bottom);
  options.top_mlp = std::move(top);
  options.attention_mlp = {6, 4};
  options.cross_layers = 2;
  options.cross_rank = 30;
  options.projection_dim = projection;
  return options;
}

/// Widths that are multiples of nothing, short and deep products, one or several pooled features.
std::vector<Case> cases() {
  using Kind = spec::ModelKind;
  const std::vector<FeatureShape> pooled = {{"a", 20}, {"b", 20}, {"c", 20}};
  const std::vector<FeatureShape> mixed = {
      {"item", 24}, {"user", 50}, {"liked", 24, true, 0}, {"tags", 30, true, -1}};
  const std::vector<FeatureShape> lone = {{"item", 24}, {"liked", 24, true, 0}};
  return {{"dlrm", options_of(Kind::kDlrm, {70, 20}, {800, 60}), {4, pooled, 1}},
          {"dlrm_without_dense", options_of(Kind::kDlrm, {}, {80}), {0, pooled, 1}},
          {"dlrm_projected", options_of(Kind::kDlrm, {600, 33}, {80}, 33), {40, mixed, 2}},
          {"dlrm_deep", options_of(Kind::kDlrm, {1300, 20}, {1100, 700}), {4, pooled, 1}},
          {"dcnv2", options_of(Kind::kDcnv2, {70, 50}, {80, 60}), {4, mixed, 1}},
          {"dcnv2_raw_dense", options_of(Kind::kDcnv2, {}, {80}), {3, mixed, 2}},
          {"dcnv2_of_dense", options_of(Kind::kDcnv2, {70}, {80}), {9, {}, 1}},
          {"deepfm", options_of(Kind::kDeepFm, {70, 50}, {80}, 50), {4, mixed, 3}},
          {"deepfm_of_one", options_of(Kind::kDeepFm, {}, {80}, 17), {4, lone, 1}}};
}

/// A slice whose pooled vectors are columns of one matrix, as those of a batch are.
class Slice {
 public:
  Slice(const ModelShape& shape, std::int64_t samples) : samples_(samples) {
    std::int64_t columns = 0;
    std::int64_t longest = 0;
    for (const FeatureShape& feature : shape.features) {
      columns += feature.sequence ? 0 : feature.dim;
      longest = std::max(longest, feature.dim);
    }
    dense_.assign(static_cast<std::size_t>(samples * shape.dense), 0.5F);
    pooled_.assign(static_cast<std::size_t>(samples * columns), 0.25F);
    dpooled_ = pooled_;
    logits_.assign(static_cast<std::size_t>(samples * shape.tasks), 0.0F);
    for (std::int64_t s = 0; s <= samples; ++s) {
      offsets_.push_back(kLength * s);
    }
    values_.assign(static_cast<std::size_t>(samples * kLength * longest), 0.125F);
    input.size = samples;
    input.dense = matrix(static_cast<const float*>(dense_.data()), samples, shape.dense);
    std::int64_t column = 0;
    for (const FeatureShape& feature : shape.features) {
      elements.push_back(feature.sequence ? samples * kLength : 0);
      input.pooled.emplace_back();
      input.sequences.emplace_back();
      gradients.pooled.emplace_back();
      gradients.sequences.emplace_back();
      if (feature.sequence) {
        dvalues_.emplace_back(values_.size());
        input.sequences.back() = {.values = matrix(static_cast<const float*>(values_.data()),
                                                   samples * kLength, feature.dim),
                                  .offsets = offsets_.data()};
        gradients.sequences.back() = matrix(dvalues_.back().data(), samples * kLength, feature.dim);
        continue;
      }
      const auto columns_of = [&](auto* data) {
        return matrix(data, samples, columns).slice_cols(column, column + feature.dim);
      };
      input.pooled.back() = columns_of(static_cast<const float*>(pooled_.data()));
      gradients.pooled.back() = columns_of(dpooled_.data());
      column += feature.dim;
    }
  }

  [[nodiscard]] SliceSize size() const { return {.samples = samples_, .elements = elements}; }

  [[nodiscard]] Matrix<float> logits(std::int64_t tasks) {
    return matrix(logits_.data(), samples_, tasks);
  }

  nn::SliceInput input;
  nn::SliceGradients gradients;
  std::vector<std::int64_t> elements;

 private:
  static constexpr std::int64_t kLength = 3;

  std::int64_t samples_;
  std::vector<float> dense_, pooled_, dpooled_, values_, logits_;
  std::vector<std::vector<float>> dvalues_;
  std::vector<std::int64_t> offsets_;
};

/// Counts what a device and the host beside it take from now on.
class Counter {
 public:
  explicit Counter(const Device& device) : device_(device) { restart(); }

  void restart() {
    device_before_ = device_.memory_use();
    host_before_ = host_memory_use().now;
  }

  [[nodiscard]] std::int64_t device() const { return device_.memory_use() - device_before_; }

  [[nodiscard]] std::int64_t host() const {
    return host_memory_use().now - host_before_ - device();
  }

 private:
  const Device& device_;
  std::int64_t device_before_ = 0;
  std::int64_t host_before_ = 0;
};

class LayoutOfTheDenseModel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
#if defined(WEFT_ADDRESS_SANITIZER)
    GTEST_SKIP() << "large blocks are not mapped by themselves, so other bytes are counted";
#endif
  }
};

INSTANTIATE_TEST_SUITE_P(All,
                         LayoutOfTheDenseModel,
                         testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

constexpr double kOneDnn = 40960.0;  ///< bytes that oneDNN asks for, at most

/// Two slices, the larger one first, whose gradients are added as two parts.
void expect_lengths(const spec::Model& options, const ModelShape& shape) {
  SCOPED_TRACE(options.compute == spec::Compute::kBf16 ? "bf16" : "fp32");
  const Packing packing = kernels::current_packing();
  const DenseModel described = dense_model(options, shape);
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  const auto model = nn::Model::create(options, shape);
  EXPECT_EQ(parameter_floats(described), model->layout().size());
  std::vector<float> flat(static_cast<std::size_t>(model->layout().size()));
  model->init_parameters(3, flat.data());

  Context ctx{.device = device.get()};
  Counter counter(*device);
  model->prepare(ctx, flat.data());
  EXPECT_EQ(block_bytes(prepared_bytes(packing, described.element(), described.shapes())),
            counter.device());
  EXPECT_EQ(gradient_tasks(described), model->num_gradient_tasks());

  std::vector<Slice> slices;
  slices.emplace_back(shape, 300);
  slices.emplace_back(shape, 130);
  const std::vector<SliceSize> sizes = {slices[0].size(), slices[1].size()};
  const auto lane = model->make_lane(*device);
  std::vector<std::unique_ptr<nn::SliceTerms>> terms;
  std::vector<nn::SliceTerms*> pointers;
  std::vector<std::int64_t> begins;
  std::int64_t scratch = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    terms.push_back(model->make_terms(*device));
    pointers.push_back(terms.back().get());
    counter.restart();
    model->forward(ctx, slices[i].input, *lane, slices[i].logits(shape.tasks));
    EXPECT_EQ(i == 0 ? block_bytes(place_blocks(described, sizes[0], begins)) : 0,
              counter.device());
    const std::int64_t before = counter.device();
    model->backward(ctx, *lane,
                    {.input = slices[i].input,
                     .dlogits = slices[i].logits(shape.tasks),
                     .terms = *terms.back(),
                     .gradients = slices[i].gradients});
    EXPECT_EQ(block_bytes(terms_bytes(described, packing, sizes[i])), counter.device() - before);
    scratch += counter.host();
  }
  counter.restart();
  std::vector<std::int32_t> words(static_cast<std::size_t>(model->num_gradient_tasks()));
  const std::vector<std::span<nn::SliceTerms* const>> parts = {{&pointers[0], 1},
                                                               {&pointers[1], 1}};
  for (std::int64_t task = 0; task < model->num_gradient_tasks(); ++task) {
    model->sum_gradients(ctx, task, {.node = {0, 2}, .parts = parts}, *lane,
                         {.flat = flat.data(), .infinite = words.data()});
  }
  EXPECT_EQ(counter.device(), 0);
  scratch += counter.host();
  const std::int64_t predicted =
      lane_scratch(described, packing, sizes, tree_slots(2)).counted_bytes();
  // Beside it lies what oneDNN asks for: with AMX a few tiles, in products of bf16 without it a
  // copy of a panel, else a row's worth where a layer has one output.
  EXPECT_LE(predicted, scratch);
  EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(scratch),
              kOneDnn + 0.03 * static_cast<double>(scratch));
}

TEST_P(LayoutOfTheDenseModel, IsWhatItTakes) {
  for (const spec::Compute compute : {spec::Compute::kFp32, spec::Compute::kBf16}) {
    spec::Model options = GetParam().options;
    options.compute = compute;
    expect_lengths(options, GetParam().shape);
  }
}

/// A lane with room for the largest slice takes nothing more for any other.
TEST_P(LayoutOfTheDenseModel, StaysWhereRoomWasMade) {
  const auto& [name, options, shape] = GetParam();
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  const auto model = nn::Model::create(options, shape);
  std::vector<float> flat(static_cast<std::size_t>(model->layout().size()));
  Context ctx{.device = device.get()};
  model->prepare(ctx, flat.data());
  const auto lane = model->make_lane(*device);
  Slice largest(shape, 500);
  model->reserve(*lane, largest.size());
  const std::int64_t before = device->memory_use();
  for (const std::int64_t samples : {120, 500, 499}) {
    Slice slice(shape, samples);
    model->forward(ctx, slice.input, *lane, slice.logits(shape.tasks));
    EXPECT_EQ(device->memory_use(), before) << samples;
  }
}

TEST(LayoutOfTheDenseOptimizer, IsWhatItTakes) {
#if defined(WEFT_ADDRESS_SANITIZER)
  GTEST_SKIP() << "large blocks are not mapped by themselves, so other bytes are counted";
#endif
  for (const spec::DenseOptimizerKind kind :
       {spec::DenseOptimizerKind::kSgd, spec::DenseOptimizerKind::kAdagrad,
        spec::DenseOptimizerKind::kAdam}) {
    for (const std::int64_t count : {16, 5008, 2'000'000}) {
      const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
      const optim::DenseOptimizer optimizer({.type = kind}, *device, count);
      EXPECT_EQ(
          static_cast<std::int64_t>(dense_states(kind).size()) * block_bytes(count * kFloatBytes) +
              block_bytes(scan_results(count) * kScanBytes),
          device->memory_use())
          << count;
    }
  }
}

}  // namespace
}  // namespace weft::layout
