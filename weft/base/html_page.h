/// A page of HTML with plots that opens offline: text, style and SVG in one file, light and dark.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace weft {

/// Where a page comes from. All of it comes from the caller, so that equal pages have equal text.
struct PageOrigin {
  std::string made = {};           ///< date and time, "2026-11-22 18:30 UTC"
  std::string program = {};        ///< "weft 0.1.0"
  std::string host = {};           ///< whose it was made on
  std::string what = {};           ///< "configuration job.yaml, cluster clusters/a.yaml"
  std::string configuration = {};  ///< YAML; several lines
};

/// A box of a plot, from `begin` to `end` of the axis.
struct PlotBox {
  std::size_t row = 0;
  double begin = 0;
  double end = 0;
  std::string_view colour;
  std::string_view title;        ///< shown where the pointer rests
  std::string_view inside = {};  ///< written in it, where it is wide enough
};

/// What a colour of a plot means.
struct KeyEntry {
  std::string_view colour;
  std::string_view meaning;
};

/// Built from top to bottom. Colours are those of the style sheet: compute, lookup, moving,
/// waiting, other, idle.
class HtmlPage {
 public:
  /// Returns `text` escaped for use between tags and in attributes in double quotes.
  static std::string escaped(std::string_view text);

  /// open() is the first call and writes the page's head with its title and style sheet; close() is
  /// the last one. Nothing checks the order of calls.
  void open(std::string_view title);
  void close();

  /// Appends HTML as it is: text that is not ours must be escaped by the caller. The other methods
  /// escape their texts, but not colours and units.
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  /// Begins a section with a heading and a note in grey below it.
  void section(std::string_view title, std::string_view note);

  /// Where the page comes from, in small print; nothing of what is empty.
  void origin(const PageOrigin& origin);

  /// What the colours of the next plot mean.
  void key(std::span<const KeyEntry> entries);

  /// Opens a plot of `rows` rows, with an axis from 0 to `range` of `unit`.
  void open_plot(std::size_t rows, double range, std::string_view unit);

  /// Writes text left of a row of the open plot.
  void label(std::size_t row, std::string_view text);

  /// Draws a box in the open plot.
  void box(const PlotBox& box);

  /// A number after a row's boxes, which end at `end` of the axis.
  void figure(std::size_t row, double end, std::string_view text);

  /// Ends the plot that open_plot() began.
  void close_plot();

  std::string take() { return std::move(text_); }

 private:
  static double top(std::size_t row);

  std::string text_;
  double range_ = 1;
};

}  // namespace weft
