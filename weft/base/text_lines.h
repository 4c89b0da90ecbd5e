/// Text that is made line by line, for reports.
#pragma once

#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace weft {

class TextLines {
 public:
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace weft
