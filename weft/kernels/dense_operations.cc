// The dense operations: each is done by the backend of the context's device.
#include "weft/kernels/binary_sums.h"
#include "weft/kernels/cross.h"
#include "weft/kernels/dense_update.h"
#include "weft/kernels/dispatch.h"
#include "weft/kernels/elementwise.h"
#include "weft/kernels/finite.h"
#include "weft/kernels/interaction.h"
#include "weft/kernels/linear.h"
#include "weft/kernels/loss.h"
#include "weft/kernels/sequence.h"
#include "weft/kernels/weight_gradient.h"
#include "weft/kernels/workspace.h"

namespace weft::kernels {

std::unique_ptr<Workspace> make_workspace(Context& ctx) {
  std::unique_ptr<Workspace> made;
  on_device(
      ctx, [&] { made = cpu::make_workspace(ctx); }, [&] { made = cuda::make_workspace(ctx); });
  return made;
}

void assign(Context& ctx, const Assign& args) {
  on_device(ctx, [&] { cpu::assign(ctx, args); }, [&] { cuda::assign(ctx, args); });
}

void add(Context& ctx, const Add& args) {
  on_device(ctx, [&] { cpu::add(ctx, args); }, [&] { cuda::add(ctx, args); });
}

void concatenate(Context& ctx, const Concatenate& args) {
  on_device(ctx, [&] { cpu::concatenate(ctx, args); }, [&] { cuda::concatenate(ctx, args); });
}

void split(Context& ctx, const Split& args) {
  on_device(ctx, [&] { cpu::split(ctx, args); }, [&] { cuda::split(ctx, args); });
}

std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers) {
  std::unique_ptr<PreparedWeights> made;
  on_device(
      ctx, [&] { made = cpu::make_prepared_weights(ctx, dtype, layers); },
      [&] { made = cuda::make_prepared_weights(ctx, dtype, layers); });
  return made;
}

void prepare_weights(Context& ctx, const PrepareWeights& args) {
  on_device(
      ctx, [&] { cpu::prepare_weights(ctx, args); }, [&] { cuda::prepare_weights(ctx, args); });
}

void linear_forward(Context& ctx, const LinearForward& args) {
  on_device(ctx, [&] { cpu::linear_forward(ctx, args); }, [&] { cuda::linear_forward(ctx, args); });
}

void output_backward(Context& ctx, const OutputBackward& args) {
  on_device(
      ctx, [&] { cpu::output_backward(ctx, args); }, [&] { cuda::output_backward(ctx, args); });
}

void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args) {
  on_device(
      ctx, [&] { cpu::linear_backward_inputs(ctx, args); },
      [&] { cuda::linear_backward_inputs(ctx, args); });
}

std::unique_ptr<GradientOperands> make_gradient_operands(Context& ctx) {
  std::unique_ptr<GradientOperands> made;
  on_device(
      ctx, [&] { made = cpu::make_gradient_operands(ctx); },
      [&] { made = cuda::make_gradient_operands(ctx); });
  return made;
}

std::int64_t gradient_operands_bytes(Context& ctx,
                                     DType dtype,
                                     std::int64_t samples,
                                     const LinearShape& layer) {
  std::int64_t bytes = 0;
  on_device(
      ctx, [&] { bytes = cpu::gradient_operands_bytes(ctx, dtype, samples, layer); },
      [&] { bytes = cuda::gradient_operands_bytes(ctx, dtype, samples, layer); });
  return bytes;
}

void keep_operands(Context& ctx, const KeepOperands& args) {
  on_device(ctx, [&] { cpu::keep_operands(ctx, args); }, [&] { cuda::keep_operands(ctx, args); });
}

std::vector<GradientTile> gradient_tiles(Context& ctx, const LinearShape& layer) {
  std::vector<GradientTile> made;
  on_device(
      ctx, [&] { made = cpu::gradient_tiles(ctx, layer); },
      [&] { made = cuda::gradient_tiles(ctx, layer); });
  return made;
}

void sum_weight_gradient(Context& ctx, const WeightGradient& args) {
  on_device(
      ctx, [&] { cpu::sum_weight_gradient(ctx, args); },
      [&] { cuda::sum_weight_gradient(ctx, args); });
}

void sum_bias_gradients(Context& ctx, const BiasGradients& args) {
  on_device(
      ctx, [&] { cpu::sum_bias_gradients(ctx, args); },
      [&] { cuda::sum_bias_gradients(ctx, args); });
}

void cross_forward(Context& ctx, const CrossForward& args) {
  on_device(ctx, [&] { cpu::cross_forward(ctx, args); }, [&] { cuda::cross_forward(ctx, args); });
}

void cross_backward(Context& ctx, const CrossBackward& args) {
  on_device(ctx, [&] { cpu::cross_backward(ctx, args); }, [&] { cuda::cross_backward(ctx, args); });
}

void dot_interaction_forward(Context& ctx, const DotForward& args) {
  on_device(
      ctx, [&] { cpu::dot_interaction_forward(ctx, args); },
      [&] { cuda::dot_interaction_forward(ctx, args); });
}

void dot_interaction_backward(Context& ctx, const DotBackward& args) {
  on_device(
      ctx, [&] { cpu::dot_interaction_backward(ctx, args); },
      [&] { cuda::dot_interaction_backward(ctx, args); });
}

void factorization_forward(Context& ctx, const FactorizationForward& args) {
  on_device(
      ctx, [&] { cpu::factorization_forward(ctx, args); },
      [&] { cuda::factorization_forward(ctx, args); });
}

void factorization_backward(Context& ctx, const FactorizationBackward& args) {
  on_device(
      ctx, [&] { cpu::factorization_backward(ctx, args); },
      [&] { cuda::factorization_backward(ctx, args); });
}

void attention_inputs(Context& ctx, const AttentionInputs& args) {
  on_device(
      ctx, [&] { cpu::attention_inputs(ctx, args); }, [&] { cuda::attention_inputs(ctx, args); });
}

void attention_pool(Context& ctx, const AttentionPool& args) {
  on_device(ctx, [&] { cpu::attention_pool(ctx, args); }, [&] { cuda::attention_pool(ctx, args); });
}

void attention_weights_backward(Context& ctx, const AttentionWeightsBackward& args) {
  on_device(
      ctx, [&] { cpu::attention_weights_backward(ctx, args); },
      [&] { cuda::attention_weights_backward(ctx, args); });
}

void attention_backward(Context& ctx, const AttentionBackward& args) {
  on_device(
      ctx, [&] { cpu::attention_backward(ctx, args); },
      [&] { cuda::attention_backward(ctx, args); });
}

void sequence_mean_forward(Context& ctx, const MeanForward& args) {
  on_device(
      ctx, [&] { cpu::sequence_mean_forward(ctx, args); },
      [&] { cuda::sequence_mean_forward(ctx, args); });
}

void sequence_mean_backward(Context& ctx, const MeanBackward& args) {
  on_device(
      ctx, [&] { cpu::sequence_mean_backward(ctx, args); },
      [&] { cuda::sequence_mean_backward(ctx, args); });
}

void bce_loss(Context& ctx, const BceLoss& args) {
  on_device(ctx, [&] { cpu::bce_loss(ctx, args); }, [&] { cuda::bce_loss(ctx, args); });
}

void sum_binary(Context& ctx, const SumBinary& args) {
  on_device(ctx, [&] { cpu::sum_binary(ctx, args); }, [&] { cuda::sum_binary(ctx, args); });
}

void first_bad_sample(Context& ctx, const FirstBadSample& args) {
  on_device(
      ctx, [&] { cpu::first_bad_sample(ctx, args); }, [&] { cuda::first_bad_sample(ctx, args); });
}

void scan_gradient(Context& ctx, const ScanGradient& args) {
  on_device(ctx, [&] { cpu::scan_gradient(ctx, args); }, [&] { cuda::scan_gradient(ctx, args); });
}

void dense_update(Context& ctx, const DenseUpdate& args) {
  on_device(ctx, [&] { cpu::dense_update(ctx, args); }, [&] { cuda::dense_update(ctx, args); });
}

}  // namespace weft::kernels
