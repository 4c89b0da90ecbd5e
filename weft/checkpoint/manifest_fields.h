/// Private to checkpoint/: the members of a manifest's JSON, each read with its type and range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/checkpoint/manifest.h"

namespace weft::checkpoint {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kHexDigits = 16;

/// 16 digits.
std::string to_hex(std::uint64_t value);

/// Digits of all, one after the other.
std::string to_hex(const std::vector<std::uint64_t>& values);

/// Whether a text is exactly 16 digits, lower case, and their value.
bool from_hex(std::string_view text, std::uint64_t& value);

[[noreturn]] void fail_damaged(const std::string& file, const std::string& what);

/// "0 20 40", and what such a text says: whole numbers of at least 0 with one space between.
std::string to_number_list(const std::vector<std::int64_t>& numbers);
bool from_number_list(std::string_view text, std::vector<std::int64_t>& numbers);

/// A JSON object that is read field by field; `path` is where it stands. Every failure is an
/// Error(kCheckpoint) that names file and field.
class Fields {
 public:
  Fields(const Json& json, std::string path, const std::string& file);

  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t low) const;

  [[nodiscard]] bool has(const char* name) const { return json_.contains(name); }

  [[nodiscard]] bool flag(const char* name) const;

  /// A number that is a float.
  [[nodiscard]] float number(const char* name) const;

  [[nodiscard]] std::string text(const char* name) const;

  [[nodiscard]] DType dtype(const char* name) const;

  [[nodiscard]] std::uint64_t hash(const char* name) const;

  /// Checksums stand one after the other, 16 digits each.
  [[nodiscard]] std::vector<std::uint64_t> hashes(const char* name) const;

  /// A text of numbers.
  [[nodiscard]] std::vector<std::int64_t> numbers(const char* name) const;

  /// A list of whole numbers of at least 0, `least` to `most` of them.
  [[nodiscard]] std::vector<std::int64_t> integers(const char* name,
                                                   std::size_t least,
                                                   std::size_t most) const;

  [[nodiscard]] const Json& object(const char* name) const;

  /// The fields of an object.
  [[nodiscard]] Fields member(const char* name) const;

  [[nodiscard]] const Json& array(const char* name) const;

  /// Calls each(fields) for every element of an array of objects.
  template <typename Each>
  void list(const char* name, const Each& each) const {
    std::size_t i = 0;
    for (const Json& element : array(name)) {
      each(Fields(element, fmt::format("{}[{}]", path_of(name), i++), file_));
    }
  }

  [[noreturn]] void damaged(const std::string& what) const;

 private:
  [[nodiscard]] const Json& at(const char* name) const;
  [[nodiscard]] std::string path_of(const char* name) const;

  const Json& json_;
  std::string path_;
  const std::string& file_;
};

/// A cut; `ranks` is the name of what it cuts over.
Json encode_rule(const CutRule& rule, const char* ranks);
CutRule decode_rule(const Fields& fields, const char* ranks);

/// Members "tables", "layouts" and "segments".
void encode_rows(Json& json, const Manifest& manifest);
void decode_rows(const Fields& fields, Manifest& manifest);

/// Member "items".
Json encode_items(const Manifest& manifest, std::int64_t version);
void decode_items(const Fields& fields, Manifest& manifest);

}  // namespace weft::checkpoint
