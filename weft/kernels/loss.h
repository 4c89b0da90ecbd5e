/// Weighted binary cross-entropy with logits over one slice.
///
/// The loss of a step is, per task, Σ weight × loss over the global batch divided by Σ weight of
/// that batch as it is, times the task's weight, added over tasks. The caller knows the sums of
/// weights before the slice begins and passes scale = task weight / Σ weight, so nothing divides
/// later; a task without weight in a batch has scale 0.
///
/// Notation    b samples of a slice, T tasks; p = sigmoid(logit).
/// Memory      Of ctx.device, except the scales, which are host memory read at once.
/// Threads     The calling thread; on CUDA the call is enqueued.
/// Order       fp64 inside, sums in the order of samples; all machines and backends give the same
///             bits.
/// Cost        b T times an exponential and a logarithm by series.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// exp(x) and ln(1 + x) for x in [0, 1] by plain double arithmetic, so that every machine has the
/// same bits, whatever its C library. Within 2 units in the last place.
double exact_exp(double x);
double exact_log1p(double x);

/// 1 / (1 + exp(-z)), without overflow.
double sigmoid(double z);

/// -y ln p - (1 - y) ln(1 - p) with p = sigmoid(z), as max(z, 0) - z y + ln(1 + exp(-|z|)):
/// without overflow, and exact for large |z|.
double bce_with_logits(double z, double y);

/// Arguments of bce_loss(). Outputs that are not wanted have null data.
struct BceLoss {
  Matrix<const float> logits;         ///< [b, T]
  Matrix<const float> labels;         ///< [b, T], in [0, 1]
  Matrix<const float> weights = {};   ///< [b, T], >= 0; null data = 1
  std::span<const float> scale = {};  ///< [T]
  Matrix<float> dlogits = {};         ///< [b, T]: scale × weight × (p - label)
  Matrix<float> probabilities = {};   ///< [b, T]: p
  double* loss_sums = nullptr;        ///< [T], overwritten: Σ weight × loss, unscaled
  std::int64_t* first_bad = nullptr;  ///< the first row whose logit, label or weight gives a loss
                                      ///< that is not finite, in any task, also one of weight 0; -1
                                      ///< if there is none
};

/// Computes what is asked.
void bce_loss(Context& ctx, const BceLoss& args);

namespace cpu {
/// The same by the CPU's kernels.
void bce_loss(Context& ctx, const BceLoss& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void bce_loss(Context& ctx, const BceLoss& args);
}  // namespace cuda

namespace reference {
/// The same formulas once more; only exp and ln(1 + x) are shared.
void bce_loss(Context& ctx, const BceLoss& args);
}  // namespace reference

}  // namespace weft::kernels
