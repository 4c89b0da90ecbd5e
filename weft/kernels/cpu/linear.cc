// forward          y = act(x · pack_transposed(W) + b)
// backward         dx = dy · pack(W); dx = 0 where the layer below gave 0, with dbias, its column
//                  sums, in the same pass
//
// Weights are packed (pack.h) in both forms once per step, by tasks of a few panels.

#include "weft/kernels/linear.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/cpu/linear.h"
#include "weft/kernels/cpu/workspace.h"
#include "weft/kernels/target.h"

namespace weft::kernels {

PackedWeights::PackedWeights(Context& ctx, DType dtype, std::span<const LinearShape> layers) {
  // Elements that a task packs: some tens of microseconds.
  constexpr std::int64_t kPackElements = 65536;
  memory_ =
      Buffer(*ctx.device, layout::prepared_bytes(current_packing(), element_of(dtype), layers));
  auto* memory = memory_.as<std::byte>();
  for (std::size_t number = 0; number < layers.size(); ++number) {
    const LinearShape& layer = layers[number];
    Layer packed;
    packed.forward = packed_matrix(dtype, layer.in, layer.out, memory);
    memory += packed_bytes(dtype, layer.in, layer.out);
    packed.backward = packed_matrix(dtype, layer.out, layer.in, memory);
    memory += packed_bytes(dtype, layer.out, layer.in);
    for (const bool forward : {true, false}) {
      const PackedMatrix& matrix = forward ? packed.forward : packed.backward;
      const std::int64_t step = std::max<std::int64_t>(1, kPackElements / (matrix.rows * kPanel));
      for (std::int64_t begin = 0; begin < matrix.panels(); begin += step) {
        tasks_.push_back({number, forward, {begin, std::min(matrix.panels(), begin + step)}});
      }
    }
    layers_.push_back(packed);
  }
}

void PackedWeights::fill(Context& ctx, std::span<const Matrix<const float>> weights) {
  WEFT_CHECK(weights.size() == layers_.size(), "weights of {} layers for {}", weights.size(),
             layers_.size());
  const auto run = [&](std::int64_t i) {
    const Task& task = tasks_[static_cast<std::size_t>(i)];
    const Matrix<const float>& w = weights[task.layer];
    if (task.forward) {
      pack_transposed(w, layers_[task.layer].forward, task.panels);
    } else {
      pack(w, layers_[task.layer].backward, task.panels);
    }
  };
  const auto tasks = static_cast<std::int64_t>(tasks_.size());
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(tasks, run);
    return;
  }
  for (std::int64_t i = 0; i < tasks; ++i) {
    run(i);
  }
}

namespace {

const PackedWeights::Layer& packed_of(const LinearLayer& layer) {
  return static_cast<const PackedWeights&>(*layer.weights).layer(layer.number);
}

/// dy behind an activation, and its sum over samples.
void finish_gradient(const GradientEpilogue& epilogue, const Operand& dy) {
  if (epilogue.activation == Activation::kRelu) {
    relu_backward(epilogue.y, dy, epilogue.dbias);
  } else if (epilogue.dbias != nullptr) {
    column_sums(dy, epilogue.dbias);
  }
}

}  // namespace

namespace cpu {

std::unique_ptr<Workspace> make_workspace(Context& /*ctx*/) {
  return std::make_unique<CpuWorkspace>();
}

std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers) {
  return std::make_unique<PackedWeights>(ctx, dtype, layers);
}

void prepare_weights(Context& ctx, const PrepareWeights& args) {
  static_cast<PackedWeights*>(args.to)->fill(ctx, args.weights);
}

void linear_forward(Context& /*ctx*/, const LinearForward& args) {
  CpuWorkspace::of(args.layer.workspace)
      .matmul.multiply(args.x, packed_of(args.layer).forward, args.y,
                       {.bias = args.bias, .activation = args.activation});
}

void output_backward(Context& /*ctx*/, const OutputBackward& args) {
  finish_gradient(args.epilogue, args.dy);
}

void linear_backward_inputs(Context& /*ctx*/, const LinearBackwardInputs& args) {
  CpuWorkspace::of(args.layer.workspace)
      .matmul.multiply(args.dy, packed_of(args.layer).backward, args.dx);
  finish_gradient(args.below, args.dx);
}

}  // namespace cpu
}  // namespace weft::kernels
