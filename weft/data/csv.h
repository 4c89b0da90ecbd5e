/// Records of a CSV text (RFC 4180): fields separated by commas, quoted where they hold commas,
/// quotes (doubled) or line ends; lines end in \n or \r\n, the last may lack it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data {

/// Reads a text record by record. Not thread-safe.
class CsvReader {
 public:
  /// Keeps both views. `name` is for messages.
  CsvReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  /// The next record into `fields`, whose memory is reused; false at the end. Throws Error(kData)
  /// for an unfinished quoted field, text after a closing quote, and a NUL byte.
  bool next(std::vector<std::string>& fields);

  /// Line on which the last record began, from 1.
  [[nodiscard]] std::int64_t line() const { return line_; }

 private:
  void quoted_field(std::string& field);
  void plain_field(std::string& field);

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0;
  std::int64_t next_line_ = 1;
};

}  // namespace weft::data
