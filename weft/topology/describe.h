/// Inside the module: the walk over a cluster's fields, and the check that knows where they stood.
#pragma once

#include "weft/spec/document.h"
#include "weft/topology/cluster.h"

namespace weft::topology {

/// Walks every field of the cluster, in the order of the YAML form.
void visit(spec::Visitor& visitor, Cluster& cluster);

/// Checks as check() does, with places in its messages.
void check_at(const Cluster& cluster, const spec::Where& where);

}  // namespace weft::topology
