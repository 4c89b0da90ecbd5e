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

  /// Of all threads together: products [256, 512] · [512, 512], a slice of samples by a layer. Four
  /// passes of at least one product on every thread, whatever the budget.
  double gemm_flops_per_s(DType dtype);

  /// Of all threads together: forward and backward of dot interactions of 256 samples of 16 fields
  /// of 64 values.
  double dot_flops_per_s();

  /// Bytes read plus bytes written of memory larger than the caches.
  double copy_bytes_per_s();

  /// Rows of fp32 of so many bytes, 16 of them a bag, from anywhere in the table. A multiple of 4.
  double row_read_bytes_per_s(std::int64_t row_bytes) {
    return rows_of_bytes_per_s(row_bytes, table_.bytes());
  }

  /// The same, from so few rows that a core's own cache holds them.
  double near_row_bytes_per_s(std::int64_t row_bytes) {
    return rows_of_bytes_per_s(row_bytes, kNearBytes);
  }

  /// Distinct rows, ascending, one fp32 gradient each (plain SGD). A multiple of 4.
  double row_update_bytes_per_s(std::int64_t row_bytes);

  /// Of coalescing, by the bytes that cost::coalesce_s counts, of all threads together, each with
  /// a table of its own: ids drawn evenly from 2^18 rows, in one part.
  double sort_bytes_per_s();

  /// Seconds of one more gradient for a row that has one: of ids drawn as 1/k, in 8 parts.
  double repeat_s();

  /// Seconds of one number that is drawn for and rounded: updates of bf16 rows of 64 columns that
  /// lie in a cache, less those of fp32 rows.
  double draw_s();

 private:
  static constexpr std::int64_t kNearBytes = std::int64_t{1} << 18;

  double rows_of_bytes_per_s(std::int64_t row_bytes, std::int64_t table_bytes);
  void update_all(const kernels::SparseUpdate& update);

  /// Draws rows of the first `table_bytes` of the table.
  void draw(std::vector<std::int64_t>& rows, std::int64_t row_bytes, std::int64_t table_bytes);

  Device& device_;
  ComputeProbeOptions options_;
  Context ctx_;
  Buffer table_;
  std::uint64_t draws_ = 0;
};

}  // namespace weft::train
