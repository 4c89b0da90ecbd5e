#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/data/criteo.h"
#include "weft/data/criteo_decode.h"

namespace weft::data {
namespace {

constexpr int kMaxHexDigits = 8;

/// The value of a hexadecimal digit, 16 for any other byte.
constexpr std::array<std::uint8_t, 256> make_hex_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(16);
  for (std::uint8_t i = 0; i < 10; ++i) {
    values['0' + i] = i;
  }
  for (std::uint8_t i = 0; i < 6; ++i) {
    values['a' + i] = static_cast<std::uint8_t>(10 + i);
    values['A' + i] = static_cast<std::uint8_t>(10 + i);
  }
  return values;
}

constexpr std::array<std::uint8_t, 256> kHexValues = make_hex_values();

/// The fields of one line, from left to right. After a failure the cursor's state is of no use: the
/// line is examined again, slowly, for the message.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool label(float& out) {
    if (at_ == end_ || (*at_ != '0' && *at_ != '1')) {
      return false;
    }
    out = *at_++ == '1' ? 1.0F : 0.0F;
    return true;
  }

  bool integer(float& out) {
    const bool negative = at_ != end_ && *at_ == '-';
    const char* const first = at_ + (negative ? 1 : 0);
    const char* p = first;
    std::uint64_t value = 0;  // unsigned, so that one digit too many does not overflow
    while (p != end_ && *p >= '0' && *p <= '9' && p - first <= kCriteoMaxDigits) {
      value = value * 10 + static_cast<std::uint64_t>(*p++ - '0');
    }
    const std::int64_t digits = p - first;
    if (digits > kCriteoMaxDigits || (digits == 0 && negative)) {
      return false;
    }
    out = digits == 0 ? std::numeric_limits<float>::quiet_NaN()
                      : static_cast<float>(negative ? -static_cast<std::int64_t>(value)
                                                    : static_cast<std::int64_t>(value));
    at_ = p;
    return true;
  }

  bool category(std::int64_t& out) {
    const char* const first = at_;
    std::uint64_t value = 0;
    while (at_ != end_) {
      const std::uint8_t digit = kHexValues[static_cast<std::uint8_t>(*at_)];
      if (digit > 15) {
        break;
      }
      value = value << 4 | digit;
      ++at_;
    }
    const std::int64_t digits = at_ - first;
    out = digits == 0 ? -1 : static_cast<std::int64_t>(value & 0xffffffffU);
    return digits <= kMaxHexDigits;
  }

  bool tab() { return at_ != end_ && *at_++ == '\t'; }

  [[nodiscard]] bool finished() const { return at_ == end_; }

 private:
  const char* at_;
  const char* end_;
};

bool parse(std::string_view line, CriteoSample& out) {
  Cursor cursor(line);
  bool good = cursor.label(out.label);
  for (std::size_t i = 0; good && i < kCriteoIntegers; ++i) {
    good = cursor.tab() && cursor.integer(out.integers[i]);
  }
  for (std::size_t i = 0; good && i < kCriteoCategories; ++i) {
    good = cursor.tab() && cursor.category(out.categories[i]);
  }
  return good && cursor.finished();
}

/// Printable, and of bounded length.
std::string quoted(std::string_view value) {
  constexpr std::size_t kShown = 40;
  std::string out = "'";
  for (const char c : value.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out + (value.size() > kShown ? "...'" : "'");
}

bool field_is_good(std::size_t field, std::string_view value) {
  Cursor cursor(value);
  float number = 0;
  std::int64_t id = 0;
  const bool good = field == 0                 ? cursor.label(number)
                    : field <= kCriteoIntegers ? cursor.integer(number)
                                               : cursor.category(id);
  return good && cursor.finished();
}

std::string_view expected(std::size_t field) {
  return field == 0                 ? "the label is 0 or 1"
         : field <= kCriteoIntegers ? "an integer column holds a decimal integer or nothing"
                                    : "a category is up to 8 hexadecimal digits or nothing";
}

/// Finds out what is wrong with a line that does not parse, and says it.
[[noreturn]] void fail_line(std::string_view line, const LinePlace& place) {
  if (line.find('\0') != std::string_view::npos) {
    fail(ErrorCode::kData,
         "{}:{}: a NUL byte at byte {} of the line; the file is damaged or is not text", place.file,
         place.line, line.find('\0') + 1);
  }
  const auto fields = static_cast<std::size_t>(std::count(line.begin(), line.end(), '\t')) + 1;
  if (fields != kCriteoFields) {
    fail(ErrorCode::kData,
         "{}:{}: {} where a Criteo line has {} separated by tabs (label, I1..I13, "
         "C1..C26){}; line: {}",
         place.file, place.line, counted(static_cast<std::int64_t>(fields), "field"), kCriteoFields,
         fields + 1 == kCriteoFields ? " - the test set without labels cannot be used" : "",
         quoted(line));
  }
  for (std::size_t field = 0; field < kCriteoFields; ++field) {
    const std::string_view value = line.substr(0, line.find('\t'));
    if (!field_is_good(field, value)) {
      fail(ErrorCode::kData, "{}:{}: column {} holds {}, but {}; correct or remove the line",
           place.file, place.line, criteo_column(field), quoted(value), expected(field));
    }
    line.remove_prefix(std::min(line.size(), value.size() + 1));
  }
  fail(ErrorCode::kInternal, "{}:{}: the fast and the slow look at a line differ; line: {}",
       place.file, place.line, quoted(line));
}

}  // namespace

std::string criteo_column(std::size_t field) {
  if (field == 0) {
    return "label";
  }
  return field <= kCriteoIntegers ? fmt::format("I{}", field)
                                  : fmt::format("C{}", field - kCriteoIntegers);
}

void parse_criteo_line(std::string_view line, const LinePlace& place, CriteoSample& out) {
  if (!parse(line, out)) [[unlikely]] {
    fail_line(line, place);
  }
}

}  // namespace weft::data
