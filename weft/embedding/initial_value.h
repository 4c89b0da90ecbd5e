/// Initial values of embedding rows: from a table, as configured, to what its kernel
/// (weft/kernels/initial_values.h) needs. A pure function of (seed, table name, row, column), so
/// that shards, ranks and the order of making them change nothing.
///
/// Key: (seed, kInitialValue, table name). Scale: init_scale, or 1/√E where it is 0. State:
/// initial_accumulator for Adagrad's sums, else 0.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"
#include "weft/kernels/initial_values.h"
#include "weft/spec/config.h"

namespace weft::embedding {

/// Everything but where the rows are: `table` and `state_floats` are left to the caller.
kernels::InitialRows initial_rows(const spec::Table& table, std::uint64_t seed);

/// The values of one row, columns `cols`, to out [cols.size()]; fp32, before rounding to the row's
/// type. cols.begin is a multiple of 16.
void initial_values(
    const spec::Table& table, std::uint64_t seed, std::int64_t row, Range cols, float* out);

}  // namespace weft::embedding
