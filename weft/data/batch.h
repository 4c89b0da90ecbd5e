/// One rank's share of a global batch, in host memory, ready for training: ids are table rows.
///
/// Notation   B samples of this rank, F sparse features, Dn dense features, T tasks, all as
///            configured.
/// Reuse      vectors keep their capacity from batch to batch.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/parts.h"
#include "weft/jagged/keyed_jagged_tensor.h"

namespace weft::data {

/// This rank's samples of one global batch.
struct Batch {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< index of the global batch in this run: LoaderOptions::first_step, ..
  std::int64_t global_size = 0;  ///< samples of the global batch, over all ranks
  Range positions;               ///< of this rank's samples in the global batch; may be empty

  std::vector<std::int64_t> sample_ids;  ///< [B], of the source
  KeyedJaggedTensor sparse;              ///< keys = feature names as configured; values = rows
  std::vector<float> dense;              ///< [B, Dn], transformed
  std::vector<float> labels;             ///< [B, T], 0 or 1
  std::vector<float> label_weights;      ///< [B, T], finite, >= 0

  /// B.
  [[nodiscard]] std::int64_t size() const { return positions.size(); }
};

}  // namespace weft::data
