#include "weft/kernels/linear.h"

#include <algorithm>
#include <vector>

#include "weft/kernels/reference/values.h"

namespace weft::kernels::reference {
namespace {

// W of every layer, rounded to the type that products read.
class RoundedWeights final : public PreparedWeights {
 public:
  RoundedWeights(DType dtype, std::span<const LinearShape> layers)
      : dtype_(dtype), shapes_(layers.begin(), layers.end()), values_(layers.size()) {}

  void fill(std::span<const Matrix<const float>> weights) {
    for (std::size_t l = 0; l < shapes_.size(); ++l) {
      values_[l].clear();
      for_each(weights[l].rows, weights[l].cols, [&](std::int64_t i, std::int64_t j) {
        values_[l].push_back(rounded(weights[l].row(i)[j], dtype_));
      });
    }
  }

  [[nodiscard]] Matrix<const float> layer(std::size_t number) const {
    return matrix(values_[number].data(), shapes_[number].out, shapes_[number].in);
  }

 private:
  DType dtype_;
  std::vector<LinearShape> shapes_;
  std::vector<std::vector<float>> values_;
};

Matrix<const float> weights_of(const LinearLayer& layer) {
  return static_cast<const RoundedWeights*>(layer.weights)->layer(layer.number);
}

}  // namespace

std::unique_ptr<PreparedWeights> make_prepared_weights(Context& /*ctx*/,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers) {
  return std::make_unique<RoundedWeights>(dtype, layers);
}

void prepare_weights(Context& /*ctx*/, const PrepareWeights& args) {
  static_cast<RoundedWeights*>(args.to)->fill(args.weights);
}

void linear_forward(Context& /*ctx*/, const LinearForward& args) {
  const Matrix<const float> w = weights_of(args.layer);
  for_each(args.y.rows, args.y.cols, [&](std::int64_t i, std::int64_t j) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < w.cols; ++k) {
      sum += static_cast<double>(value_at(args.x, i, k)) * static_cast<double>(w.row(j)[k]);
    }
    sum += args.bias == nullptr ? 0.0 : static_cast<double>(args.bias[j]);
    set_value(args.y, i, j,
              static_cast<float>(args.activation == Activation::kRelu ? std::max(sum, 0.0) : sum));
  });
}

void output_backward(Context& /*ctx*/, const OutputBackward& args) {
  const Operand& dy = args.dy;
  if (args.epilogue.activation == Activation::kRelu) {
    for_each(dy.rows, dy.cols, [&](std::int64_t i, std::int64_t j) {
      if (!(value_at(args.epilogue.y, i, j) > 0.0F)) {
        set_value(dy, i, j, 0.0F);
      }
    });
  }
  if (args.epilogue.dbias != nullptr) {
    std::fill_n(args.epilogue.dbias, dy.cols, 0.0F);
    for_each(dy.rows, dy.cols,
             [&](std::int64_t i, std::int64_t j) { args.epilogue.dbias[j] += value_at(dy, i, j); });
  }
}

void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args) {
  const Matrix<const float> w = weights_of(args.layer);
  for_each(args.dx.rows, args.dx.cols, [&](std::int64_t i, std::int64_t k) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < w.rows; ++j) {
      sum += static_cast<double>(value_at(args.dy, i, j)) * static_cast<double>(w.row(j)[k]);
    }
    set_value(args.dx, i, k, static_cast<float>(sum));
  });
  reference::output_backward(ctx, {.epilogue = args.below, .dy = args.dx});
}

}  // namespace weft::kernels::reference
