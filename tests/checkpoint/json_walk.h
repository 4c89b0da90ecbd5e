/// Walks over all values of a JSON document.
#pragma once

#include <nlohmann/json.hpp>

#include "weft/checkpoint/manifest_fields.h"

namespace weft::checkpoint {

/// Calls each(pointer) for every value of a document.
template <typename Each>
void walk(const Json& json, const Json::json_pointer& at, const Each& each) {
  each(at);
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      walk(value, at / name, each);
    }
  } else if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) {
      walk(json[i], at / i, each);
    }
  }
}

}  // namespace weft::checkpoint
