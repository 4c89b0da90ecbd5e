/// Seconds of stochastic rounding: of rows in 16 bits (weft/kernels/sparse_update.h) and of encoded
/// vectors (weft/kernels/codec.h).
///
/// An element of a row is a draw, at compute.draw (weft/topology/cluster.h). Rows are drawn eight
/// at a time, padded to whole blocks of 16 columns, so a row of C columns takes ⌈C / 16⌉ · 16
/// draws. The words of encoded vectors are made for one vector and 64 columns at a time and are
/// twice as many (weft/base/row_draws.h), so there C columns take 2 · ⌈C / 64⌉ · 64. Draws add to
/// the seconds of the bytes. Where the cluster has no such figure rounding takes no time. Pure.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Returns the seconds of rounding so many rows of `cols` columns.
double row_rounding_s(const topology::Cluster& cluster, std::int64_t cols, double rows);

/// Returns the seconds of rounding so many encoded vectors of `cols` columns.
double vector_rounding_s(const topology::Cluster& cluster, std::int64_t cols, double vectors);

/// Whether an update rounds the rows that it writes.
bool rounds_rows(spec::RowDType dtype);

}  // namespace weft::cost
