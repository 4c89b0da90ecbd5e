#include "weft/nn/model.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/elementwise.h"
#include "weft/kernels/target.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

void check_widths(const char* key, const std::vector<std::int64_t>& widths) {
  for (const std::int64_t width : widths) {
    if (width <= 0) {
      fail(ErrorCode::kConfig, "{}: a layer of width {}; widths are at least 1", key, width);
    }
  }
}

void check_shape(const spec::Model& options, const ModelShape& shape) {
  check_widths("model.bottom_mlp", options.bottom_mlp);
  check_widths("model.top_mlp", options.top_mlp);
  check_widths("model.attention_mlp", options.attention_mlp);
  if (shape.tasks < 1 || shape.dense < 0) {
    fail(ErrorCode::kConfig, "model: {} tasks and {} dense features", shape.tasks, shape.dense);
  }
  if (shape.dense == 0 && shape.features.empty()) {
    fail(ErrorCode::kConfig, "model: no feature at all; declare dense_features or sparse_features");
  }
  for (const FeatureShape& feature : shape.features) {
    if (feature.dim <= 0) {
      fail(ErrorCode::kConfig, "model: feature '{}' has dim {}; set its table's embedding_dim",
           feature.name, feature.dim);
    }
  }
  if (shape.dense == 0 && !options.bottom_mlp.empty()) {
    fail(ErrorCode::kConfig,
         "model.bottom_mlp has {} layers, but there are no dense features; remove it or declare "
         "dense_features",
         options.bottom_mlp.size());
  }
  if (options.compute == spec::Compute::kBf16 &&
      kernels::current_target() < kernels::Target::kAvx512) {
    fail(ErrorCode::kConfig,
         "model.compute: bf16 needs AVX-512, but the instruction set in force is {}; set "
         "model.compute to fp32, or numerics.target to avx512 or higher on machines that have it",
         kernels::to_string(kernels::current_target()));
  }
}

}  // namespace

std::unique_ptr<Model> Model::create(const spec::Model& options, const ModelShape& shape) {
  check_shape(options, shape);
  switch (options.type) {
    case spec::ModelKind::kDlrm:
      return make_dlrm(options, shape);
    case spec::ModelKind::kDcnv2:
      return make_dcnv2(options, shape);
    case spec::ModelKind::kDeepFm:
      return make_deepfm(options, shape);
  }
  fail(ErrorCode::kConfig, "model.type: unknown kind {}", static_cast<int>(options.type));
}

DenseModel::DenseModel(const spec::Model& options, const ModelShape& shape)
    : builder_(options.compute),
      options_(options),
      shape_(shape),
      dlogits_slot_(builder_.add_slot()) {
}

Mlp DenseModel::make_head(const char* name, std::int64_t in) {
  auto layers = hidden_layers(name, options_.top_mlp);
  layers.push_back({fmt::format("{}.{}", name, layers.size()), shape_.tasks,
                    kernels::Activation::kNone, Bias::kZero});
  return {builder_, in, layers};
}

void DenseModel::init_parameters(std::uint64_t seed, float* flat) const {
  std::fill_n(flat, layout().size(), 0.0F);
  const auto& parameters = layout().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    initial_values(seed, parameters[i], builder_.inits()[i], flat + parameters[i].offset);
  }
}

void DenseModel::prepare(Context& ctx, const float* flat) {
  weights_.flat = flat;
  if (options_.compute == spec::Compute::kFp32) {
    return;
  }
  constexpr std::int64_t kBlock = 65536;
  const std::int64_t size = layout().size();
  half_.resize(static_cast<std::size_t>(size));
  weights_.half = half_.data();
  const auto convert_block = [&](std::int64_t block) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t count = std::min(kBlock, size - begin);
    kernels::convert(matrix(flat + begin, 1, count), matrix(half_.data() + begin, 1, count));
  };
  const std::int64_t blocks = (size + kBlock - 1) / kBlock;
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(blocks, convert_block);
  } else {
    for (std::int64_t block = 0; block < blocks; ++block) {
      convert_block(block);
    }
  }
}

std::unique_ptr<Workspace> DenseModel::make_workspace() const {
  return std::make_unique<PartWorkspace>(builder_.slots());
}

void DenseModel::check_input(const PartInput& input) const {
  WEFT_CHECK(weights_.flat != nullptr, "prepare() before forward()");
  WEFT_CHECK(
      input.dense.cols == shape_.dense && (shape_.dense == 0 || input.dense.rows == input.size),
      "dense values [{}, {}] of {} samples, {} features", input.dense.rows, input.dense.cols,
      input.size, shape_.dense);
  WEFT_CHECK(input.pooled.size() == shape_.features.size() &&
                 input.sequences.size() == shape_.features.size(),
             "{} pooled and {} sequence entries for {} features", input.pooled.size(),
             input.sequences.size(), shape_.features.size());
  for (std::size_t f = 0; f < shape_.features.size(); ++f) {
    const FeatureShape& feature = shape_.features[f];
    const Matrix<const float> vectors =
        feature.sequence ? input.sequences[f].values : input.pooled[f];
    WEFT_CHECK(vectors.cols == feature.dim && (feature.sequence || vectors.rows == input.size),
               "feature '{}' of dim {}: vectors [{}, {}] for {} samples", feature.name, feature.dim,
               vectors.rows, vectors.cols, input.size);
  }
}

void DenseModel::forward(const PartInput& input, Workspace& workspace, Matrix<float> logits) const {
  if (input.size == 0) {
    return;
  }
  check_input(input);
  WEFT_CHECK(logits.rows == input.size && logits.cols == shape_.tasks);
  auto& part = static_cast<PartWorkspace&>(workspace);
  part.fields.clear();
  run_forward(input, part, logits);
}

void DenseModel::backward(const PartInput& input,
                          Workspace& workspace,
                          Matrix<const float> dlogits,
                          float* flat_gradients,
                          PartGradients& gradients) const {
  if (input.size == 0) {
    std::fill_n(flat_gradients, layout().size(), 0.0F);
    return;
  }
  check_input(input);
  WEFT_CHECK(dlogits.rows == input.size && dlogits.cols == shape_.tasks);
  WEFT_CHECK(gradients.pooled.size() == shape_.features.size() &&
             gradients.sequences.size() == shape_.features.size());
  // Layers overwrite their parameters' gradients; the gaps between parameters are left.
  std::int64_t end = 0;
  for (const optim::DenseParameter& parameter : layout().parameters()) {
    std::fill(flat_gradients + end, flat_gradients + parameter.offset, 0.0F);
    end = parameter.offset + parameter.size();
  }
  std::fill(flat_gradients + end, flat_gradients + layout().size(), 0.0F);

  auto& part = static_cast<PartWorkspace&>(workspace);
  part.dfields.clear();
  const Matrix<float> dy = part.get<float>(dlogits_slot_, input.size, shape_.tasks);
  kernels::copy(dlogits, dy);
  run_backward(input, part, dy, flat_gradients, gradients);
}

}  // namespace weft::nn
