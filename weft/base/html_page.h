/// A page of HTML with plots that opens offline: text, style and SVG in one file, light and dark.
#pragma once

#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace weft {

/// Built from top to bottom. Colours are those of the style sheet: compute, lookup, moving,
/// waiting, other, idle.
class HtmlPage {
 public:
  /// For text between tags and in attributes.
  static std::string escaped(std::string_view text);

  void open(std::string_view title);
  void close();

  /// As it is: what is not ours must be escaped.
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  void section(std::string_view title, std::string_view note);

  /// What the colours mean, where they are named after it.
  void key(std::span<const std::string_view> names);

  /// Opens a plot of `rows` rows, with an axis from 0 to `range` of `unit`.
  void open_plot(std::size_t rows, double range, std::string_view unit);

  /// Left of a row.
  void label(std::size_t row, std::string_view text);

  /// A box from `begin` to `end` of the axis.
  void box(
      std::size_t row, double begin, double end, std::string_view colour, std::string_view title);

  void close_plot();

  std::string take() { return std::move(text_); }

 private:
  static double top(std::size_t row);

  std::string text_;
  double range_ = 1;
};

}  // namespace weft
