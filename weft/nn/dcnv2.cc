// DCNv2 (Wang et al., WWW 2021) as in MLPerf's DLRM-DCNv2: x_0 = [x, v_1 .. v_F]; low-rank cross
// layers x_{l+1} = x_0 * (W_l (V_l x_l) + b_l) + x_l; the head sees the last x_l.
//
// The cross layers' matrices are as wide as all features together, and what is done to them
// element by element is bound by their bytes. In bf16 compute they are bf16, forward and back.
#include "weft/base/error.h"
#include "weft/kernels/cross.h"
#include "weft/kernels/elementwise.h"
#include "weft/nn/concatenated.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

// T: float or BFloat16, the type of the computation.
template <typename T>
class Dcnv2 final : public DenseModel {
 public:
  Dcnv2(const spec::Model& options, const ModelShape& shape);

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  struct Cross {
    std::size_t v = 0;  // linear layers in the Builder
    std::size_t w = 0;
    std::int64_t bias = 0;           // of W: its offset
    std::int64_t bias_gradient = 0;  // and that of its gradient
    std::size_t h_slot = 0;          // V x_l
    std::size_t u_slot = 0;          // W (V x_l) + b
    std::size_t out_slot = 0;        // x_{l+1}
  };

  // What operations on a cross layer need.
  kernels::CrossLayer layer_of(const Cross& cross, ModelLane& lane) const {
    return {.workspace = lane.workspace.get(),
            .weights = weights_.prepared,
            .v = cross.v,
            .w = cross.w};
  }

  // The input of layer l.
  Matrix<T> layer_input(const SliceInput& input, ModelLane& lane, std::size_t l) const {
    return l == 0 ? all_.values(input, lane).template as<T>()
                  : lane.get<T>(cross_[l - 1].out_slot, input.size, all_.width());
  }

  Concatenated all_;
  std::int64_t rank_;
  std::vector<Cross> cross_;
  Mlp top_;
  std::size_t dx_slot_;
  std::size_t dx0_slot_;
  std::size_t du_slot_;
  std::size_t dv_slot_;
};

template <typename T>
Dcnv2<T>::Dcnv2(const spec::Model& options, const ModelShape& shape)
    : DenseModel(options, shape),
      all_(builder_, options, shape, 0, kernels::kDTypeOf<T>),
      rank_(options.cross_rank),
      dx_slot_(builder_.add_slot()),
      dx0_slot_(builder_.add_slot()),
      du_slot_(builder_.add_slot()),
      dv_slot_(builder_.add_slot()) {
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
  for (std::int64_t l = 0; l < options.cross_layers; ++l) {
    const std::string name = fmt::format("dense.cross.{}", l);
    Cross cross;
    cross.v = builder_.add_linear(name + ".v", all_.width(), rank_, Bias::kNone);
    cross.w = builder_.add_linear(name + ".w", rank_, all_.width(), Bias::kZero);
    cross.bias = builder_.layers()[cross.w].bias;
    cross.bias_gradient = builder_.layers()[cross.w].bias_gradient;
    cross.h_slot = builder_.add_slot();
    cross.u_slot = builder_.add_slot();
    cross.out_slot = builder_.add_slot();
    cross_.push_back(std::move(cross));
  }
  top_ = make_head("dense.top", all_.width());
}

template <typename T>
void Dcnv2<T>::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<T> x0 = all_.forward(weights_, input, lane).template as<T>();
  Matrix<T> x = x0;
  for (const Cross& cross : cross_) {
    const Matrix<T> u = lane.get<T>(cross.u_slot, input.size, all_.width());
    const Matrix<T> next = lane.get<T>(cross.out_slot, input.size, all_.width());
    kernels::cross_forward(*lane.ctx, {.layer = layer_of(cross, lane),
                                       .bias = weights_.flat + cross.bias,
                                       .x0 = x0,
                                       .x = x,
                                       .h = lane.get<T>(cross.h_slot, input.size, rank_),
                                       .u = u,
                                       .y = next});
    x = next;
  }
  top_.forward(weights_, lane, x, logits);
}

template <typename T>
void Dcnv2<T>::run_backward(const SliceInput& input,
                            ModelTerms& terms,
                            ModelLane& lane,
                            Matrix<float> dlogits,
                            SliceGradients& gradients) const {
  const auto scratch = [&](std::size_t slot) {
    return lane.get<T>(slot, input.size, all_.width());
  };
  const Matrix<T> dx = scratch(dx_slot_);    // of x_l, in place from layer to layer
  const Matrix<T> dx0 = scratch(dx0_slot_);  // of x_0 as the factor of every layer
  const Matrix<T> du = scratch(du_slot_);
  const Matrix<T> dv = scratch(dv_slot_);  // of x_l through W (V x_l), not yet part of dx
  const Matrix<T> x0 = layer_input(input, lane, 0);

  top_.backward(weights_, terms, lane, {layer_input(input, lane, cross_.size()), {}, dlogits, dx});
  for (std::size_t l = cross_.size(); l-- > 0;) {
    const bool last = l + 1 == cross_.size();
    const Cross& cross = cross_[l];
    kernels::cross_backward(*lane.ctx,
                            {.layer = layer_of(cross, lane),
                             .x0 = x0,
                             .x = layer_input(input, lane, l),
                             .h = lane.get<T>(cross.h_slot, input.size, rank_),
                             .u = scratch(cross.u_slot),
                             .more = last ? Matrix<const T>{} : Matrix<const T>(dv),
                             .dy = dx,
                             .du = du,
                             .dx0 = dx0,
                             .dh = lane.get<T>(Builder::kGradientSlots[1], input.size, rank_),
                             .dv = dv,
                             .sum = last ? kernels::CrossSum::kBegin : kernels::CrossSum::kAdd,
                             .dbias = terms.bias_gradients() + cross.bias_gradient,
                             .v_operands = terms.operands(cross.v),
                             .w_operands = terms.operands(cross.w)});
  }
  if (!cross_.empty()) {
    kernels::add(*lane.ctx, {.from = dv, .to = dx});
    kernels::add(*lane.ctx, {.from = dx0, .to = dx});
  }
  all_.split_gradients(input, lane, dx, gradients);
  all_.backward(weights_, input, terms, lane, dx, gradients);
}

}  // namespace

std::unique_ptr<Model> make_dcnv2(const spec::Model& options, const ModelShape& shape) {
  if (options.compute == spec::Compute::kBf16) {
    return std::make_unique<Dcnv2<BFloat16>>(options, shape);
  }
  return std::make_unique<Dcnv2<float>>(options, shape);
}

}  // namespace weft::nn
