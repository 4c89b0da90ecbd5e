/// Updates of dense weights in one flat buffer, and the scan of their gradient before it.
///
/// Memory      Arrays are memory of ctx.device and do not overlap.
/// Threads     ctx.pool, by blocks of kDenseBlock elements; without a pool, or with few blocks
///             (eight), the calling thread. On CUDA calls are enqueued.
/// Order       Every element is updated by itself in fp32, without fused multiply-adds. The sum of
///             squares is fp64: in a block lane l of 16 adds elements l, l + 16, .. in order, lanes
///             are added in pairs (l, l + 8), (l, l + 4), (l, l + 2), (l, l + 1), and blocks up the
///             tree of base/parts.h. So all targets, backends and numbers of threads give the same
///             bits.
/// Cost        Bytes: a scan reads 4 a weight, Adam reads 16 and writes 12.
#pragma once

#include <cstdint>

#include "weft/layout/products.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

using layout::kDenseBlock;
using layout::scan_results;

/// What a scan finds.
struct GradientScan {
  double squares = 0.0;                ///< Σ g²; not set where a value is not finite
  std::int64_t first_non_finite = -1;  ///< lowest index of such a value
};

static_assert(sizeof(GradientScan) == layout::kScanBytes);

/// Arguments of scan_gradient().
struct ScanGradient {
  std::int64_t count = 0;
  const float* values = nullptr;
  GradientScan* results = nullptr;  ///< [scan_results(count)]: the first one is the result, those
                                    ///< behind it are work memory
};

/// Writes results[0]. The squares of floats and sums of 2^31 of them fit fp64, so a sum is not
/// finite exactly where a value is not.
void scan_gradient(Context& ctx, const ScanGradient& args);

/// The rules, as formulas in optim/dense.h.
enum class DenseRule : std::uint8_t { kSgd, kAdagrad, kAdam };

/// Arguments of dense_update(). Scalars that a rule lacks are ignored.
struct DenseUpdate {
  DenseRule rule = DenseRule::kSgd;
  float learning_rate = 0.0F;   ///< Adam: learning rate / (1 - beta1^t)
  float gradient_scale = 1.0F;  ///< of clipping
  float weight_decay = 0.0F;    ///< L2
  float eps = 0.0F;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float bias_correction2 = 1.0F;  ///< Adam: sqrt(1 - beta2^t)
  std::int64_t count = 0;
  const float* grads = nullptr;  ///< [count]
  float* params = nullptr;       ///< [count]
  float* state0 = nullptr;       ///< [count]: Adagrad's sum, Adam's exp_avg
  float* state1 = nullptr;       ///< [count]: Adam's exp_avg_sq
};

/// Updates params and the state of each in place.
void dense_update(Context& ctx, const DenseUpdate& args);

namespace cpu {
/// The same by the CPU's kernels.
void scan_gradient(Context& ctx, const ScanGradient& args);
void dense_update(Context& ctx, const DenseUpdate& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void scan_gradient(Context& ctx, const ScanGradient& args);
void dense_update(Context& ctx, const DenseUpdate& args);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, with the same bits.
void scan_gradient(Context& ctx, const ScanGradient& args);
void dense_update(Context& ctx, const DenseUpdate& args);
}  // namespace reference

}  // namespace weft::kernels
