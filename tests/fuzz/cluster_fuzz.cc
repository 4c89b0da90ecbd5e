// Any bytes as a cluster: one that can be written, shown and read again, or Error(kConfig), never a
// crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/error.h"
#include "weft/topology/show.h"
#include "weft/topology/yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace topology = weft::topology;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const topology::Cluster cluster = topology::parse_cluster(text, "fuzz");
    const std::string canonical = topology::to_yaml(cluster);
    if (topology::to_yaml(topology::parse_cluster(canonical, "again")) != canonical ||
        topology::to_text(cluster).empty()) {
      __builtin_trap();
    }
  } catch (const weft::Error& error) {
    if (error.code() != weft::ErrorCode::kConfig) {
      __builtin_trap();
    }
  }
  return 0;
}
