// DCNv2 (Wang et al., WWW 2021) as in MLPerf's DLRM-DCNv2: x_0 = [x, v_1 .. v_F]; low-rank cross
// layers x_{l+1} = x_0 * (W_l (V_l x_l) + b_l) + x_l; the head sees the last x_l.
//
// The cross layers' matrices are as wide as all features together, and what is done to them
// element by element is bound by their bytes. In bf16 compute they are bf16, forward and back.
#include <utility>

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
  Dcnv2(layout::DenseModel description, layout::Dcnv2 parts, const ModelShape& shape)
      : DenseModel(std::move(description), shape, parts.dlogits), parts_(std::move(parts)) {}

 private:
  void run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const override;
  void run_backward(const SliceInput& input,
                    ModelTerms& terms,
                    ModelLane& lane,
                    Matrix<float> dlogits,
                    SliceGradients& gradients) const override;

  using Cross = layout::Dcnv2::Cross;

  [[nodiscard]] Concatenated all() const { return {description_, parts_.all}; }

  [[nodiscard]] Mlp top() const { return {description_, parts_.top}; }

  [[nodiscard]] std::int64_t width() const { return parts_.all.width; }

  // What operations on a cross layer need.
  kernels::CrossLayer layer_of(const Cross& cross, ModelLane& lane) const {
    return {.workspace = lane.workspace.get(),
            .weights = weights_.prepared,
            .v = cross.v,
            .w = cross.w};
  }

  // The input of layer l.
  Matrix<T> layer_input(const SliceInput& input, ModelLane& lane, std::size_t l) const {
    return l == 0 ? all().values(input, lane).template as<T>()
                  : lane.get<T>(parts_.cross[l - 1].out, input.size, width());
  }

  layout::Dcnv2 parts_;
};

template <typename T>
void Dcnv2<T>::run_forward(const SliceInput& input, ModelLane& lane, Matrix<float> logits) const {
  const Matrix<T> x0 = all().forward(weights_, input, lane).template as<T>();
  Matrix<T> x = x0;
  for (const Cross& cross : parts_.cross) {
    const Matrix<T> u = lane.get<T>(cross.u, input.size, width());
    const Matrix<T> next = lane.get<T>(cross.out, input.size, width());
    kernels::cross_forward(*lane.ctx, {.layer = layer_of(cross, lane),
                                       .bias = weights_.bias(cross.w),
                                       .x0 = x0,
                                       .x = x,
                                       .h = lane.get<T>(cross.h, input.size, parts_.rank),
                                       .u = u,
                                       .y = next});
    x = next;
  }
  top().forward(weights_, lane, x, logits);
}

template <typename T>
void Dcnv2<T>::run_backward(const SliceInput& input,
                            ModelTerms& terms,
                            ModelLane& lane,
                            Matrix<float> dlogits,
                            SliceGradients& gradients) const {
  const auto scratch = [&](std::size_t slot) { return lane.get<T>(slot, input.size, width()); };
  const Matrix<T> dx = scratch(parts_.dx);    // of x_l, in place from layer to layer
  const Matrix<T> dx0 = scratch(parts_.dx0);  // of x_0 as the factor of every layer
  const Matrix<T> du = scratch(parts_.du);
  const Matrix<T> dv = scratch(parts_.dv);  // of x_l through W (V x_l), not yet part of dx
  const Matrix<T> x0 = layer_input(input, lane, 0);

  top().backward(weights_, terms, lane,
                 {layer_input(input, lane, parts_.cross.size()), {}, dlogits, dx});
  for (std::size_t l = parts_.cross.size(); l-- > 0;) {
    const bool last = l + 1 == parts_.cross.size();
    const Cross& cross = parts_.cross[l];
    kernels::cross_backward(
        *lane.ctx, {.layer = layer_of(cross, lane),
                    .x0 = x0,
                    .x = layer_input(input, lane, l),
                    .h = lane.get<T>(cross.h, input.size, parts_.rank),
                    .u = scratch(cross.u),
                    .more = last ? Matrix<const T>{} : Matrix<const T>(dv),
                    .dy = dx,
                    .du = du,
                    .dx0 = dx0,
                    .dh = lane.get<T>(layout::DenseModel::kGradients[1], input.size, parts_.rank),
                    .dv = dv,
                    .sum = last ? kernels::CrossSum::kBegin : kernels::CrossSum::kAdd,
                    .dbias = terms.bias_gradient(cross.w),
                    .v_operands = terms.operands(cross.v),
                    .w_operands = terms.operands(cross.w)});
  }
  if (!parts_.cross.empty()) {
    kernels::add(*lane.ctx, {.from = dv, .to = dx});
    kernels::add(*lane.ctx, {.from = dx0, .to = dx});
  }
  all().split_gradients(input, lane, dx, gradients);
  all().backward(weights_, input, terms, lane, dx, gradients);
}

}  // namespace

std::unique_ptr<Model> make_dcnv2(const spec::Model& options, const ModelShape& shape) {
  layout::DenseModel description(options.compute);
  layout::Dcnv2 parts(description, options, shape);
  if (options.compute == spec::Compute::kBf16) {
    return std::make_unique<Dcnv2<BFloat16>>(std::move(description), std::move(parts), shape);
  }
  return std::make_unique<Dcnv2<float>>(std::move(description), std::move(parts), shape);
}

}  // namespace weft::nn
