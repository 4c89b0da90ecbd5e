// A backend that is half finished: it defines two operations of kernels::cuda, for a device whose
// memory is the host's, and takes the stubs of all others from the library. It builds, the two pass
// their lists of parity cases, and a model names the first operation that is missing.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/kernels/toy_device.h"
#include "tests/kernels_dense/parity/loss.h"
#include "weft/base/error.h"
#include "weft/nn/model.h"

namespace weft::kernels::cuda {

namespace {

int losses = 0;
int searches = 0;

}  // namespace

void bce_loss(Context& /*ctx*/, const BceLoss& args) {
  ++losses;
  *args.first_bad = -1;
  for (std::int64_t t = 0; t < args.logits.cols; ++t) {
    args.loss_sums[t] = 0.0;
    for (std::int64_t s = 0; s < args.logits.rows; ++s) {
      const double z = args.logits.row(s)[t];
      const double y = args.labels.row(s)[t];
      const double weight = args.weights.data == nullptr ? 1.0 : args.weights.row(s)[t];
      const double loss = bce_with_logits(z, y);
      const bool is_bad = !std::isfinite(loss) || !std::isfinite(weight);
      if (is_bad && (*args.first_bad < 0 || s < *args.first_bad)) {
        *args.first_bad = s;
      }
      args.loss_sums[t] += weight * loss;
      args.dlogits.row(s)[t] = static_cast<float>(
          static_cast<double>(args.scale[static_cast<std::size_t>(t)]) * weight * (sigmoid(z) - y));
      args.probabilities.row(s)[t] = static_cast<float>(sigmoid(z));
    }
  }
}

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& args) {
  ++searches;
  const auto is_finite = [](const SampleValues& values, std::int64_t s) {
    const std::int64_t begin = values.offsets == nullptr ? s : values.offsets[s];
    const std::int64_t end = values.offsets == nullptr ? s + 1 : values.offsets[s + 1];
    for (std::int64_t i = begin * values.values.cols; i < end * values.values.cols; ++i) {
      const std::int64_t row = i / values.values.cols;
      if (!std::isfinite(values.values.row(row)[i % values.values.cols])) {
        return false;
      }
    }
    return true;
  };
  for (std::int64_t s = 0; s < (*args.first < 0 ? args.samples : *args.first); ++s) {
    for (const SampleValues& values : args.values) {
      if (!is_finite(values, s)) {
        *args.first = s;
        return;
      }
    }
  }
}

}  // namespace weft::kernels::cuda

namespace weft::kernels {
namespace {

TEST(ToyBackend, PassesTheListsOfWhatItHas) {
  test::ToyDevice device;
  parity::expect_loss(device);
  parity::expect_first_bad_sample(device);
  EXPECT_GT(cuda::losses, 0);
  EXPECT_GT(cuda::searches, 0);
}

TEST(ToyBackend, AModelNamesTheFirstOperationThatIsMissing) {
  spec::Model options;
  options.type = spec::ModelKind::kDlrm;
  options.bottom_mlp = {4};
  const auto model = nn::Model::create(options, {2, {{"a", 4}}, 1});
  test::ToyDevice device;
  try {
    model->make_lane(device);
    FAIL() << "a stub returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("'make_workspace'"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft::kernels
