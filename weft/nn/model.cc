#include "weft/nn/model.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"
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

/// Room for the lists of as many parts and slices as a later call may have.
template <typename Slice, typename Part>
void reserve_lists(const GradientTerms& terms,
                   std::vector<Slice>& slices,
                   std::vector<Part>& parts) {
  parts.reserve(at(terms.most_parts));
  slices.reserve(at(terms.most_slices));
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

DenseModel::DenseModel(layout::DenseModel description, const ModelShape& shape, std::size_t dlogits)
    : description_(std::move(description)),
      shape_(shape),
      parameters_(description_.layers()),
      dlogits_(dlogits) {
}

void DenseModel::init_parameters(std::uint64_t seed, float* flat) const {
  std::fill_n(flat, layout().size(), 0.0F);
  const auto& parameters = layout().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    initial_values(seed, parameters[i], parameters_.inits[i], flat + parameters[i].offset);
  }
}

/// Once: room for the prepared weights, and what is cut into which tasks.
void DenseModel::plan_tasks(Context& ctx) {
  const std::vector<kernels::LinearShape> shapes = description_.shapes();
  for (std::size_t l = 0; l < shapes.size(); ++l) {
    for (const kernels::GradientTile& tile : kernels::gradient_tiles(ctx, shapes[l])) {
      gradient_tasks_.push_back({l, tile});
    }
  }
  // Threads take tasks in this order, and end together where the last ones are short. A tile's size
  // is its work, but in layers over sequences.
  std::stable_sort(gradient_tasks_.begin(), gradient_tasks_.end(),
                   [](const GradientTask& a, const GradientTask& b) {
                     return a.tile.floats() > b.tile.floats();
                   });
  prepared_ =
      kernels::make_prepared_weights(ctx, kernels::dtype_of(description_.element()), shapes);
}

void DenseModel::prepare(Context& ctx, const float* flat) {
  if (prepared_ == nullptr) {
    plan_tasks(ctx);
  }
  weights_ = {.flat = flat, .prepared = prepared_.get(), .places = parameters_.places.data()};
  matrices_.clear();
  for (std::size_t l = 0; l < description_.layers().size(); ++l) {
    const layout::LayerShape& shape = description_.layers()[l].shape;
    matrices_.push_back(matrix(flat + parameters_.places[l].weight, shape.out, shape.in));
  }
  kernels::prepare_weights(ctx, {.weights = matrices_, .to = prepared_.get()});
}

std::unique_ptr<SliceTerms> DenseModel::make_terms(Device& device) const {
  return std::make_unique<ModelTerms>(device, description_);
}

std::unique_ptr<Lane> DenseModel::make_lane(Device& device) const {
  return std::make_unique<ModelLane>(device, description_);
}

void DenseModel::reserve(Lane& lane, const layout::SliceSize& most) const {
  static_cast<ModelLane&>(lane).reserve(most);
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

void DenseModel::forward(Context& ctx,
                         const SliceInput& input,
                         Lane& lane,
                         Matrix<float> logits) const {
  if (input.size == 0) {
    return;
  }
  check_input(input);
  WEFT_CHECK(logits.rows == input.size && logits.cols == shape_.tasks);
  auto& own = static_cast<ModelLane&>(lane);
  own.ctx = &ctx;
  own.slice = &input;
  own.begin(input);
  own.fields.clear();
  run_forward(input, own, logits);
}

void DenseModel::backward(Context& ctx, Lane& lane, const Backward& args) const {
  const SliceInput& input = args.input;
  if (input.size == 0) {
    return;
  }
  check_input(input);
  WEFT_CHECK(args.dlogits.rows == input.size && args.dlogits.cols == shape_.tasks);
  WEFT_CHECK(args.gradients.pooled.size() == shape_.features.size() &&
             args.gradients.sequences.size() == shape_.features.size());
  auto& own = static_cast<ModelLane&>(lane);
  WEFT_CHECK(own.slice == &input, "backward() of another slice than the lane's last forward()");
  own.ctx = &ctx;
  own.dfields.clear();
  auto& terms = static_cast<ModelTerms&>(args.terms);
  terms.begin(own.size_of(input));
  const Matrix<float> dy = own.get<float>(dlogits_, input.size, shape_.tasks);
  kernels::assign(ctx, {.from = args.dlogits, .to = dy});
  run_backward(input, terms, own, dy, args.gradients);
}

void DenseModel::sum_gradients(Context& ctx,
                               std::int64_t task,
                               const GradientTerms& terms,
                               Lane& lane,
                               const GradientSums& to) const {
  auto& own = static_cast<ModelLane&>(lane);
  const GradientSums word{.flat = to.flat, .infinite = to.infinite + task};
  if (at(task) == gradient_tasks_.size()) {
    sum_biases(ctx, terms, own, word);
  } else {
    sum_weights(ctx, gradient_tasks_[at(task)], terms, own, word);
  }
}

void DenseModel::sum_weights(Context& ctx,
                             const GradientTask& task,
                             const GradientTerms& terms,
                             ModelLane& lane,
                             const GradientSums& to) const {
  const layout::LayerShape& shape = description_.layers()[task.layer].shape;
  float* const dw = to.flat + parameters_.places[task.layer].weight;
  lane.slices.clear();
  reserve_lists(terms, lane.slices, lane.parts);
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    for (SliceTerms* const slice : part) {
      lane.slices.push_back(static_cast<ModelTerms*>(slice)->operands(task.layer));
    }
  }
  lane.parts.clear();
  std::size_t begin = 0;
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    lane.parts.push_back(kernels::PartSlices(lane.slices).subspan(begin, part.size()));
    begin += part.size();
  }
  kernels::sum_weight_gradient(ctx, {.workspace = lane.workspace.get(),
                                     .node = terms.node,
                                     .most_parts = terms.most_parts,
                                     .parts = lane.parts,
                                     .tile = task.tile,
                                     .dw = matrix(dw, shape.out, shape.in),
                                     .infinite = to.infinite});
}

/// Biases, and zeros between parameters.
void DenseModel::sum_biases(Context& ctx,
                            const GradientTerms& terms,
                            ModelLane& lane,
                            const GradientSums& to) const {
  lane.bias_slices.clear();
  reserve_lists(terms, lane.bias_slices, lane.bias_parts);
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    for (SliceTerms* const slice : part) {
      lane.bias_slices.push_back(static_cast<ModelTerms*>(slice)->bias_gradients());
    }
  }
  lane.bias_parts.clear();
  std::size_t begin = 0;
  for (const std::span<SliceTerms* const>& part : terms.parts) {
    lane.bias_parts.push_back(kernels::PartBiases(lane.bias_slices).subspan(begin, part.size()));
    begin += part.size();
  }
  lane.bias_places.clear();
  for (std::size_t l = 0; l < description_.layers().size(); ++l) {
    const layout::LinearLayer& layer = description_.layers()[l];
    if (layer.bias != layout::Bias::kNone) {
      lane.bias_places.push_back({.begin = layer.bias_gradient,
                                  .size = layer.shape.out,
                                  .to = to.flat + parameters_.places[l].bias});
    }
  }
  kernels::sum_bias_gradients(ctx, {.workspace = lane.workspace.get(),
                                    .node = terms.node,
                                    .most_parts = terms.most_parts,
                                    .parts = lane.bias_parts,
                                    .count = description_.biases(),
                                    .places = lane.bias_places,
                                    .infinite = to.infinite});
  const auto clear = [&](std::int64_t from, std::int64_t until) {
    ctx.device->fill_zero(ctx, to.flat + from,
                          (until - from) * static_cast<std::int64_t>(sizeof(float)));
  };
  std::int64_t end = 0;
  for (const optim::DenseParameter& parameter : layout().parameters()) {
    clear(end, parameter.offset);
    end = parameter.offset + parameter.size();
  }
  clear(end, layout().size());
}

}  // namespace weft::nn
