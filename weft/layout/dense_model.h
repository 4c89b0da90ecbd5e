/// The dense model as plain values: its linear layers, and the blocks of memory that a slice of the
/// batch has on its way forward and back. weft/nn runs what is described here and asks for blocks
/// by their numbers; the planner adds up the same blocks (dense_memory.h).
///
/// Notation: b samples of a slice, n elements of a sequence feature in it, e bytes of a value in
/// the model's precision. Formulas of the models: docs/models.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/layout/products.h"
#include "weft/spec/config.h"

namespace weft::layout {

/// One feature as the model sees it.
struct FeatureShape {
  std::string name;
  std::int64_t dim = 0;
  bool sequence = false;     ///< one vector per id; otherwise one per sample
  std::int64_t target = -1;  ///< sequence: index of the pooled feature attended with; -1 = the mean
};

/// What a model is built for.
struct ModelShape {
  std::int64_t dense = 0;  ///< dense values of a sample
  std::vector<FeatureShape> features;
  std::int64_t tasks = 1;
};

/// That of a valid configuration with its defaults filled in.
ModelShape model_shape(const spec::Config& config);

/// One slice of the batch.
struct SliceSize {
  std::int64_t samples = 0;
  std::span<const std::int64_t> elements = {};  ///< [features] of sequences; of pooled ones unread
};

/// What a matrix has a row of each.
struct Rows {
  /// A sample, an element of a sequence, or the slice: one row.
  enum class Per : std::uint8_t { kSample, kElement, kSlice };

  Per per = Per::kSample;
  std::size_t feature = 0;  ///< kElement: of which; padded_elements() of them

  /// How many they are of a slice.
  [[nodiscard]] std::int64_t count(const SliceSize& slice) const;
};

/// One use of a block.
struct BlockUse {
  Rows rows = {};
  std::int64_t cols = 0;
  Element element = Element::kFp32;
};

/// The bias of a linear layer: none, or one that begins as N(0, 1 / out) or as zero.
enum class Bias : std::uint8_t { kNone, kNormal, kZero };

/// One W [out, in] and its bias.
struct LinearLayer {
  std::string name = {};  ///< of the parameters: name + ".weight", name + ".bias"
  LayerShape shape = {};
  Bias bias = Bias::kNone;
  bool has_relu = false;
  bool has_dx = true;              ///< whether the gradient of its input is wanted
  std::int64_t bias_gradient = 0;  ///< offset in a slice's bias gradients
  Rows rows = {};                  ///< of the matrices it multiplies
};

/// A matrix that a chain meets at one of its ends.
struct EndMatrix {
  Element element = Element::kFp32;
  bool is_compact = true;  ///< else columns of a wider one
};

/// Linear layers, one after the other.
struct Chain {
  std::vector<std::size_t> layers;  ///< their numbers
  std::vector<std::size_t> blocks;  ///< of the outputs of all layers but the last
  std::size_t input = 0;            ///< block of x in the precision of the model, where x is not

  [[nodiscard]] bool empty() const { return layers.empty(); }
};

/// What a chain is made for.
struct ChainOptions {
  Rows rows = {};
  std::int64_t in = 0;
  EndMatrix x = {};
  EndMatrix y = {};
  bool has_dx = true;  ///< whether the gradient of x is wanted, a matrix like x
};

/// Collects layers and blocks while the parts of a model are made.
class DenseModel {
 public:
  explicit DenseModel(spec::Compute compute)
      : element_(compute == spec::Compute::kFp32 ? Element::kFp32 : Element::kBf16) {}

  /// Of the operands of products.
  [[nodiscard]] Element element() const { return element_; }

  [[nodiscard]] const std::vector<LinearLayer>& layers() const { return layers_; }

  [[nodiscard]] const std::vector<std::vector<BlockUse>>& blocks() const { return blocks_; }

  /// All products of a slice but those of the gradients of weights: their rows are those of the
  /// layer, counted from the slice.
  struct LayerProduct {
    Rows rows;
    Product product;
  };

  [[nodiscard]] const std::vector<LayerProduct>& products() const { return products_; }

  /// Values of all biases.
  [[nodiscard]] std::int64_t biases() const { return biases_; }

  /// The shapes of all layers.
  [[nodiscard]] std::vector<LayerShape> shapes() const;

  /// Appends a block and returns its number.
  std::size_t add_block(const BlockUse& use);

  /// The two that all layers share for gradients inside them.
  static constexpr std::size_t kGradients[2] = {0, 1};

  /// A further use of a block, not at the same time as others: it has room for each of them.
  void share_block(std::size_t block, const BlockUse& use) { blocks_[block].push_back(use); }

  /// Appends layers; in, gradients of biases, rows and numbers are filled in.
  Chain add_chain(const ChainOptions& options, std::vector<LinearLayer> layers);

  /// A layer that is not part of a chain: its operands are compact and in the precision of the
  /// model. Returns its number.
  std::size_t add_linear(LinearLayer layer);

 private:
  void fit_ends(const ChainOptions& options, const Chain& chain);

  Element element_;
  std::vector<LinearLayer> layers_;
  std::vector<std::vector<BlockUse>> blocks_ = {{}, {}};
  std::vector<LayerProduct> products_;
  std::int64_t biases_ = 0;
};

/// One vector [b, dim] per feature: pooled ones as they come, sequences through target attention
/// or their mean. Then, where a model wants all of one dim D, fields: vectors of other dims go
/// through "dense.projection.<feature>", a linear layer without bias.
struct FeatureVectors {
  /// What becomes of a feature: nothing, the mean of a sequence, or target attention.
  enum class Kind : std::uint8_t { kPooled, kMean, kAttention };

  /// One feature: its chains, then its blocks.
  struct Feature {
    Kind kind = Kind::kPooled;
    std::int64_t dim = 0;
    std::size_t target = 0;  ///< kAttention
    Chain attention;         ///< 4 dim -> 1
    Chain projection;        ///< empty: the field is the vector
    std::size_t vector = 0;  ///< sequences
    std::size_t dvector = 0;
    std::size_t field = 0;  ///< projected ones
    std::size_t dfield = 0;
    std::size_t inputs = 0;  ///< attention: [n, 4 dim]
    std::size_t dinputs = 0;
    std::size_t weights = 0;  ///< [n, 1]
    std::size_t dweights = 0;
  };

  std::int64_t field_dim = 0;  ///< 0: fields are the vectors themselves
  std::vector<Feature> features;

  FeatureVectors() = default;

  /// Throws Error(kConfig) on a target that is not a pooled feature of the same dim.
  FeatureVectors(DenseModel& model,
                 const spec::Model& options,
                 const ModelShape& shape,
                 std::int64_t dim_of_fields);
};

/// x, v_1 .. v_F side by side, for the models whose layers see all values at once. x is the bottom
/// MLP's output, or the dense values as they are where there is no bottom MLP, or nothing where
/// there are none; then the field of every feature in order.
struct Concatenated {
  Element element;
  std::int64_t x_width;
  std::int64_t width;
  std::size_t values;  ///< block [b, width]
  Chain bottom;
  FeatureVectors vectors;

  Concatenated(DenseModel& model,
               const spec::Model& options,
               const ModelShape& shape,
               std::int64_t field_dim,
               Element element_of_values);
};

/// The parts of DLRM. `dlogits` of all three: block of the gradients of the logits.
struct Dlrm {
  std::size_t dlogits;
  std::int64_t dim;
  std::int64_t num_fields;
  Chain bottom;
  FeatureVectors vectors;
  std::int64_t top_width = 0;
  Chain top;
  std::size_t top_in = 0;
  std::size_t dtop_in = 0;
  std::size_t interaction = 0;  ///< block of dot_interaction_scratch()

  /// Throws Error(kConfig) naming the key, as nn::Model::create() says; so do the others.
  Dlrm(DenseModel& model, const spec::Model& options, const ModelShape& shape);
};

/// The parts of DCNv2.
struct Dcnv2 {
  /// One cross layer.
  struct Cross {
    std::size_t v = 0;  ///< numbers of layers
    std::size_t w = 0;
    std::size_t h = 0;    ///< block: V x_l
    std::size_t u = 0;    ///< block: W (V x_l) + b
    std::size_t out = 0;  ///< block: x_{l+1}
  };

  std::size_t dlogits;
  Concatenated all;
  std::int64_t rank;
  std::vector<Cross> cross;
  Chain top;
  std::size_t dx = 0;  ///< blocks [b, width]
  std::size_t dx0 = 0;
  std::size_t du = 0;
  std::size_t dv = 0;

  Dcnv2(DenseModel& model, const spec::Model& options, const ModelShape& shape);
};

/// The parts of DeepFM.
struct DeepFm {
  std::size_t dlogits;
  std::int64_t dim;
  Concatenated all;
  Chain first_order;
  Chain deep;
  std::size_t first = 0;  ///< block [b, tasks]
  std::size_t second = 0;
  std::size_t sums = 0;
  std::size_t dz = 0;
  std::size_t dfirst = 0;
  std::size_t dsecond = 0;

  DeepFm(DenseModel& model, const spec::Model& options, const ModelShape& shape);
};

/// The layers and blocks of any of them. Throws Error(kConfig) as they do. REQUIRES: widths and
/// dims are positive, as validation of a configuration and nn::Model::create() see to.
DenseModel dense_model(const spec::Model& options, const ModelShape& shape);

}  // namespace weft::layout
