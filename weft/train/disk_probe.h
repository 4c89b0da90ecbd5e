/// Measures how fast blocks are read from a disk: what weft topology calibrate says of it.
#pragma once

#include <cstdint>
#include <string>

namespace weft::train {

/// What is read, and for how long.
struct DiskProbeOptions {
  std::string folder;  ///< where the file lies meanwhile
  std::string name;    ///< of the file, unlike all others there
  std::int64_t bytes = std::int64_t{64} << 20;
  double budget_s = 0.3;
  std::uint64_t seed = 0;  ///< of places
};

/// Both 0: nothing could be measured.
struct DiskFigures {
  double blocks_per_s = 0.0;
  double block_s = 0.0;  ///< of the calling thread's processor, per block
};

/// Writes a file, reads blocks of 4 KiB of it at random places past the page cache with many in
/// flight (weft/io/block_reads.h), takes the checksum of each, and removes the file. Nothing is
/// measured where the file cannot be written, as on a full disk, or not be read past the page
/// cache, as on tmpfs. Where threads read instead of io_uring, their work is not in `block_s`.
DiskFigures probe_disk(const DiskProbeOptions& options);

}  // namespace weft::train
