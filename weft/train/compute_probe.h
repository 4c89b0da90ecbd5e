/// Private to train/: what one rank computes, measured by Weft's own kernels (calibrate.h).
#pragma once

#include <cstdint>
#include <vector>

#include "weft/kernels/sparse_update.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/dtype.h"

namespace weft::train {

struct ComputeProbeOptions {
  std::int64_t table_bytes = 0;  ///< random rows lie in so many
  double budget_s = 0.3;         ///< of one figure
  std::uint64_t seed = 0;        ///< differs between ranks
};

class ComputeProbe {
 public:
  /// The device outlives it. Allocates and fills the table.
  ComputeProbe(Device& device, const ComputeProbeOptions& options);

  /// Of all threads together: products [256, 512] · [512, 512], a slice of samples by a layer. 0
  /// where the target in force has none in this type.
  double gemm_flops_per_s(DType dtype);

  /// Bytes read plus bytes written of memory larger than the caches.
  double copy_bytes_per_s();

  /// Rows of fp32 of so many bytes, 16 of them a bag. A multiple of 4.
  double row_read_bytes_per_s(std::int64_t row_bytes);

  /// Distinct rows, ascending, one fp32 gradient each (plain SGD). A multiple of 4.
  double row_update_bytes_per_s(std::int64_t row_bytes);

  /// Seconds of one more gradient for a row that has one: of ids drawn as 1/k, in 8 parts.
  double repeat_s();

  /// Seconds of one number that is drawn for and rounded: updates of bf16 rows of 64 columns that
  /// lie in a cache, less those of fp32 rows.
  double draw_s();

 private:
  void update_all(const kernels::SparseUpdate& update);

  /// Draws rows of the table.
  void draw(std::vector<std::int64_t>& rows, std::int64_t row_bytes);

  Device& device_;
  ComputeProbeOptions options_;
  Context ctx_;
  Buffer table_;
  std::uint64_t draws_ = 0;
};

}  // namespace weft::train
