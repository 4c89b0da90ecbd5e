/// Seconds of making the rows of a batch resident, where not all rows of a table are in memory
/// (stage fetch).
///
/// Notation: n ids, U different rows, of which M have no slot, F blocks of 4 KiB that are read for
/// these, b bytes of a packed row. read(x), update(x), sort(x) as in tables.h.
///
///   disk       F / read_blocks
///   processor  sort(n (28 + 16 passes)): of an id its row and number, 8 bytes, written, sorted by
///              passes of 11 bits, and numbered; then its slot, 8 bytes read and 8 written.
///              U read(64): where a row lies. F block; M (read(b) + update(b)): what leaves a slot
///              is packed, what comes is unpacked. Rows that are made instead of read cost as much
///
/// Writing back and cleaning are not in it: a thread of the store does that, and the disk's share
/// of it is not known here. Terms are counted bytes; the sum was not compared with measurements
/// yet. Pure functions.
#pragma once

#include <cstdint>

#include "weft/topology/cluster.h"

namespace weft::cost {

/// What a step asks of a shard.
struct FetchWork {
  std::int64_t rows = 0;   ///< of the shard
  double ids = 0.0;        ///< n
  double unique = 0.0;     ///< U
  double missed = 0.0;     ///< M
  double blocks = 0.0;     ///< F
  double row_bytes = 0.0;  ///< b
};

/// Returns the seconds of the disk, 0 where the cluster gives no rate.
double disk_s(const topology::Cluster& cluster, const FetchWork& work);

/// Returns the seconds of a rank's processor, beside those of the disk.
double fetch_s(const topology::Cluster& cluster, const FetchWork& work);

}  // namespace weft::cost
