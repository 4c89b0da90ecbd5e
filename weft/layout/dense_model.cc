#include "weft/layout/dense_model.h"

#include <algorithm>
#include <utility>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::layout {
namespace {

/// Layers "<name>.0", "<name>.1", .. of these widths, ReLU after each.
std::vector<LinearLayer> hidden_layers(const std::string& name,
                                       const std::vector<std::int64_t>& widths) {
  std::vector<LinearLayer> layers;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    layers.push_back({.name = fmt::format("{}.{}", name, i),
                      .shape = {.out = widths[i]},
                      .bias = Bias::kNormal,
                      .has_relu = true});
  }
  return layers;
}

/// Hidden layers, and one of `out` values behind them.
std::vector<LinearLayer> layers_to(const std::string& name,
                                   const std::vector<std::int64_t>& widths,
                                   std::int64_t out) {
  std::vector<LinearLayer> layers = hidden_layers(name, widths);
  layers.push_back({.name = fmt::format("{}.{}", name, layers.size()),
                    .shape = {.out = out},
                    .bias = Bias::kZero});
  return layers;
}

/// From x to the logits.
Chain make_head(DenseModel& model,
                const spec::Model& options,
                const ModelShape& shape,
                const char* name,
                std::int64_t in,
                Element x) {
  return model.add_chain({.in = in, .x = {.element = x}},
                         layers_to(name, options.top_mlp, shape.tasks));
}

void check_target(const FeatureShape& feature, const ModelShape& shape) {
  if (feature.target >= static_cast<std::int64_t>(shape.features.size())) {
    fail(ErrorCode::kConfig, "sequence feature '{}': its target is feature {} of {}", feature.name,
         feature.target, shape.features.size());
  }
  const FeatureShape& target = shape.features[at(feature.target)];
  if (target.sequence) {
    fail(ErrorCode::kConfig,
         "sequence feature '{}': its target '{}' is a sequence itself; name a pooled feature",
         feature.name, target.name);
  }
  if (target.dim != feature.dim) {
    fail(ErrorCode::kConfig,
         "sequence feature '{}' (dim {}): its target '{}' has dim {}; attention needs one dim for "
         "both, so give them one table or tables of one embedding_dim",
         feature.name, feature.dim, target.name, target.dim);
  }
}

/// The dim that all features share or are projected to. Throws Error(kConfig) naming two features
/// whose dims differ where model.projection_dim is 0.
std::int64_t common_dim(const spec::Model& options, const ModelShape& shape) {
  if (options.projection_dim > 0) {
    return options.projection_dim;
  }
  for (const FeatureShape& feature : shape.features) {
    if (feature.dim != shape.features[0].dim) {
      fail(ErrorCode::kConfig,
           "model: feature '{}' has dim {} and feature '{}' has dim {}, but their vectors interact "
           "and must have one dim; set model.projection_dim to project them, or give their tables "
           "one embedding_dim",
           shape.features[0].name, shape.features[0].dim, feature.name, feature.dim);
    }
  }
  return shape.features.empty() ? 0 : shape.features[0].dim;
}

std::size_t add_logits(DenseModel& model, const ModelShape& shape) {
  return model.add_block({.cols = shape.tasks});
}

}  // namespace

ModelShape model_shape(const spec::Config& config) {
  ModelShape shape{.dense = static_cast<std::int64_t>(config.dense_features.size()),
                   .features = {},
                   .tasks = static_cast<std::int64_t>(config.tasks.size())};
  for (const spec::SparseFeature& feature : config.sparse_features) {
    FeatureShape entry;
    entry.name = feature.name;
    entry.dim = config.tables[at(spec::table_index(config, feature))].embedding_dim;
    entry.sequence = feature.pooling == spec::Pooling::kNone;
    for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
      if (!feature.target.empty() && config.sparse_features[f].name == feature.target) {
        entry.target = static_cast<std::int64_t>(f);
      }
    }
    shape.features.push_back(std::move(entry));
  }
  return shape;
}

std::int64_t Rows::count(const SliceSize& slice) const {
  switch (per) {
    case Per::kSample:
      return slice.samples;
    case Per::kElement:
      return padded_elements(slice.elements[feature]);
    case Per::kSlice:
      return 1;
  }
  fail(ErrorCode::kInternal, "rows of kind {}", static_cast<int>(per));
}

std::vector<LayerShape> DenseModel::shapes() const {
  std::vector<LayerShape> shapes;
  for (const LinearLayer& layer : layers_) {
    shapes.push_back(layer.shape);
  }
  return shapes;
}

std::size_t DenseModel::add_block(const BlockUse& use) {
  blocks_.push_back({use});
  return blocks_.size() - 1;
}

std::size_t DenseModel::add_linear(LinearLayer layer) {
  const LayerShape shape = layer.shape;
  const Rows rows = layer.rows;
  const bool has_dx = layer.has_dx;
  layer.bias_gradient = biases_;
  biases_ += layer.bias == Bias::kNone ? 0 : shape.out;
  layers_.push_back(std::move(layer));
  const Product forward{.depth = shape.in, .cols = shape.out, .values = element_, .out = element_};
  const Product back{.depth = shape.out, .cols = shape.in, .values = element_, .out = element_};
  products_.push_back({rows, forward});
  products_.push_back({rows, has_dx ? back : Product{}});
  return layers_.size() - 1;
}

Chain DenseModel::add_chain(const ChainOptions& options, std::vector<LinearLayer> layers) {
  Chain chain;
  std::int64_t in = options.in;
  const auto uses = [&](std::int64_t cols) {
    return BlockUse{.rows = options.rows, .cols = cols, .element = element_};
  };
  for (LinearLayer& layer : layers) {
    if (!chain.empty()) {
      chain.blocks.push_back(add_block(uses(in)));
      // The gradient of this layer's output may lie in block 0, so those below alternate from 1.
      share_block(kGradients[(layers.size() - chain.layers.size()) % 2], uses(in));
    }
    layer.shape.in = in;
    layer.rows = options.rows;
    layer.has_dx = options.has_dx || !chain.empty();
    in = layer.shape.out;
    chain.layers.push_back(add_linear(std::move(layer)));
  }
  if (options.x.element != element_) {
    chain.input = add_block(uses(options.in));
  }
  if (options.y.element != element_ || !options.y.is_compact) {
    share_block(kGradients[0], uses(in));
  }
  fit_ends(options, chain);
  return chain;
}

/// The products of the first and the last layer read and write what is not the chain's own.
void DenseModel::fit_ends(const ChainOptions& options, const Chain& chain) {
  Product& first = products_[2 * chain.layers.front()].product;
  Product& first_back = products_[2 * chain.layers.front() + 1].product;
  Product& last = products_[2 * chain.layers.back()].product;
  first.is_left_compact = options.x.is_compact || options.x.element != element_;
  last.out = options.y.element;
  last.is_out_compact = options.y.is_compact;
  first_back.out = options.x.element;
  first_back.is_out_compact = options.x.is_compact;
}

FeatureVectors::FeatureVectors(DenseModel& model,
                               const spec::Model& options,
                               const ModelShape& shape,
                               std::int64_t dim_of_fields)
    : field_dim(dim_of_fields) {
  const auto pooled = std::count_if(shape.features.begin(), shape.features.end(),
                                    [](const FeatureShape& f) { return !f.sequence; });
  for (std::size_t f = 0; f < shape.features.size(); ++f) {
    const FeatureShape& declared = shape.features[f];
    Feature feature;
    feature.dim = declared.dim;
    if (declared.sequence) {
      const bool attended =
          options.sequence == spec::SequencePooling::kAttention && declared.target >= 0;
      feature.kind = attended ? Kind::kAttention : Kind::kMean;
      feature.vector = model.add_block({.cols = declared.dim});
      feature.dvector = model.add_block({.cols = declared.dim});
    }
    if (feature.kind == Kind::kAttention) {
      check_target(declared, shape);
      feature.target = at(declared.target);
      const Rows rows{.per = Rows::Per::kElement, .feature = f};
      feature.attention =
          model.add_chain({.rows = rows, .in = 4 * declared.dim},
                          layers_to("dense.attention." + declared.name, options.attention_mlp, 1));
      feature.inputs = model.add_block({.rows = rows, .cols = 4 * declared.dim});
      feature.dinputs = model.add_block({.rows = rows, .cols = 4 * declared.dim});
      feature.weights = model.add_block({.rows = rows, .cols = 1});
      feature.dweights = model.add_block({.rows = rows, .cols = 1});
    }
    if (field_dim > 0 && declared.dim != field_dim) {
      // Pooled vectors of several features are columns of one matrix.
      feature.projection = model.add_chain(
          {.in = declared.dim, .x = {.is_compact = declared.sequence || pooled == 1}},
          {{.name = "dense.projection." + declared.name, .shape = {.out = field_dim}}});
      feature.field = model.add_block({.cols = field_dim});
      feature.dfield = model.add_block({.cols = field_dim});
    }
    features.push_back(std::move(feature));
  }
}

Concatenated::Concatenated(DenseModel& model,
                           const spec::Model& options,
                           const ModelShape& shape,
                           std::int64_t field_dim,
                           Element element_of_values)
    : element(element_of_values),
      x_width(options.bottom_mlp.empty() ? shape.dense : options.bottom_mlp.back()),
      width(x_width),
      bottom(options.bottom_mlp.empty()
                 ? Chain{}
                 : model.add_chain({.in = shape.dense,
                                    .y = {.element = element, .is_compact = shape.features.empty()},
                                    .has_dx = false},
                                   hidden_layers("dense.bottom", options.bottom_mlp))),
      vectors(model, options, shape, field_dim) {
  for (const FeatureShape& feature : shape.features) {
    width += field_dim > 0 ? field_dim : feature.dim;
  }
  values = model.add_block({.cols = width, .element = element});
}

Dlrm::Dlrm(DenseModel& model, const spec::Model& options, const ModelShape& shape)
    : dlogits(add_logits(model, shape)),
      dim(common_dim(options, shape)),
      num_fields(static_cast<std::int64_t>(shape.features.size()) + (shape.dense > 0 ? 1 : 0)) {
  if (shape.dense > 0) {
    if (options.bottom_mlp.empty()) {
      fail(ErrorCode::kConfig,
           "model.bottom_mlp: DLRM needs one for its {} dense features, ending in width {}",
           shape.dense, dim);
    }
    if (dim > 0 && options.bottom_mlp.back() != dim) {
      fail(ErrorCode::kConfig,
           "model.bottom_mlp ends in width {}, but DLRM's vectors have dim {}{}; make them equal",
           options.bottom_mlp.back(), dim,
           options.projection_dim > 0 ? " (model.projection_dim)" : "");
    }
    dim = options.bottom_mlp.back();
    bottom = model.add_chain({.in = shape.dense, .y = {.is_compact = false}, .has_dx = false},
                             hidden_layers("dense.bottom", options.bottom_mlp));
  }
  if (num_fields < 2) {
    fail(ErrorCode::kConfig,
         "model.type: dlrm needs two vectors to interact (dense features make one), this model "
         "has {}",
         num_fields);
  }
  vectors = FeatureVectors(model, options, shape, dim);
  top_width = (bottom.empty() ? 0 : dim) + num_pairs(num_fields);
  top = make_head(model, options, shape, "dense.top", top_width, Element::kFp32);
  top_in = model.add_block({.cols = top_width});
  dtop_in = model.add_block({.cols = top_width});
  interaction = model.add_block(
      {.rows = {.per = Rows::Per::kSlice}, .cols = dot_interaction_scratch(num_fields, dim)});
}

Dcnv2::Dcnv2(DenseModel& model, const spec::Model& options, const ModelShape& shape)
    : dlogits(add_logits(model, shape)),
      all(model, options, shape, 0, model.element()),
      rank(options.cross_rank) {
  if (options.projection_dim > 0) {
    fail(ErrorCode::kConfig,
         "model.projection_dim is {}, but dcnv2 takes vectors of any dim; remove it",
         options.projection_dim);
  }
  if (options.cross_layers < 0 || options.cross_rank < 1) {
    fail(ErrorCode::kConfig,
         "model.cross_layers is {} and model.cross_rank is {}; at least 0 and 1",
         options.cross_layers, options.cross_rank);
  }
  const BlockUse wide{.cols = all.width, .element = model.element()};
  const BlockUse narrow{.cols = rank, .element = model.element()};
  for (std::size_t* const block : {&dx, &dx0, &du, &dv}) {
    *block = model.add_block(wide);
  }
  for (std::int64_t l = 0; l < options.cross_layers; ++l) {
    const std::string name = fmt::format("dense.cross.{}", l);
    Cross layer;
    layer.v = model.add_linear({.name = name + ".v", .shape = {.in = all.width, .out = rank}});
    layer.w = model.add_linear(
        {.name = name + ".w", .shape = {.in = rank, .out = all.width}, .bias = Bias::kZero});
    layer.h = model.add_block(narrow);
    layer.u = model.add_block(wide);
    layer.out = model.add_block(wide);
    model.share_block(DenseModel::kGradients[1], narrow);
    cross.push_back(layer);
  }
  top = make_head(model, options, shape, "dense.top", all.width, model.element());
}

DeepFm::DeepFm(DenseModel& model, const spec::Model& options, const ModelShape& shape)
    : dlogits(add_logits(model, shape)),
      dim(common_dim(options, shape)),
      all(model, options, shape, dim, Element::kFp32) {
  if (shape.features.empty()) {
    fail(ErrorCode::kConfig, "model.type: deepfm needs sparse features; declare sparse_features");
  }
  if (!all.bottom.empty() && all.x_width != dim) {
    fail(ErrorCode::kConfig,
         "model.bottom_mlp ends in width {}, but DeepFM's vectors have dim {}{}; make them equal, "
         "or remove it to give the dense values to the linear and deep terms only",
         all.x_width, dim, options.projection_dim > 0 ? " (model.projection_dim)" : "");
  }
  first_order =
      model.add_chain({.in = all.width}, {{.name = "dense.linear", .shape = {.out = shape.tasks}}});
  deep = make_head(model, options, shape, "dense.deep", all.width, Element::kFp32);
  first = model.add_block({.cols = shape.tasks});
  second = model.add_block({.cols = 1});
  sums = model.add_block({.cols = dim});
  dz = model.add_block({.cols = all.width});
  dfirst = model.add_block({.cols = all.width});
  dsecond = model.add_block({.cols = 1});
}

DenseModel dense_model(const spec::Model& options, const ModelShape& shape) {
  DenseModel model(options.compute);
  switch (options.type) {
    case spec::ModelKind::kDlrm:
      static_cast<void>(Dlrm(model, options, shape));
      break;
    case spec::ModelKind::kDcnv2:
      static_cast<void>(Dcnv2(model, options, shape));
      break;
    case spec::ModelKind::kDeepFm:
      static_cast<void>(DeepFm(model, options, shape));
      break;
  }
  return model;
}

}  // namespace weft::layout
