/// A cluster for people.
#pragma once

#include <string>

#include "weft/topology/cluster.h"

namespace weft::topology {

/// Lines of text: hosts, memory, and of every figure its peak, what is expected of it, and where it
/// is from. Requires check().
std::string to_text(const Cluster& cluster);

}  // namespace weft::topology
