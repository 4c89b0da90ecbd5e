/// The fast network devices of this host, and which of them this process uses.
///
/// Read are, below a root folder that tests replace by a made-up one: /sys/class/infiniband, where
/// InfiniBand, RoCE, EFA and Omni-Path have their devices, and what this process has open of them
/// (/proc/self/fd, /sys/class/infiniband_verbs).
#pragma once

#include <string>
#include <vector>

namespace weft::train {

/// A device that the system can send and receive by without the kernel's TCP.
struct FastDevice {
  std::string name;         ///< "mlx5_0"
  std::string kind;         ///< "InfiniBand", "RoCE", "EFA" or "Omni-Path"
  double bits_per_s = 0.0;  ///< of its fastest active port; 0: not known
  bool is_open = false;     ///< this process has it open
};

/// Those that have an active port, by name. `root` stands before every path; empty = the system.
/// Never throws for what is missing or malformed.
std::vector<FastDevice> fast_devices(const std::string& root = "");

/// "mlx5_0 (InfiniBand, 400 Gb/s)".
std::string describe(const FastDevice& device);

}  // namespace weft::train
