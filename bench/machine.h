/// The machine a figure was measured on: what must be equal before two figures may be compared,
/// and what is good to know beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::bench {

/// Two results are of the same machine where all of these are equal.
struct Machine {
  std::string cpu;                 ///< model name, with family, model and stepping
  std::int64_t cores = 0;          ///< that this process may use
  std::vector<std::string> cache;  ///< of the first core, e.g. "L2 2048K"
  std::vector<std::string> flags;  ///< vector and matrix extensions that the kernels choose from
  std::int64_t memory_gib = 0;     ///< of the whole machine, rounded
  std::string huge_pages;          ///< setting of transparent huge pages: always, madvise, never
};

/// What produced the figures; it may differ between two that are compared.
struct Software {
  std::string kernel;    ///< of the operating system
  std::string compiler;  ///< that built this program
  std::string onednn;
  std::string weft;  ///< version and, where the environment has WEFT_COMMIT, commit
};

/// Reads /proc and /sys; what cannot be read is left empty.
Machine this_machine();
Software this_software();

}  // namespace weft::bench
