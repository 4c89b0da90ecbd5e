/// Text that is made line by line, for reports.
///
/// fmt::format() calls fmt's library. fmt::format_to() on a string has the compiler make all of
/// fmt's formatting again in every file that uses it, which takes four seconds a file.
#pragma once

#include <string>
#include <utility>

#include <fmt/core.h>

namespace weft {

/// A text to which lines are appended; take() hands it over and is the last call.
class TextLines {
 public:
  /// Appends a formatted line and its end.
  template <typename... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
    text_ += '\n';
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace weft
