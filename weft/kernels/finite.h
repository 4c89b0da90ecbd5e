/// Checks for values that are not finite: where is the first one?
///
/// Memory      Values and results are memory of ctx.device; lists of views are host memory, read at
///             once.
/// Determinism A result depends on the values alone.
/// Cost        Bytes read.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// Values that belong to the samples of a slice: one row each or, with offsets, sample s has rows
/// [offsets[s], offsets[s + 1]) of a compact matrix.
struct SampleValues {
  Matrix<const float> values;
  const std::int64_t* offsets = nullptr;
};

/// Arguments of first_bad_sample().
struct FirstBadSample {
  std::int64_t samples = 0;
  std::span<const SampleValues> values;
  std::int64_t* first = nullptr;  ///< one word, read and written: -1 where there is none
};

/// Lowers `first` to the first sample with a value that is not finite. Runs on the calling thread.
void first_bad_sample(Context& ctx, const FirstBadSample& args);

namespace cpu {
/// The same by the CPU's kernels.
void first_bad_sample(Context& ctx, const FirstBadSample& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void first_bad_sample(Context& ctx, const FirstBadSample& args);
}  // namespace cuda

namespace reference {
/// Plain loops.
void first_bad_sample(Context& ctx, const FirstBadSample& args);
}  // namespace reference

}  // namespace weft::kernels
