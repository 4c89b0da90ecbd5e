/// Inside the module: the columns that a format is known to have before any file is opened.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/spec/config.h"

namespace weft::spec {

/// Names of columns, by kind.
struct KnownColumns {
  std::vector<std::string> dense;
  std::vector<std::string> categorical;
  std::vector<std::string> labels;
  std::vector<std::string> sample_weights;  ///< besides the dense ones
  std::vector<std::string> weighted;        ///< categorical ones whose ids carry weights
};

/// Returns the columns of the format; none for format weft, whose files say what they hold.
std::optional<KnownColumns> known_columns(const DataConfig& data);

}  // namespace weft::spec
