#include "weft/nn/model.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/elementwise.h"
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

/// Once: where packed weights lie, and what is cut into which tasks.
void DenseModel::plan_tasks() {
  // Elements that a task packs: some tens of microseconds.
  constexpr std::int64_t kPackElements = 65536;
  const DType dtype = builder_.dtype();
  std::int64_t bytes = 0;
  for (const LinearLayer& layer : builder_.layers()) {
    bytes += kernels::packed_bytes(dtype, layer.in, layer.out) +
             kernels::packed_bytes(dtype, layer.out, layer.in);
  }
  auto* memory = static_cast<std::byte*>(packed_memory_.at_least(bytes));
  for (std::size_t l = 0; l < builder_.layers().size(); ++l) {
    const LinearLayer& layer = builder_.layers()[l];
    PackedWeights weights;
    weights.forward = kernels::packed_matrix(dtype, layer.in, layer.out, memory);
    memory += kernels::packed_bytes(dtype, layer.in, layer.out);
    weights.backward = kernels::packed_matrix(dtype, layer.out, layer.in, memory);
    memory += kernels::packed_bytes(dtype, layer.out, layer.in);
    for (const bool forward : {true, false}) {
      const kernels::PackedMatrix& packed = forward ? weights.forward : weights.backward;
      const std::int64_t step =
          std::max<std::int64_t>(1, kPackElements / (packed.rows * kernels::kPanel));
      for (std::int64_t begin = 0; begin < packed.panels(); begin += step) {
        pack_tasks_.push_back({l, forward, {begin, std::min(packed.panels(), begin + step)}});
      }
    }
    packed_.push_back(weights);
    for (const kernels::GradientTile& tile : kernels::gradient_tiles(layer.out, layer.in)) {
      gradient_tasks_.push_back({l, tile});
    }
  }
}

void DenseModel::pack_weights(const PackTask& task, const float* flat) const {
  const LinearLayer& layer = builder_.layers()[task.layer];
  const Matrix<const float> w = matrix(flat + layer.weight, layer.out, layer.in);
  if (task.forward) {
    kernels::pack_transposed(w, packed_[task.layer].forward, task.panels);
  } else {
    kernels::pack(w, packed_[task.layer].backward, task.panels);
  }
}

void DenseModel::prepare(Context& ctx, const float* flat) {
  if (packed_.empty()) {
    plan_tasks();
  }
  weights_ = {.flat = flat, .packed = packed_};
  const auto tasks = static_cast<std::int64_t>(pack_tasks_.size());
  const auto run = [&](std::int64_t i) {
    pack_weights(pack_tasks_[static_cast<std::size_t>(i)], flat);
  };
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(tasks, run);
  } else {
    for (std::int64_t i = 0; i < tasks; ++i) {
      run(i);
    }
  }
}

std::unique_ptr<SliceTerms> DenseModel::make_terms() const {
  return std::make_unique<ModelTerms>(builder_.layers().size(), builder_.biases());
}

std::unique_ptr<Lane> DenseModel::make_lane() const {
  return std::make_unique<ModelLane>(builder_.slots());
}

void DenseModel::check_input(const SliceInput& input) const {
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

void DenseModel::forward(const SliceInput& input, Lane& lane, Matrix<float> logits) const {
  if (input.size == 0) {
    return;
  }
  check_input(input);
  WEFT_CHECK(logits.rows == input.size && logits.cols == shape_.tasks);
  auto& own = static_cast<ModelLane&>(lane);
  own.slice = &input;
  own.fields.clear();
  run_forward(input, own, logits);
}

void DenseModel::backward(const SliceInput& input,
                          SliceTerms& terms,
                          Lane& lane,
                          Matrix<const float> dlogits,
                          SliceGradients& gradients) const {
  if (input.size == 0) {
    return;
  }
  check_input(input);
  WEFT_CHECK(dlogits.rows == input.size && dlogits.cols == shape_.tasks);
  WEFT_CHECK(gradients.pooled.size() == shape_.features.size() &&
             gradients.sequences.size() == shape_.features.size());
  auto& own = static_cast<ModelLane&>(lane);
  WEFT_CHECK(own.slice == &input, "backward() of another slice than the lane's last forward()");
  own.dfields.clear();
  const Matrix<float> dy = own.get<float>(dlogits_slot_, input.size, shape_.tasks);
  kernels::assign(dlogits, dy);
  run_backward(input, static_cast<ModelTerms&>(terms), own, dy, gradients);
}

bool DenseModel::sum_gradients(std::int64_t task,
                               const GradientTerms& terms,
                               Lane& lane,
                               float* flat) const {
  auto& own = static_cast<ModelLane&>(lane);
  const auto index = static_cast<std::size_t>(task);
  if (index == gradient_tasks_.size()) {
    return sum_biases(terms, own, flat);
  }
  const auto& [number, tile] = gradient_tasks_[index];
  const LinearLayer& layer = builder_.layers()[number];
  own.slices.clear();
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    for (SliceTerms* const slice : part) {
      own.slices.push_back(&static_cast<ModelTerms*>(slice)->operands(number));
    }
  }
  own.parts.clear();
  std::size_t begin = 0;
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    own.parts.push_back(kernels::PartSlices(own.slices).subspan(begin, part.size()));
    begin += part.size();
  }
  return own.summer.sum(own.matmul, terms.node, own.parts, tile,
                        matrix(flat + layer.weight, layer.out, layer.in));
}

/// Biases, a part's slices one after the other and parts up the tree; and zeros between parameters.
bool DenseModel::sum_biases(const GradientTerms& terms, ModelLane& lane, float* flat) const {
  const std::int64_t count = builder_.biases();
  const auto slots = static_cast<std::int64_t>(tree_slots(terms.node.size()));
  float* const sums = lane.bias_sums.at_least_of<float>(count * slots);
  const auto slot = [&](int depth) { return matrix(sums + depth * count, 1, count); };
  const auto leaf = [&](const Range& node, int depth) {
    const auto& part = terms.parts[static_cast<std::size_t>(node.begin - terms.node.begin)];
    if (node.size() != 1 || part.empty()) {
      return false;
    }
    for (SliceTerms* const slice : part) {
      const Matrix<float> gradients =
          matrix(static_cast<ModelTerms*>(slice)->bias_gradients(), 1, count);
      if (slice == part.front()) {
        kernels::assign(gradients, slot(depth));
      } else {
        kernels::add(gradients, slot(depth));
      }
    }
    return true;
  };
  const auto add = [&](int depth) { kernels::add(slot(depth + 1), slot(depth)); };
  if (!sum_tree(terms.node, 0, leaf, add)) {
    std::fill_n(sums, count, 0.0F);
  }
  std::int64_t end = 0;
  for (const optim::DenseParameter& parameter : layout().parameters()) {
    std::fill(flat + end, flat + parameter.offset, 0.0F);
    end = parameter.offset + parameter.size();
  }
  std::fill(flat + end, flat + layout().size(), 0.0F);
  bool finite = true;
  for (const LinearLayer& layer : builder_.layers()) {
    if (layer.bias >= 0) {
      finite = kernels::copy_is_finite(matrix(sums + layer.bias_gradient, 1, layer.out),
                                       matrix(flat + layer.bias, 1, layer.out)) &&
               finite;
    }
  }
  return finite;
}

}  // namespace weft::nn
