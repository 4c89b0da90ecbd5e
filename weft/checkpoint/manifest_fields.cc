#include "weft/checkpoint/manifest_fields.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "weft/base/error.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// Whether it is one of at least `low` that fits 64 bits.
bool is_integer(const Json& value, std::int64_t low) {
  const bool fits =
      value.is_number_integer() && (!value.is_number_unsigned() ||
                                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMax));
  return fits && value.get<std::int64_t>() >= low;
}

}  // namespace

bool from_hex(std::string_view text, std::uint64_t& value) {
  if (text.size() != kHexDigits) {
    return false;
  }
  for (const char c : text) {
    if (!(('0' <= c && c <= '9') || ('a' <= c && c <= 'f'))) {
      return false;
    }
  }
  return std::from_chars(text.data(), text.data() + text.size(), value, 16).ec == std::errc{};
}

std::string to_hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::string to_hex(const std::vector<std::uint64_t>& values) {
  std::string out;
  for (const std::uint64_t value : values) {
    out += to_hex(value);
  }
  return out;
}

void fail_damaged(const std::string& file, const std::string& what) {
  fail(ErrorCode::kCheckpoint,
       "'{}': {}; the checkpoint is damaged: restore it from a copy or resume from another one",
       file, what);
}

std::string to_number_list(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t number : numbers) {
    out += (out.empty() ? "" : " ") + std::to_string(number);
  }
  return out;
}

bool from_number_list(std::string_view text, std::vector<std::int64_t>& numbers) {
  numbers.clear();
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (!numbers.empty() && *at++ != ' ') {
      return false;
    }
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 0 || *at == '-') {
      return false;
    }
    numbers.push_back(number);
    at = next;
  }
  return true;
}

Fields::Fields(const Json& json, std::string path, const std::string& file)
    : json_(json), path_(std::move(path)), file_(file) {
  if (!json_.is_object()) {
    damaged("is not an object");
  }
}

std::int64_t Fields::integer(const char* name, std::int64_t low) const {
  const Json& value = at(name);
  if (!is_integer(value, low)) {
    damaged(fmt::format("'{}' is not a whole number of at least {}", name, low));
  }
  return value.get<std::int64_t>();
}

bool Fields::flag(const char* name) const {
  const Json& value = at(name);
  if (!value.is_boolean()) {
    damaged(fmt::format("'{}' is neither true nor false", name));
  }
  return value.get<bool>();
}

float Fields::number(const char* name) const {
  const Json& value = at(name);
  if (!value.is_number() || !(std::abs(value.get<double>()) <= std::numeric_limits<float>::max())) {
    damaged(fmt::format("'{}' is not a number", name));
  }
  return static_cast<float>(value.get<double>());
}

std::string Fields::text(const char* name) const {
  const Json& value = at(name);
  if (!value.is_string()) {
    damaged(fmt::format("'{}' is not text", name));
  }
  return value.get<std::string>();
}

DType Fields::dtype(const char* name) const {
  try {
    return dtype_from_string(text(name));
  } catch (const Error& error) {
    damaged(error.what());
  }
}

std::uint64_t Fields::hash(const char* name) const {
  std::uint64_t value = 0;
  if (!from_hex(text(name), value)) {
    damaged(fmt::format("'{}' is not 16 hexadecimal digits", name));
  }
  return value;
}

std::vector<std::uint64_t> Fields::hashes(const char* name) const {
  const std::string digits = text(name);
  std::vector<std::uint64_t> out(digits.size() / kHexDigits);
  bool good = digits.size() % kHexDigits == 0;
  for (std::size_t i = 0; good && i < out.size(); ++i) {
    good = from_hex(std::string_view(digits).substr(i * kHexDigits, kHexDigits), out[i]);
  }
  if (!good) {
    damaged(fmt::format("'{}' is not hexadecimal digits, 16 per chunk", name));
  }
  return out;
}

std::vector<std::int64_t> Fields::numbers(const char* name) const {
  std::vector<std::int64_t> out;
  if (!from_number_list(text(name), out)) {
    damaged(fmt::format("'{}' is not a text of whole numbers", name));
  }
  return out;
}

std::vector<std::int64_t> Fields::integers(const char* name,
                                           std::size_t least,
                                           std::size_t most) const {
  const Json& list = array(name);
  std::vector<std::int64_t> out;
  for (const Json& value : list) {
    if (!is_integer(value, 0)) {
      damaged(fmt::format("'{}' is not a list of whole numbers", name));
    }
    out.push_back(value.get<std::int64_t>());
  }
  if (out.size() < least || out.size() > most) {
    damaged(fmt::format("'{}' has {} numbers", name, out.size()));
  }
  return out;
}

const Json& Fields::object(const char* name) const {
  const Json& value = at(name);
  if (!value.is_object()) {
    damaged(fmt::format("'{}' is not an object", name));
  }
  return value;
}

Fields Fields::member(const char* name) const {
  return {object(name), path_of(name), file_};
}

const Json& Fields::array(const char* name) const {
  const Json& value = at(name);
  if (!value.is_array()) {
    damaged(fmt::format("'{}' is not a list", name));
  }
  return value;
}

void Fields::damaged(const std::string& what) const {
  fail_damaged(file_, path_.empty() ? what : fmt::format("{}: {}", path_, what));
}

std::string Fields::path_of(const char* name) const {
  return path_.empty() ? name : fmt::format("{}.{}", path_, name);
}

const Json& Fields::at(const char* name) const {
  const auto found = json_.find(name);
  if (found == json_.end()) {
    damaged(fmt::format("'{}' is missing", name));
  }
  return *found;
}

}  // namespace weft::checkpoint
