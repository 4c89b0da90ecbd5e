// The whole models: against the plain double model and its finite differences, and by their bits.
#include "weft/nn/model.h"

#include <cstring>
#include <thread>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/nn/part_data.h"
#include "tests/nn/plain_model.h"
#include "weft/base/error.h"
#include "weft/kernels/target.h"

namespace weft::nn {
namespace {

struct Case {
  const char* name;
  spec::Model options;
  ModelShape shape;
};

spec::Model options_of(spec::ModelKind kind,
                       std::vector<std::int64_t> bottom,
                       std::vector<std::int64_t> top) {
  spec::Model options;
  options.type = kind;
  options.bottom_mlp = std::move(bottom);
  options.top_mlp = std::move(top);
  options.attention_mlp = {6, 4};
  options.cross_layers = 2;
  options.cross_rank = 3;
  return options;
}

std::vector<Case> cases() {
  using Kind = spec::ModelKind;
  const std::vector<FeatureShape> pooled = {{"a", 5}, {"b", 5}, {"c", 5}};
  // Two sequences attend with one target; one has none; dims differ.
  const std::vector<FeatureShape> mixed = {{"item", 4},           {"user", 5},
                                           {"liked", 4, true, 0}, {"tags", 3, true, -1},
                                           {"seen", 4, true, 0},  {"city", 6}};
  std::vector<Case> all;
  all.push_back({"dlrm", options_of(Kind::kDlrm, {7, 5}, {8, 6}), {4, pooled, 1}});
  all.push_back({"dlrm_without_dense", options_of(Kind::kDlrm, {}, {8}), {0, pooled, 1}});
  all.push_back({"dlrm_projected", options_of(Kind::kDlrm, {6, 5}, {8}), {4, mixed, 2}});
  all.back().options.projection_dim = 5;
  all.push_back({"dlrm_linear_head", options_of(Kind::kDlrm, {5}, {}), {2, pooled, 3}});
  all.push_back({"dcnv2", options_of(Kind::kDcnv2, {7, 5}, {8, 6}), {4, pooled, 1}});
  all.push_back({"dcnv2_raw_dense", options_of(Kind::kDcnv2, {}, {8}), {3, mixed, 2}});
  all.push_back({"deepfm", options_of(Kind::kDeepFm, {7, 5}, {8}), {4, mixed, 3}});
  all.back().options.projection_dim = 5;
  all.push_back({"deepfm_raw_dense", options_of(Kind::kDeepFm, {}, {8}), {3, pooled, 1}});
  all.push_back({"deepfm_mean", options_of(Kind::kDeepFm, {}, {8}), {0, mixed, 1}});
  all.back().options.projection_dim = 4;
  all.back().options.sequence = spec::SequencePooling::kMean;
  return all;
}

class ModelTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, ModelTest, testing::ValuesIn(cases()), [](const auto& tested) {
  return std::string(tested.param.name);
});

// A model with its weights, ready to run.
struct Ready {
  std::unique_ptr<Device> device = make_device({});
  std::unique_ptr<Model> model;
  std::vector<float> flat;

  Ready(const spec::Model& options, const ModelShape& shape)
      : model(Model::create(options, shape)),
        flat(static_cast<std::size_t>(model->layout().size())) {
    model->init_parameters(11, flat.data());
    // Biases that begin at zero are moved off it, so that they are tested too.
    for (const auto& p : model->layout().parameters()) {
      for (std::int64_t i = 0; i < p.size(); ++i) {
        flat[static_cast<std::size_t>(p.offset + i)] += 0.01F * static_cast<float>(i % 7 + 1);
      }
    }
    Context ctx{.device = device.get()};
    model->prepare(ctx, flat.data());
  }
};

struct Results {
  std::vector<float> logits;
  std::vector<float> gradients;
  std::vector<std::vector<float>> dvectors;

  friend bool operator==(const Results&, const Results&) = default;
};

Results run(const Ready& ready,
            PartData& data,
            const Worker& worker,
            const std::vector<float>& dy) {
  Results results;
  results.logits.resize(dy.size());
  results.gradients.assign(ready.flat.size(), -3.0F);
  const std::int64_t tasks = data.shape.tasks;
  const SliceInput input = data.input();
  SliceGradients gradients = data.gradients();
  worker.forward(input, matrix(results.logits.data(), data.size, tasks));
  worker.backward(input, matrix(dy.data(), data.size, tasks), gradients);
  if (data.size > 0) {
    worker.sum_slice(results.gradients.data());
  }
  results.dvectors = data.dvectors;
  return results;
}

std::vector<float> random_dlogits(std::int64_t count) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> dy(static_cast<std::size_t>(count));
  std::generate(dy.begin(), dy.end(), [&] { return uniform(random); });
  return dy;
}

constexpr double kStep = 1e-5;
// fp32 rounding of sums of a few hundred terms of order one; the differences' own error is 1e-9.
constexpr double kTolerance = 2e-5;

TEST_P(ModelTest, AgreesWithPlainModelAndItsFiniteDifferences) {
  const auto& [name, options, shape] = GetParam();
  Ready ready(options, shape);
  PartData data(shape, 5, 3);
  const std::vector<float> dy = random_dlogits(data.size * shape.tasks);
  const Worker worker(*ready.model, *ready.device);
  const Results results = run(ready, data, worker, dy);

  plain::Model plain(options, shape, ready.model->layout());
  plain.flat.assign(ready.flat.begin(), ready.flat.end());
  std::vector<plain::Sample> samples;
  for (std::int64_t s = 0; s < data.size; ++s) {
    samples.push_back(data.sample(s));
  }
  const auto tasks = static_cast<std::size_t>(shape.tasks);
  const auto weighted = [&](std::size_t s) {
    const plain::Vec y = plain.logits(samples[s]);
    double sum = 0.0;
    for (std::size_t t = 0; t < tasks; ++t) {
      sum += y[t] * static_cast<double>(dy[s * tasks + t]);
    }
    return sum;
  };
  const auto near = [&](double expected, float actual, const std::string& what) {
    ASSERT_NEAR(expected, static_cast<double>(actual),
                kTolerance * std::max(1.0, std::abs(expected)))
        << what;
  };
  const auto difference = [&](double& value, const auto& f) {
    const double saved = value;
    value = saved + kStep;
    const double up = f();
    value = saved - kStep;
    const double down = f();
    value = saved;
    return (up - down) / (2 * kStep);
  };

  for (std::size_t s = 0; s < samples.size(); ++s) {
    const plain::Vec y = plain.logits(samples[s]);
    for (std::size_t t = 0; t < tasks; ++t) {
      near(y[t], results.logits[s * tasks + t], fmt::format("logit {} of sample {}", t, s));
    }
  }
  const auto total = [&] {
    double sum = 0.0;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      sum += weighted(s);
    }
    return sum;
  };
  std::vector<bool> is_weight(ready.flat.size(), false);
  for (const auto& p : ready.model->layout().parameters()) {
    for (std::int64_t i = 0; i < p.size(); ++i) {
      const auto at = static_cast<std::size_t>(p.offset + i);
      is_weight[at] = true;
      near(difference(plain.flat[at], total), results.gradients[at],
           fmt::format("{}[{}]", p.name, i));
    }
  }
  for (std::size_t i = 0; i < is_weight.size(); ++i) {
    if (!is_weight[i]) {
      ASSERT_EQ(results.gradients[i], 0.0F) << "gap at " << i;
    }
  }
  for (std::size_t f = 0; f < shape.features.size(); ++f) {
    const auto dim = static_cast<std::size_t>(shape.features[f].dim);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const auto one = [&] { return weighted(s); };
      const std::string what = fmt::format("{} of sample {}", shape.features[f].name, s);
      if (!shape.features[f].sequence) {
        for (std::size_t d = 0; d < dim; ++d) {
          near(difference(samples[s].pooled[f][d], one), results.dvectors[f][s * dim + d], what);
        }
        continue;
      }
      for (std::size_t e = 0; e < samples[s].sequences[f].size(); ++e) {
        const std::size_t row = static_cast<std::size_t>(data.offsets[f][s]) + e;
        for (std::size_t d = 0; d < dim; ++d) {
          near(difference(samples[s].sequences[f][e][d], one), results.dvectors[f][row * dim + d],
               what);
        }
      }
    }
  }
}

std::vector<spec::Compute> computes() {
  return {spec::Compute::kFp32, spec::Compute::kBf16};
}

TEST_P(ModelTest, LogitsOfASampleDoNotDependOnItsPart) {
  if (kernels::current_target() < kernels::Target::kAvx2) {
    GTEST_SKIP() << "promised from AVX2 on";
  }
  for (const spec::Compute compute : computes()) {
    if (compute == spec::Compute::kBf16 && kernels::current_target() >= kernels::Target::kAmx) {
      continue;  // oneDNN does not use AMX for a few rows
    }
    spec::Model options = GetParam().options;
    options.compute = compute;
    const ModelShape& shape = GetParam().shape;
    Ready ready(options, shape);
    PartData data(shape, 67, 9);
    const Worker worker(*ready.model, *ready.device);
    std::vector<float> whole(static_cast<std::size_t>(data.size * shape.tasks));
    worker.forward(data.input(), matrix(whole.data(), data.size, shape.tasks));
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 2}, {3, 20}, {20, 67}, {64, 67}}) {
      std::vector<float> part(static_cast<std::size_t>((end - begin) * shape.tasks));
      worker.forward(data.input(begin, end), matrix(part.data(), end - begin, shape.tasks));
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + begin * shape.tasks,
                               part.size() * sizeof(float)))
          << "samples [" << begin << ", " << end << ")";
    }
  }
}

// The same vectors and gradients in rows with gaps between them.
TEST_P(ModelTest, SameBitsWhereverVectorsLie) {
  for (const spec::Compute compute : computes()) {
    spec::Model options = GetParam().options;
    options.compute = compute;
    const ModelShape& shape = GetParam().shape;
    const Ready ready(options, shape);
    const std::vector<float> dy = random_dlogits(33 * shape.tasks);
    PartData data(shape, 33, 4);
    const Worker worker(*ready.model, *ready.device);
    const Results compact = run(ready, data, worker, dy);

    SliceInput input = data.input();
    SliceGradients gradients = data.gradients();
    std::vector<std::vector<float>> memory;
    const auto spread = [&](const float* from, std::int64_t rows, std::int64_t cols) {
      const std::int64_t stride = cols + 5;
      memory.emplace_back(static_cast<std::size_t>(rows * stride + 1));
      const Matrix<float> to{memory.back().data() + 1, rows, cols, stride};
      for (std::int64_t i = 0; i < rows; ++i) {
        std::copy_n(from + i * cols, cols, to.row(i));
      }
      return to;
    };
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      const bool sequence = shape.features[f].sequence;
      Matrix<const float>& values = sequence ? input.sequences[f].values : input.pooled[f];
      Matrix<float>& dvalues = sequence ? gradients.sequences[f] : gradients.pooled[f];
      dvalues = spread(values.data, values.rows, values.cols);
      values = spread(values.data, values.rows, values.cols);
    }
    Results strided;
    strided.logits.resize(dy.size());
    strided.gradients.resize(ready.flat.size());
    const std::int64_t tasks = shape.tasks;
    worker.forward(input, matrix(strided.logits.data(), data.size, tasks));
    worker.backward(input, matrix(dy.data(), data.size, tasks), gradients);
    worker.sum_slice(strided.gradients.data());
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      const Matrix<float> from =
          shape.features[f].sequence ? gradients.sequences[f] : gradients.pooled[f];
      strided.dvectors.emplace_back();
      for (std::int64_t i = 0; i < from.rows; ++i) {
        strided.dvectors.back().insert(strided.dvectors.back().end(), from.row(i),
                                       from.row(i) + from.cols);
      }
    }
    EXPECT_TRUE(compact == strided);
  }
}

TEST_P(ModelTest, SameBitsTwiceAndBesideOtherParts) {
  for (const spec::Compute compute : computes()) {
    spec::Model options = GetParam().options;
    options.compute = compute;
    const ModelShape& shape = GetParam().shape;
    const Ready ready(options, shape);
    const std::vector<float> dy = random_dlogits(33 * shape.tasks);
    PartData data(shape, 33, 4);
    const Worker worker(*ready.model, *ready.device);
    const Results first = run(ready, data, worker, dy);
    EXPECT_TRUE(first == run(ready, data, worker, dy));

    std::vector<Results> others(3);
    std::vector<std::thread> threads;
    for (Results& result : others) {
      threads.emplace_back([&] {
        PartData own(shape, 33, 4);
        PartData larger(shape, 50, 8);
        const Worker other(*ready.model, *ready.device);
        run(ready, larger, other, random_dlogits(50 * shape.tasks));
        result = run(ready, own, other, dy);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const Results& result : others) {
      EXPECT_TRUE(first == result);
    }
  }
}

// bf16 keeps 8 bits: each rounding is within 2^-9. A few layers of them, some terms of which cancel
// and some of which cross ReLU's corner, stay within 8 % of the size of what they compute.
constexpr double kBf16Error = 0.08;

TEST_P(ModelTest, Bf16IsNearFp32) {
  const auto& [name, options, shape] = GetParam();
  const std::vector<float> dy = random_dlogits(64 * shape.tasks);
  const auto compute = [&](spec::Compute kind) {
    spec::Model changed = options;
    changed.compute = kind;
    const Ready ready(changed, shape);
    PartData data(shape, 64, 4);
    const Worker worker(*ready.model, *ready.device);
    return run(ready, data, worker, dy);
  };
  const Results exact = compute(spec::Compute::kFp32);
  const Results rounded = compute(spec::Compute::kBf16);
  const auto relative_error = [](const std::vector<float>& a, const std::vector<float>& b) {
    double error = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      size += std::pow(static_cast<double>(a[i]), 2);
    }
    return std::sqrt(error / size);
  };
  EXPECT_FALSE(exact == rounded);
  EXPECT_LT(relative_error(exact.logits, rounded.logits), kBf16Error);
  EXPECT_LT(relative_error(exact.gradients, rounded.gradients), kBf16Error);
  for (std::size_t f = 0; f < exact.dvectors.size(); ++f) {
    EXPECT_LT(relative_error(exact.dvectors[f], rounded.dvectors[f]), kBf16Error) << f;
  }
}

TEST_P(ModelTest, BackwardOfAnotherSliceThanTheLanesIsRefused) {
  const auto& [name, options, shape] = GetParam();
  const Ready ready(options, shape);
  const Worker worker(*ready.model, *ready.device);
  PartData data(shape, 3, 4);
  const SliceInput first = data.input();
  const SliceInput second = first;
  std::vector<float> logits(static_cast<std::size_t>(3 * shape.tasks));
  worker.forward(first, matrix(logits.data(), 3, shape.tasks));
  worker.forward(second, matrix(logits.data(), 3, shape.tasks));
  SliceGradients gradients = data.gradients();
  EXPECT_THROW(worker.backward(first, matrix(logits.data(), 3, shape.tasks), gradients), Error);
}

TEST_P(ModelTest, WithoutSamplesGradientsAreZeros) {
  const auto& [name, options, shape] = GetParam();
  const Ready ready(options, shape);
  const Worker worker(*ready.model, *ready.device);
  std::vector<float> gradients(ready.flat.size(), -3.0F);
  const std::span<SliceTerms* const> empty[2];
  EXPECT_TRUE(worker.sum({{0, 2}, empty}, gradients.data()));
  EXPECT_EQ(gradients, std::vector<float>(ready.flat.size(), 0.0F));
}

// Slices of a part, and parts, add up to the gradients of all samples at once.
TEST_P(ModelTest, GradientsAreSumsOverSlicesAndParts) {
  const auto& [name, options, shape] = GetParam();
  const Ready ready(options, shape);
  const std::vector<float> dy = random_dlogits(30 * shape.tasks);
  PartData data(shape, 30, 4);
  const Worker worker(*ready.model, *ready.device);
  const Results whole = run(ready, data, worker, dy);

  const std::vector<Range> slices = {{0, 11}, {11, 17}, {17, 30}};
  std::vector<std::unique_ptr<SliceTerms>> owners;
  std::vector<SliceTerms*> all_terms;
  for (const Range& slice : slices) {
    owners.push_back(ready.model->make_terms(*ready.device));
    all_terms.push_back(owners.back().get());
    PartData own(shape, 30, 4);
    const SliceInput input = own.input(slice.begin, slice.end);
    SliceGradients gradients = own.gradients();
    for (std::size_t f = 0; f < shape.features.size(); ++f) {
      gradients.pooled[f].rows = std::min(gradients.pooled[f].rows, slice.size());
      gradients.sequences[f].rows = input.sequences[f].values.rows;
    }
    std::vector<float> logits(static_cast<std::size_t>(slice.size() * shape.tasks));
    worker.forward(input, matrix(logits.data(), slice.size(), shape.tasks));
    worker.backward(input, matrix(dy.data() + slice.begin * shape.tasks, slice.size(), shape.tasks),
                    gradients, *owners.back());
  }
  const std::span<SliceTerms* const> all(all_terms);
  const std::vector<std::span<SliceTerms* const>> parts = {all.subspan(0, 2), {}, all.subspan(2)};
  std::vector<float> sums(ready.flat.size());
  EXPECT_TRUE(worker.sum({{0, 3}, parts}, sums.data()));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    ASSERT_NEAR(sums[i], whole.gradients[i], 1e-4F) << i;
  }
}

TEST_P(ModelTest, InitialValuesArePure) {
  const auto& [name, options, shape] = GetParam();
  const auto model = Model::create(options, shape);
  const auto count = static_cast<std::size_t>(model->layout().size());
  std::vector<float> a(count, 1.0F);
  std::vector<float> b(count, 2.0F);
  model->init_parameters(1, a.data());
  model->init_parameters(1, b.data());
  EXPECT_EQ(a, b);
  model->init_parameters(2, b.data());
  EXPECT_NE(a, b);
  for (const auto& p : model->layout().parameters()) {
    EXPECT_EQ(p.offset % 16, 0) << p.name;
  }
}

TEST(ModelInit, SpreadOfALargeLayer) {
  spec::Model options = options_of(spec::ModelKind::kDcnv2, {300, 200}, {});
  options.cross_layers = 0;
  const auto model = Model::create(options, {100, {{"a", 8}}, 1});
  std::vector<float> flat(static_cast<std::size_t>(model->layout().size()));
  model->init_parameters(3, flat.data());
  const auto spread = [&](const char* name) {
    const auto& p = model->layout().find(name);
    double squares = 0.0;
    double sum = 0.0;
    for (std::int64_t i = 0; i < p.size(); ++i) {
      const double v = flat[static_cast<std::size_t>(p.offset + i)];
      squares += v * v;
      sum += v;
    }
    const auto n = static_cast<double>(p.size());
    EXPECT_LT(std::abs(sum / n), 4 * std::sqrt(squares / n / n)) << name;
    return squares / n;
  };
  // The variance of n normal numbers' variance is 2 / n.
  EXPECT_NEAR(spread("dense.bottom.1.weight"), 2.0 / 500, 2.0 / 500 * 5 * std::sqrt(2.0 / 60000));
  EXPECT_NEAR(spread("dense.bottom.0.bias"), 1.0 / 300, 1.0 / 300 * 5 * std::sqrt(2.0 / 300));
}

void expect_refused(const spec::Model& options, const ModelShape& shape, const char* words) {
  try {
    Model::create(options, shape);
    FAIL() << "expected a refusal with: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(ModelRefuses, ByName) {
  using Kind = spec::ModelKind;
  const std::vector<FeatureShape> mixed = {{"item", 4}, {"user", 5}};
  expect_refused(options_of(Kind::kDlrm, {4}, {}), {2, mixed, 1}, "'user' has dim 5");
  expect_refused(options_of(Kind::kDlrm, {3}, {}), {2, {{"a", 4}}, 1}, "model.bottom_mlp");
  expect_refused(options_of(Kind::kDlrm, {}, {}), {2, {{"a", 4}}, 1}, "model.bottom_mlp");
  expect_refused(options_of(Kind::kDlrm, {}, {}), {0, {{"a", 4}}, 1}, "two vectors");
  expect_refused(options_of(Kind::kDcnv2, {4}, {}), {0, {{"a", 4}}, 1}, "no dense features");
  expect_refused(options_of(Kind::kDeepFm, {}, {}), {3, {}, 1}, "sparse_features");
  expect_refused(options_of(Kind::kDcnv2, {}, {}), {0, {{"a", 0}}, 1}, "'a' has dim 0");
  expect_refused(options_of(Kind::kDcnv2, {}, {}), {0, {{"t", 4}, {"s", 3, true, 0}}, 1},
                 "target 't' has dim 4");
  expect_refused(options_of(Kind::kDcnv2, {}, {}), {0, {{"t", 3, true, -1}, {"s", 3, true, 0}}, 1},
                 "is a sequence itself");
  expect_refused(options_of(Kind::kDcnv2, {}, {0}), {0, {{"a", 3}}, 1}, "model.top_mlp");
}

}  // namespace
}  // namespace weft::nn
