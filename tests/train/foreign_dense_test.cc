// A dense model that is not Weft's: logistic regression on the sum of all looked-up numbers, with
// one parameter, stands behind the engine's interface and trains the tables.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/data/loader.h"
#include "weft/data/source.h"
#include "weft/data/vocabulary.h"
#include "weft/planner/place.h"
#include "weft/train/engine.h"

namespace weft::train {
namespace {

/// Logit = bias + sum of the sample's pooled vectors. Sums of gradients of the bias go over the
/// ranks as doubles gathered in their order.
class SumModel final : public DenseSide {
 public:
  explicit SumModel(const DenseSideParts& parts)
      : comm_(parts.comm),
        parts_(parts.plan.parts),
        own_(rank_parts(parts_, parts.comm.size(), parts.comm.rank())),
        sums_(static_cast<std::size_t>(own_.size())) {}

  void weight_sums(const data::Batch& batch, std::vector<double>& sums) const override {
    sums.assign(static_cast<std::size_t>(own_.size()), 0.0);
    for_samples(batch, [&](std::size_t part, std::size_t row) {
      sums[part] += static_cast<double>(batch.label_weights[row]);
    });
  }

  void load(Context& /*ctx*/,
            const data::Batch& batch,
            const sharding::FeatureMatrices& vectors,
            const sharding::FeatureMatrices& gradients) override {
    batch_ = &batch;
    vectors_ = vectors.pooled;
    gradients_ = gradients.pooled;
    sequences_ = gradients.sequences;
  }

  void forward(Context& /*ctx*/, std::int64_t /*cut*/) override {
    logits_.assign(batch_->labels.size(), bias_);
    for (std::size_t b = 0; b < logits_.size(); ++b) {
      const float* const row = vectors_.row(static_cast<std::int64_t>(b));
      for (std::int64_t c = 0; c < vectors_.cols; ++c) {
        logits_[b] += row[c];
      }
    }
    sums_.assign(sums_.size(), {});
    for_samples(*batch_, [&](std::size_t part, std::size_t row) {
      sums_[part].add(logits_[row], batch_->labels[row], batch_->label_weights[row]);
    });
  }

  void forward_backward(Context& ctx,
                        std::span<const double> global_weights,
                        std::int64_t cut) override {
    forward(ctx, cut);
    gradient_ = 0;
    for (std::size_t b = 0; b < logits_.size(); ++b) {
      const float error = 1.0F / (1.0F + std::exp(-logits_[b])) - batch_->labels[b];
      const float scaled =
          error * batch_->label_weights[b] / static_cast<float>(global_weights.front());
      gradient_ += static_cast<double>(scaled);
      float* const row = gradients_.row(static_cast<std::int64_t>(b));
      std::fill_n(row, gradients_.cols, scaled);
    }
    for (const Matrix<float>& sequence : sequences_) {
      std::fill_n(sequence.data, sequence.rows * sequence.cols, 0.0F);
    }
  }

  void weight_gradients(Context& /*ctx*/, std::int64_t /*cut*/) override {}

  [[nodiscard]] const NonFinite& non_finite() const override { return none_; }

  [[nodiscard]] const std::vector<metrics::BinarySums>& sums() const override { return sums_; }

  void read_logits(Context& /*ctx*/, std::vector<float>& out) const override { out = logits_; }

  void reduce(Context& ctx) override {
    std::vector<double> all(static_cast<std::size_t>(comm_.size()));
    comm_.all_gather(ctx, &gradient_, all.data(), sizeof(double));
    gradient_ = 0;
    for (const double own : all) {
      gradient_ += own;
    }
  }

  optim::DenseStep update(Context& /*ctx*/, double lr_factor, std::int64_t /*step*/) override {
    bias_ -= static_cast<float>(lr_factor * 0.5 * gradient_);
    return {};
  }

  [[nodiscard]] kernels::CodecClips codec_clips() const override { return {}; }

  void list_sources(std::vector<const StateSource*>& /*out*/) const override {}

  void list_sinks(Residuals /*residuals*/, std::vector<StateSink*>& /*out*/) override {}

  [[nodiscard]] const std::string& residual_layout() const override { return layout_; }

  [[nodiscard]] std::string parameter_of(std::int64_t /*index*/) const override { return "bias"; }

 private:
  /// Calls visit(own part, row) for every sample of this rank.
  template <typename Visit>
  void for_samples(const data::Batch& batch, const Visit& visit) const {
    for (std::int64_t p = own_.begin; p < own_.end; ++p) {
      const Range samples = part_samples(batch.global_size, parts_, p);
      for (std::int64_t s = samples.begin; s < samples.end; ++s) {
        visit(static_cast<std::size_t>(p - own_.begin),
              static_cast<std::size_t>(s - batch.positions.begin));
      }
    }
  }

  comm::Communicator& comm_;
  std::int64_t parts_;
  Range own_;
  const data::Batch* batch_ = nullptr;
  Matrix<float> vectors_, gradients_;
  std::vector<Matrix<float>> sequences_;
  std::vector<float> logits_;
  std::vector<metrics::BinarySums> sums_;
  NonFinite none_;
  std::string layout_;
  float bias_ = 0;
  double gradient_ = 0;
};

struct Trained {
  double first_loss = 0;
  double last_loss = 0;
  std::uint64_t rows_hash = 0;
};

Trained train_foreign(int ranks) {
  const spec::Config config = make_job({"train.steps=0"}, 1);
  Trained trained;
  comm::run_local(ranks, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, ranks);
    const auto device = make_device({.threads = 1});
    const data::Vocabularies none;
    data::Loader loader(data::open_source(config, data::Split::kTrain), config, none,
                        data::LoaderOptions::train(config, world.rank(), ranks, plan.parts));
    Engine engine(config, plan, world, *device, {.make_dense = [](const DenseSideParts& parts) {
                    return std::make_unique<SumModel>(parts);
                  }});
    data::Batch batch;
    double last = 0;
    std::int64_t step = 0;
    while (loader.next(batch)) {
      const StepOutcome outcome = engine.train_step({.batch = batch, .step = ++step});
      last = outcome.report.sums.total().front().log_loss();
      if (step == 1 && world.rank() == 0) {
        trained.first_loss = last;
      }
    }
    const checkpoint::StateHash hash = engine.hash();
    if (world.rank() == 0) {
      trained.last_loss = last;
      trained.rows_hash = hash.weights;
    }
  });
  return trained;
}

TEST(ForeignDenseModel, TrainsTheTablesAndLowersTheLoss) {
  const Trained trained = train_foreign(1);
  EXPECT_GT(trained.first_loss, 0.0);
  EXPECT_LT(trained.last_loss, trained.first_loss);
  EXPECT_NE(trained.rows_hash, 0U);
}

TEST(ForeignDenseModel, TrainsOnSeveralRanks) {
  const Trained one = train_foreign(1);
  const Trained three = train_foreign(3);
  EXPECT_NEAR(three.first_loss, one.first_loss, 1e-9);
  EXPECT_NEAR(three.last_loss, one.last_loss, 1e-4);
}

}  // namespace
}  // namespace weft::train
