/// Inside the module: text as YAML.
#pragma once

#include <string>
#include <string_view>

namespace weft::spec {

/// The text as it is where YAML reads it back as the same text, otherwise in double quotes.
std::string quote_yaml(std::string_view text);

}  // namespace weft::spec
