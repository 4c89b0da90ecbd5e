/// Inside the module: from a tree to a struct, and the checks that know where each value stood.
#pragma once

#include <functional>
#include <string>

#include "weft/spec/config.h"
#include "weft/spec/describe.h"
#include "weft/spec/tree.h"
#include "weft/spec/yaml.h"

namespace weft::spec {

/// Fills the object that `body` walks from a map; keys that are absent keep their values. Errors
/// name the place and path. `places` receives where each key stood. Keys that are gone are for
/// `writer` to have.
void bind_tree(const NodePtr& root,
               const std::function<void(Visitor&)>& body,
               Places& places,
               WrittenBy writer = WrittenBy::kUser);

/// Where `path`, or the nearest section around it, stood; empty where nothing is known.
std::string where_of(const Places& places, std::string path);

/// Error(kConfig) where a value is out of its bounds, or a number is not finite.
void check_bounds(const std::function<void(Visitor&)>& body, const Places& places);

/// validate() of yaml.h with places in its messages.
void validate_at(const Config& config, const Places& places);

}  // namespace weft::spec
