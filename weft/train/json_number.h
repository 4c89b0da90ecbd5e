/// Private to train/: figures as JSON has them.
#pragma once

#include <cmath>

#include <nlohmann/json.hpp>

namespace weft::train {

/// null for what is not finite, which JSON has no number for.
inline nlohmann::ordered_json number(double value) {
  using Json = nlohmann::ordered_json;
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

}  // namespace weft::train
