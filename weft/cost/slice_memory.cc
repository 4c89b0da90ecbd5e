#include "weft/cost/slice_memory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "weft/cost/memory.h"

namespace weft::cost {
namespace {

constexpr double kPiece = 256.0;  // samples of a weight gradient's product: kernels::kMaxPiece
constexpr std::size_t kGradientSlots[] = {0, 1};

/// Rows of a product over elements of sequences: nn::padded_elements.
double padded_elements(double n) {
  const auto below = std::bit_floor(static_cast<std::uint64_t>(std::max(n, 1.0)));
  return round_up(std::ceil(n), std::max(16.0, static_cast<double>(below) / 8.0));
}

/// A matrix as a layer meets it.
struct Values {
  double cols = 0.0;
  double bytes = kFloatBytes;  ///< of a value
  bool compact = true;
};

struct Layers {
  double in = 0.0;
  std::vector<double> outs;
  std::size_t first = 0;           ///< number of the first one
  std::vector<std::size_t> slots;  ///< of outputs, but the last one's
  std::size_t input_slot = 0;
};

/// One slice's way through a model, as the memory of a thread and of the slice sees it.
class SlicePass {
 public:
  SlicePass(const spec::Config& config, const std::vector<double>& elements)
      : config_(config),
        elements_(elements),
        value_(config.model.compute == spec::Compute::kBf16 ? 2.0 : kFloatBytes),
        stored_(stored_bytes(config)) {}

  /// Forward and backward of a slice of so many samples.
  void run(double samples) {
    linears_.clear();
    slots_ = 2;  // after the two that all layers share
    b_ = samples;
    const std::size_t dlogits = slots_++;
    switch (config_.model.type) {
      case spec::ModelKind::kDlrm:
        dlrm(dlogits);
        break;
      case spec::ModelKind::kDcnv2:
        dcnv2(dlogits);
        break;
      case spec::ModelKind::kDeepFm:
        deepfm(dlogits);
        break;
    }
  }

  [[nodiscard]] const std::vector<Linear>& linears() const { return linears_; }

  /// Of the lane, after one or more slices.
  [[nodiscard]] double lane_bytes() const {
    return lane_.counted_bytes() + block_bytes(compact_in_) + block_bytes(compact_out_);
  }

  /// Of the slice that ran last; forgets it.
  double take_slice_bytes() {
    const double bytes = terms_.counted_bytes();
    terms_ = {};
    return bytes;
  }

 private:
  struct Feature {
    double dim = 0.0, field = 0.0;
    bool sequence = false, attended = false, projected = false;
    std::size_t vector = 0, dvector = 0, fields = 0, dfields = 0, inputs = 0, dinputs = 0,
                weights = 0, dweights = 0;
    Layers attention, projection;
    double elements = 0.0;
  };

  [[nodiscard]] double tasks() const { return static_cast<double>(config_.tasks.size()); }

  [[nodiscard]] double dense() const { return static_cast<double>(config_.dense_features.size()); }

  Layers layers(double in, const std::vector<std::int64_t>& widths, bool bias = true) {
    Layers made{.in = in, .outs = {}, .first = linears_.size(), .slots = {}, .input_slot = 0};
    for (const std::int64_t width : widths) {
      linears_.push_back({in, static_cast<double>(width), bias});
      made.outs.push_back(static_cast<double>(width));
      made.slots.push_back(slots_++);
      in = static_cast<double>(width);
    }
    made.input_slot = slots_++;
    return made;
  }

  Layers head(double in) {
    std::vector<std::int64_t> widths = config_.model.top_mlp;
    widths.push_back(static_cast<std::int64_t>(config_.tasks.size()));
    return layers(in, widths);
  }

  void need(std::size_t slot, double values, double bytes) { lane_.need(slot, values * bytes); }

  /// A product [rows, in] to [rows, out]: copies of what is not compact, too short, or not of the
  /// type that is multiplied.
  void product(double rows, const Values& in, const Values& out) {
    const bool is_short = stored_ < kFloatBytes || in.cols < 16.0;
    const double k = is_short ? round_up(in.cols, unit()) : in.cols;
    if (!in.compact || k != in.cols || in.bytes != stored_) {
      compact_in_ = std::max(compact_in_, rows * k * stored_);
    }
    const double out_bytes = std::max(out.bytes, stored_);
    if (!out.compact || out.bytes != out_bytes) {
      compact_out_ = std::max(compact_out_, rows * out.cols * out_bytes);
    }
  }

  /// Rows of packed matrices come in so many.
  [[nodiscard]] double unit() const { return stored_ < kFloatBytes ? 32.0 : 16.0; }

  void forward(const Layers& chain, double rows, Values x, const Values& y) {
    if (x.bytes != value_) {
      need(chain.input_slot, rows * x.cols, value_);
      x = {.cols = x.cols, .bytes = value_};
    }
    for (std::size_t l = 0; l < chain.outs.size(); ++l) {
      Values out = y;
      if (l + 1 < chain.outs.size()) {
        out = {.cols = chain.outs[l], .bytes = value_};
        need(chain.slots[l], rows * out.cols, value_);
      }
      product(rows, x, out);
      x = out;
    }
  }

  /// Operands of a layer's weight gradient.
  void operands(std::size_t layer, double rows, double out, double in) {
    const double pieces = std::ceil(rows / kPiece);
    const double padded = round_up(std::ceil(rows / pieces), unit());
    terms_.need(2 * layer, pieces * round_up(out * padded * value_, 64.0));
    terms_.need(2 * layer + 1, pieces * padded * round_up(in, kPanel) * stored_);
    if (value_ != stored_) {  // a tile's rows, widened
      compact_in_ = std::max(compact_in_, largest_piece(out, kTileRows, 16.0) * padded * stored_);
    }
  }

  /// Of all biases, behind the operands of all layers.
  void bias_gradients() {
    double values = 0.0;
    for (const Linear& linear : linears_) {
      values += linear.bias ? linear.out : 0.0;
    }
    terms_.need(2 * linears_.size(), values * kFloatBytes);
  }

  /// `dx` of no columns: not wanted.
  void backward(const Layers& chain, double rows, Values dy, const Values& dx) {
    bias_gradients();
    if (dy.bytes != value_ || !dy.compact) {
      need(kGradientSlots[0], rows * dy.cols, value_);
      dy = {.cols = dy.cols, .bytes = value_};
    }
    for (std::size_t l = chain.outs.size(); l-- > 0;) {
      const double below = l == 0 ? chain.in : chain.outs[l - 1];
      operands(chain.first + l, rows, chain.outs[l], below);
      if (l == 0) {
        if (dx.cols > 0.0) {
          product(rows, dy, dx);
        }
        return;
      }
      const Values din{.cols = below, .bytes = value_};
      need(kGradientSlots[(chain.outs.size() - l) % 2], rows * below, value_);
      product(rows, dy, din);
      dy = din;
    }
  }

  // ---- features ---------------------------------------------------------------------------------

  void make_features(double field_dim) {
    features_.clear();
    for (std::size_t f = 0; f < config_.sparse_features.size(); ++f) {
      const spec::SparseFeature& declared = config_.sparse_features[f];
      const auto table = static_cast<std::size_t>(spec::table_index(config_, declared));
      Feature feature;
      feature.dim = static_cast<double>(config_.tables[table].embedding_dim);
      feature.field = field_dim > 0.0 ? field_dim : feature.dim;
      feature.sequence = declared.pooling == spec::Pooling::kNone;
      feature.elements = feature.sequence ? b_ * elements_[f] : 0.0;
      if (feature.sequence) {
        feature.vector = slots_++;
        feature.dvector = slots_++;
        feature.attended =
            config_.model.sequence == spec::SequencePooling::kAttention && !declared.target.empty();
      }
      if (feature.attended) {
        std::vector<std::int64_t> widths = config_.model.attention_mlp;
        widths.push_back(1);
        feature.attention = layers(4.0 * feature.dim, widths);
        feature.inputs = slots_++;
        feature.dinputs = slots_++;
        feature.weights = slots_++;
        feature.dweights = slots_++;
      }
      feature.projected = feature.field != feature.dim;
      if (feature.projected) {
        feature.projection = layers(feature.dim, {static_cast<std::int64_t>(feature.field)}, false);
        feature.fields = slots_++;
        feature.dfields = slots_++;
      }
      features_.push_back(std::move(feature));
    }
  }

  void forward_features() {
    for (const Feature& feature : features_) {
      if (feature.attended) {
        const double rows = padded_elements(feature.elements);
        need(feature.inputs, rows * 4.0 * feature.dim, kFloatBytes);
        need(feature.weights, rows, kFloatBytes);
        forward(feature.attention, rows, {.cols = 4.0 * feature.dim}, {.cols = 1.0});
      }
      if (feature.sequence) {
        need(feature.vector, b_ * feature.dim, kFloatBytes);
      }
    }
    for (const Feature& feature : features_) {
      if (feature.projected) {
        need(feature.fields, b_ * feature.field, kFloatBytes);
        forward(feature.projection, b_, vector_of(feature), {.cols = feature.field});
      }
    }
  }

  /// Pooled vectors lie in the columns of a wider matrix.
  [[nodiscard]] Values vector_of(const Feature& feature) const {
    return {.cols = feature.dim, .compact = feature.sequence || features_.size() == 1};
  }

  void place_gradients() {
    for (const Feature& feature : features_) {
      if (feature.sequence) {
        need(feature.dvector, b_ * feature.dim, kFloatBytes);
      }
      if (feature.projected) {
        need(feature.dfields, b_ * feature.field, kFloatBytes);
      }
    }
  }

  void backward_features() {
    for (const Feature& feature : features_) {
      if (feature.projected) {
        backward(feature.projection, b_, {.cols = feature.field}, vector_of(feature));
      }
    }
    for (const Feature& feature : features_) {
      if (feature.attended) {
        const double rows = padded_elements(feature.elements);
        need(feature.dinputs, rows * 4.0 * feature.dim, kFloatBytes);
        need(feature.dweights, rows, kFloatBytes);
        backward(feature.attention, rows, {.cols = 1.0}, {.cols = 4.0 * feature.dim});
      }
    }
  }

  /// The dim of all vectors, or what they are projected to.
  [[nodiscard]] double common_dim() const {
    const auto projected = static_cast<double>(config_.model.projection_dim);
    if (projected > 0.0 || config_.sparse_features.empty()) {
      return projected;
    }
    const auto table =
        static_cast<std::size_t>(spec::table_index(config_, config_.sparse_features.front()));
    return static_cast<double>(config_.tables[table].embedding_dim);
  }

  // ---- models -----------------------------------------------------------------------------------

  void dlrm(std::size_t dlogits) {
    const bool bottom = dense() > 0.0;
    const double dim = bottom ? static_cast<double>(config_.model.bottom_mlp.back()) : common_dim();
    const double fields = static_cast<double>(config_.sparse_features.size()) + (bottom ? 1 : 0);
    const double width = (bottom ? dim : 0.0) + fields * (fields - 1.0) / 2.0;
    const Layers low = bottom ? layers(dense(), config_.model.bottom_mlp) : Layers{};
    make_features(dim);
    const Layers top = head(width);
    const std::size_t top_in = slots_++;
    const std::size_t dtop_in = slots_++;
    const std::size_t interaction = slots_++;
    const double rows = round_up(fields, 16.0);
    const Values x{.cols = dim, .bytes = kFloatBytes, .compact = false};
    need(top_in, b_ * width, kFloatBytes);
    if (bottom) {
      forward(low, b_, {.cols = dense()}, x);
    }
    forward_features();
    need(interaction, rows * (2.0 * round_up(dim, 16.0) + rows), kFloatBytes);
    forward(top, b_, {.cols = width}, {.cols = tasks()});
    need(dlogits, b_ * tasks(), kFloatBytes);
    need(dtop_in, b_ * width, kFloatBytes);
    backward(top, b_, {.cols = tasks()}, {.cols = width});
    place_gradients();
    backward_features();
    if (bottom) {
      backward(low, b_, x, {});
    }
  }

  /// Dense values or what a bottom MLP makes of them, and all vectors, side by side.
  struct All {
    double x = 0.0, width = 0.0, bytes = kFloatBytes;
    std::size_t slot = 0;
    Layers bottom;
  };

  All concatenated(double field_dim, double bytes) {
    All all{.x = dense(), .width = 0.0, .bytes = bytes, .slot = slots_++, .bottom = {}};
    if (!config_.model.bottom_mlp.empty()) {
      all.bottom = layers(dense(), config_.model.bottom_mlp);
      all.x = all.bottom.outs.back();
    }
    make_features(field_dim);
    all.width = all.x;
    for (const Feature& feature : features_) {
      all.width += feature.field;
    }
    return all;
  }

  void forward_all(const All& all) {
    need(all.slot, b_ * all.width, all.bytes);
    if (!all.bottom.outs.empty()) {
      forward(all.bottom, b_, {.cols = dense()},
              {.cols = all.x, .bytes = all.bytes, .compact = false});
    }
    forward_features();
  }

  void backward_all(const All& all) {
    place_gradients();
    backward_features();
    if (!all.bottom.outs.empty()) {
      backward(all.bottom, b_, {.cols = all.x, .bytes = all.bytes, .compact = false}, {});
    }
  }

  void dcnv2(std::size_t dlogits) {
    const All all = concatenated(0.0, value_);
    const std::size_t gradients[] = {slots_++, slots_++, slots_++, slots_++};
    const Values wide{.cols = all.width, .bytes = value_};
    std::vector<Layers> cross;
    std::vector<std::size_t> outputs;
    for (std::int64_t l = 0; l < config_.model.cross_layers; ++l) {
      cross.push_back(layers(all.width, {config_.model.cross_rank}, false));
      Layers& both = cross.back();  // a chain of two, the second with a bias
      --slots_;
      linears_.push_back({both.outs.front(), all.width, true});
      both.outs.push_back(all.width);
      both.slots.push_back(slots_++);
      both.input_slot = slots_++;
      outputs.push_back(slots_++);
      outputs.push_back(slots_++);
    }
    const Layers top = head(all.width);
    forward_all(all);
    for (std::size_t l = 0; l < cross.size(); ++l) {
      need(outputs[2 * l], b_ * all.width, value_);
      need(outputs[2 * l + 1], b_ * all.width, value_);
      forward(cross[l], b_, wide, wide);
    }
    forward(top, b_, wide, {.cols = tasks()});
    need(dlogits, b_ * tasks(), kFloatBytes);
    for (const std::size_t slot : gradients) {
      need(slot, b_ * all.width, value_);
    }
    backward(top, b_, {.cols = tasks()}, wide);
    for (std::size_t l = cross.size(); l-- > 0;) {
      backward(cross[l], b_, wide, wide);
    }
    backward_all(all);
  }

  void deepfm(std::size_t dlogits) {
    const All all = concatenated(common_dim(), kFloatBytes);
    const std::size_t first = slots_++, second = slots_++, sums = slots_++, dz = slots_++,
                      dfirst = slots_++, dsecond = slots_++;
    const Values z{.cols = all.width};
    const Layers linear = layers(all.width, {static_cast<std::int64_t>(tasks())}, false);
    const Layers deep = head(all.width);
    forward_all(all);
    need(first, b_ * tasks(), kFloatBytes);
    forward(linear, b_, z, {.cols = tasks()});
    forward(deep, b_, z, {.cols = tasks()});
    need(sums, b_ * common_dim(), kFloatBytes);
    need(second, b_, kFloatBytes);
    need(dlogits, b_ * tasks(), kFloatBytes);
    need(dz, b_ * all.width, kFloatBytes);
    need(dfirst, b_ * all.width, kFloatBytes);
    backward(deep, b_, {.cols = tasks()}, z);
    backward(linear, b_, {.cols = tasks()}, z);
    need(dsecond, b_, kFloatBytes);
    backward_all(all);
  }

  const spec::Config& config_;
  const std::vector<double>& elements_;
  double value_;   ///< bytes, in layers' inputs and outputs
  double stored_;  ///< and where products read them
  double b_ = 0.0;
  std::size_t slots_ = 2;
  std::vector<Linear> linears_;
  std::vector<Feature> features_;
  ArenaMemory lane_, terms_;
  double compact_in_ = 0.0, compact_out_ = 0.0;
};

}  // namespace

double stored_bytes(const spec::Config& config) {
  const spec::Target target = config.numerics.target;
  const bool widened = target == spec::Target::kSse4 || target == spec::Target::kAvx2 ||
                       target == spec::Target::kAvx512;
  return config.model.compute == spec::Compute::kBf16 && !widened ? 2.0 : kFloatBytes;
}

double largest_piece(double count, double most, double unit) {
  return std::min(count, round_up(std::ceil(count / std::ceil(count / most)), unit));
}

SliceMemory slice_memory(const spec::Config& config,
                         const std::vector<double>& elements,
                         const std::vector<double>& samples) {
  SlicePass pass(config, elements);
  SliceMemory memory;
  for (const double slice : samples) {
    pass.run(slice);
    memory.operands += pass.take_slice_bytes();
  }
  memory.layers = pass.linears();
  memory.lane = pass.lane_bytes();
  return memory;
}

}  // namespace weft::cost
