/// What a rank can be expected to do, from the figures of its cluster.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/topology/cluster.h"

namespace weft::topology {

/// Accesses to a row: read from memory, read and written back there, read from a core's own cache.
enum class RowAccess : std::uint8_t { kRead, kUpdate, kNear };

/// Seconds of one random row of so many bytes. Between two points it is interpolated linearly over
/// the length; a row shorter than the first takes as long as the first (a row costs its misses),
/// one longer than the last is as fast per byte as the last. 0 bytes take no time. kNear: read from
/// a cache, and as near_s() where the cluster does not say.
[[nodiscard]] double row_s(const Cluster& cluster, RowAccess access, double row_bytes);

/// Flops per second of matrix products.
[[nodiscard]] double gemm_flops_per_s(const Cluster& cluster, spec::Compute compute);

/// Flops per second of dot interactions.
[[nodiscard]] double dot_flops_per_s(const Cluster& cluster);

/// Seconds of moving so many bytes, each read or written once, in sequence.
[[nodiscard]] double copy_s(const Cluster& cluster, double bytes);

/// The same of bytes that lie in a cache: at twice the rate at which a rank sends to itself, as a
/// byte sent is read and written, or a copy's where that is more.
[[nodiscard]] double near_s(const Cluster& cluster, double bytes);

/// Seconds of coalescing that moves so many bytes (cost::coalesce_s).
[[nodiscard]] double sort_s(const Cluster& cluster, double bytes);

/// Bytes that tables may have on one rank: of hbm where there is some, else of ddr, less the
/// reserve.
[[nodiscard]] double table_capacity(const Cluster& cluster);

}  // namespace weft::topology
