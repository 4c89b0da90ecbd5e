/// Clusters as YAML: docs/topology.md has the keys, clusters/ profiles to begin with. Errors are
/// Error(kConfig) and read "FILE:LINE:COLUMN: path.of.the.key: what is wrong and what to do".
#pragma once

#include <string>

#include "weft/topology/cluster.h"

namespace weft::topology {

/// Reads a file and checks it.
Cluster load_cluster(const std::string& path);

/// The same from text; `file` stands in messages.
Cluster parse_cluster(const std::string& text, const std::string& file);

/// Every value, one spelling: parse_cluster gives the same cluster again.
std::string to_yaml(const Cluster& cluster);

}  // namespace weft::topology
