// Internal: what slices of a batch take on their way through a dense model (weft/nn).
#pragma once

#include <vector>

#include "weft/spec/config.h"

namespace weft::cost {

inline constexpr double kPanel = 64.0;      ///< columns of a packed matrix: kernels::kPanel
inline constexpr double kTileRows = 256.0;  ///< of a weight gradient

/// Bytes of a value of the model's precision as products read it: those of bf16 are fp32 where
/// `numerics.target` names a target that has no products of bf16 (kernels/pack.h). auto counts as
/// one that has them.
double stored_bytes(const spec::Config& config);

/// The largest of equal pieces of at most `most`, cut at multiples of `unit`.
double largest_piece(double count, double most, double unit);

/// A linear layer of a model, in the order in which it is made.
struct Linear {
  double in = 0.0;
  double out = 0.0;
  bool bias = false;
};

/// Bytes as the allocators count them, of a thread that runs all slices, one after the other.
struct SliceMemory {
  std::vector<Linear> layers;
  double operands = 0.0;  ///< of weights' gradients: of all slices
  double lane = 0.0;      ///< of the thread: layers' values, compact copies
};

/// `samples`: of each slice. `elements`: [features] of a sample of a sequence feature. The blocks
/// are those for which weft/nn/{dlrm,dcnv2,deepfm,mlp,feature_vectors}.cc ask, in their order.
SliceMemory slice_memory(const spec::Config& config,
                         const std::vector<double>& elements,
                         const std::vector<double>& samples);

}  // namespace weft::cost
