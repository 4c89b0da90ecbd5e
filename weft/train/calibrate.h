/// Measures the machine, or the MPI job, that it runs in, and gives it as a cluster
/// (weft/topology).
///
/// What is measured is Weft's own: matrix products through weft/kernels/linear.h, rows through the
/// kernels of lookup and update, exchanges through the communicator, hand-offs through a stream,
/// blocks of a file through weft/io/block_reads.h (disk_probe.h).
/// All ranks work at the same time, as they share memory, caches and cards; each figure is the
/// median over ranks of the medians over passes. The result is equal on all ranks.
/// Disk: 64 MiB per rank, 1 MiB when quick, for as long as it is read.
/// Memory: per host the smaller of 2 GiB and an eighth of what it has; 16 MiB per rank when quick.
/// Time: some 5 to 15 s; below 1 s when quick, and then caches are measured and not memory.
/// docs/topology.md says how each figure is made.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/topology/cluster.h"

namespace weft::train {

/// The length of a measurement: kQuick takes below 1 s and 16 MiB per rank, and sees caches, not
/// memory.
enum class Effort : std::uint8_t { kFull, kQuick };

/// The settings of a measurement, equal on all ranks.
struct CalibrateOptions {
  std::string name = "measured";
  int threads = 1;  ///< of this rank's pool
  Effort effort = Effort::kFull;
  std::string folder =
      {};  ///< on the disk that is measured; empty: the system's for temporary files
  int ranks_per_host = 0;  ///< 0: as the communicator says; for tests, which have one host
};

/// Collective. Throws Error(kUsage) where the ranks of a host are not consecutive, Error(kResource)
/// where memory is missing, and as communicators do.
topology::Cluster calibrate(comm::Communicator& world, const CalibrateOptions& options);

/// The same, ended early on all ranks where `stop` becomes true on any: ranks ask each other
/// between measurements, of which filling the memory at first is the longest. Then there is no
/// cluster.
std::optional<topology::Cluster> calibrate_unless(const std::atomic<bool>& stop,
                                                  comm::Communicator& world,
                                                  const CalibrateOptions& options);

/// t = start + per_unit · x.
struct Line {
  double start = 0.0;     ///< not below 0
  double per_unit = 0.0;  ///< above 0
};

/// The line with the least sum of squared relative errors, so that small x count as much as large
/// ones; where it would begin below 0 the best one through 0, where it would not rise the slope of
/// the last point. Requires as many x, which differ and are not negative, as t > 0; at least two.
Line fit_line(std::span<const double> x, std::span<const double> t);

}  // namespace weft::train
