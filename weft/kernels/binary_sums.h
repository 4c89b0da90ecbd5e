/// Weighted sums over the samples of binary tasks, from which the metrics of a step follow
/// (weft/metrics/binary.h).
///
/// Notation    B samples of a rank, T tasks, label y, predicted probability p = sigmoid(logit),
///             weight w.
/// Memory      Matrices and totals are memory of ctx.device; the list of parts is host memory, read
///             at once.
/// Threads     ctx.pool, a part each; without a pool the calling thread. On CUDA the call is
///             enqueued.
/// Order       fp64, samples of a part in their order. Exponential and logarithm are the C
///             library's, so other backends agree within 1e-12 of a sum.
/// Errors      Error(kInternal) on shapes that disagree.
/// Cost        B T exponentials and logarithms.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/parts.h"
#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// The sums over some samples of one task.
struct BinaryTotals {
  std::int64_t count = 0;   ///< samples added, those of weight 0 too
  double weight = 0.0;      ///< Σ w
  double label = 0.0;       ///< Σ w·y
  double loss = 0.0;        ///< Σ w·(−y ln p − (1−y) ln(1−p)), nats
  double prediction = 0.0;  ///< Σ w·p
};

/// Adds one sample. The loss is computed in fp64 from the logit, without forming p, so it is exact
/// for any finite logit and needs no clamp. Input that is not finite makes the sums so.
void add_sample(BinaryTotals& to, float logit, float y, float w);

/// Arguments of sum_binary().
struct SumBinary {
  Matrix<const float> logits;      ///< [B, T]
  Matrix<const float> labels;      ///< [B, T]
  Matrix<const float> weights;     ///< [B, T]
  std::span<const Range> parts;    ///< rows of each part
  BinaryTotals* totals = nullptr;  ///< [parts][T], overwritten
};

/// Sums every task over the samples of every part.
void sum_binary(Context& ctx, const SumBinary& args);

namespace cpu {
/// The same by the CPU's kernels.
void sum_binary(Context& ctx, const SumBinary& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void sum_binary(Context& ctx, const SumBinary& args);
}  // namespace cuda

namespace reference {
/// The definition, task by task.
void sum_binary(Context& ctx, const SumBinary& args);
}  // namespace reference

}  // namespace weft::kernels
