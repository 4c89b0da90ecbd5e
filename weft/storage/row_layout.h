/// How a table's rows lie in memory: one function that stores and planner share.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/tensor/dtype.h"

namespace weft::storage {

enum class RowLayout {
  kSplit,        ///< weights dense, state beside
  kInterleaved,  ///< weights, then state, in one aligned stride
};

/// Split for no state or one number per row: the forward reads dense rows. Interleaved for state
/// per element: the update touches one run of memory.
RowLayout row_layout(const spec::SparseOptimizer& optimizer);

/// Floats of optimizer state of a row of `cols` columns.
std::int64_t state_floats(const spec::SparseOptimizer& optimizer, std::int64_t cols);

DType row_dtype(spec::RowDType dtype);

/// Where things are, in bytes. Row r: weights at weight_offset + r · weight_stride, state at
/// state_offset + r · state_stride.
struct RowGeometry {
  std::int64_t weight_offset = 0;
  std::int64_t weight_stride = 0;
  std::int64_t state_offset = 0;
  std::int64_t state_stride = 0;
  std::int64_t row_bytes = 0;  ///< weights and state, without padding
  std::int64_t total_bytes = 0;
};

/// Of `rows` rows of `cols` columns of the table.
RowGeometry row_geometry(const spec::Table& table, std::int64_t rows, std::int64_t cols);

}  // namespace weft::storage
