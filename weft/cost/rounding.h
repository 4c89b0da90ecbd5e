/// Seconds of stochastic rounding: of rows in 16 bits (weft/kernels/sparse_update.h) and of encoded
/// vectors (weft/kernels/codec.h).
///
/// A number of Philox is drawn for every column, for 64 columns at once (four per lane of the
/// widest vectors), so a vector of C columns takes ⌈C / 64⌉ · 64 draws, each at compute.draw
/// (weft/topology/cluster.h). They add to the seconds of its bytes: bench/sparse_bench.cc has for
/// an update of 64 columns in bf16 64, 71 and 71 ns more than its bytes, where these take 64, 56
/// and 87 ns. Where the cluster has no such figure rounding takes no time. Pure.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Of so many vectors of `cols` columns.
double rounding_s(const topology::Cluster& cluster, std::int64_t cols, double vectors);

/// Whether an update rounds the rows that it writes.
bool rounds_rows(spec::RowDType dtype);

}  // namespace weft::cost
