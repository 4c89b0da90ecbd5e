/// A configuration as somebody would write it: without what is as it would be anyway.
#pragma once

#include <string>

#include "weft/spec/config.h"

namespace weft::spec {

/// YAML of the version and of every value that differs from its default, the first of a kind with
/// the default as a comment. parse_config() of it gives the configuration again. Entries of lists
/// are named one by one; what a table takes over from sparse_optimizer is no difference.
std::string to_changed_yaml(const Config& config);

}  // namespace weft::spec
