// DCNv2 (Wang et al., WWW 2021) as in MLPerf's DLRM-DCNv2: x_0 = [x, v_1 .. v_F]; low-rank cross
// layers x_{l+1} = x_0 * (W_l (V_l x_l) + b_l) + x_l; the head sees the last x_l.
#include "weft/base/error.h"
#include "weft/kernels/elementwise.h"
#include "weft/nn/concatenated.h"
#include "weft/nn/dense_model.h"

namespace weft::nn {

namespace {

class Dcnv2 final : public DenseModel {
 public:
  Dcnv2(const spec::Model& options, const ModelShape& shape);

 private:
  void run_forward(const PartInput& input,
                   PartWorkspace& workspace,
                   Matrix<float> logits) const override;
  void run_backward(const PartInput& input,
                    PartWorkspace& workspace,
                    Matrix<float> dlogits,
                    float* flat_gradients,
                    PartGradients& gradients) const override;

  struct Cross {
    Mlp low_rank;  // u = W (V x) + b
    std::size_t u_slot = 0;
    std::size_t out_slot = 0;  // x_{l+1}
  };

  // The input of layer l.
  Matrix<float> layer_input(const PartInput& input, PartWorkspace& workspace, std::size_t l) const {
    return l == 0 ? all_.values(input, workspace)
                  : workspace.get<float>(cross_[l - 1].out_slot, input.size, all_.width());
  }

  Concatenated all_;
  std::vector<Cross> cross_;
  Mlp top_;
  std::size_t dx_slot_;
  std::size_t dx0_slot_;
  std::size_t du_slot_;
  std::size_t dv_slot_;
};

Dcnv2::Dcnv2(const spec::Model& options, const ModelShape& shape)
    : DenseModel(options, shape),
      all_(builder_, options, shape, 0),
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
    cross.low_rank =
        Mlp(builder_, all_.width(),
            {{name + ".v", options.cross_rank, kernels::Activation::kNone, Bias::kNone},
             {name + ".w", all_.width(), kernels::Activation::kNone, Bias::kZero}});
    cross.u_slot = builder_.add_slot();
    cross.out_slot = builder_.add_slot();
    cross_.push_back(std::move(cross));
  }
  top_ = make_head("dense.top", all_.width());
}

void Dcnv2::run_forward(const PartInput& input,
                        PartWorkspace& workspace,
                        Matrix<float> logits) const {
  const Matrix<float> x0 = all_.forward(weights_, input, workspace);
  Matrix<float> x = x0;
  for (const Cross& cross : cross_) {
    const Matrix<float> u = workspace.get<float>(cross.u_slot, input.size, all_.width());
    const Matrix<float> next = workspace.get<float>(cross.out_slot, input.size, all_.width());
    cross.low_rank.forward(weights_, workspace, x, u);
    kernels::cross_forward(x0, u, x, next);
    x = next;
  }
  top_.forward(weights_, workspace, x, logits);
}

void Dcnv2::run_backward(const PartInput& input,
                         PartWorkspace& workspace,
                         Matrix<float> dlogits,
                         float* flat_gradients,
                         PartGradients& gradients) const {
  const auto scratch = [&](std::size_t slot) {
    return workspace.get<float>(slot, input.size, all_.width());
  };
  const Matrix<float> dx = scratch(dx_slot_);    // of x_l, in place from layer to layer
  const Matrix<float> dx0 = scratch(dx0_slot_);  // of x_0 as the factor of every layer
  const Matrix<float> du = scratch(du_slot_);
  const Matrix<float> dv = scratch(dv_slot_);  // of x_l through W (V x_l)
  const Matrix<float> x0 = all_.values(input, workspace);

  top_.backward(weights_, workspace,
                {layer_input(input, workspace, cross_.size()), {}, dlogits, dx}, flat_gradients);
  kernels::fill_zero(dx0);
  for (std::size_t l = cross_.size(); l-- > 0;) {
    const Matrix<float> u = scratch(cross_[l].u_slot);
    kernels::cross_backward(x0, u, dx, du, dx0);
    cross_[l].low_rank.backward(weights_, workspace, {layer_input(input, workspace, l), u, du, dv},
                                flat_gradients);
    kernels::add(dv, dx);
  }
  kernels::add(dx0, dx);
  all_.split_gradients(input, workspace, dx, gradients);
  all_.backward(weights_, input, workspace, dx, flat_gradients, gradients);
}

}  // namespace

std::unique_ptr<Model> make_dcnv2(const spec::Model& options, const ModelShape& shape) {
  return std::make_unique<Dcnv2>(options, shape);
}

}  // namespace weft::nn
