#include "weft/data/criteo_decode.h"

#include <bit>
#include <cstring>
#include <limits>

#include "weft/base/error.h"

namespace weft::data {
namespace {

static_assert(std::endian::native == std::endian::little, "words hold the first byte lowest");

constexpr std::size_t kWord = 8;  // bytes

constexpr std::uint64_t each_byte(std::uint64_t value) {
  return value * 0x0101010101010101U;
}

constexpr std::uint64_t kHighBits = each_byte(0x80);

std::uint64_t load_word(const char* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// Bit i is set where byte i of the 64 is a tab.
std::uint64_t tab_mask(const char* at) {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint64_t x = load_word(at + i * kWord) ^ each_byte('\t');
    // The high bit of every byte that is zero; no carry crosses a byte.
    const std::uint64_t zero = ~(((x & ~kHighBits) + ~kHighBits) | x) & kHighBits;
    // Eight bits, 8 apart, gathered: the product's top byte has bit i at 7 * (8 - i) + 8 * i + ..
    mask |= (((zero >> 7) * 0x0102040810204080U) >> 56) << (i * kWord);
  }
  return mask;
}

/// std::popcount() is a call where the instruction cannot be taken for granted.
std::size_t count_bits(std::uint64_t mask) {
  mask -= (mask >> 1) & each_byte(0x55);
  mask = (mask & each_byte(0x33)) + ((mask >> 2) & each_byte(0x33));
  return (((mask + (mask >> 4)) & each_byte(0x0f)) * each_byte(1)) >> 56;
}

/// The bytes of `word` but the first `kept` before its end, which are the highest, become zero.
std::uint64_t keep_last(std::uint64_t word, std::size_t kept) {
  const std::size_t shift = (8 * (kWord - kept)) & 63;
  return ((word >> shift) << shift) & (std::uint64_t{0} - static_cast<std::uint64_t>(kept != 0));
}

/// Nonzero where a byte is above 9.
std::uint64_t above_nine(std::uint64_t digits) {
  return ((digits + each_byte(0x76)) | digits) & kHighBits;
}

/// The number whose eight decimal digits are the bytes, the first one lowest: neighbours are put
/// together to two digits per 16 bits, four per 32, eight.
std::uint64_t from_decimal(std::uint64_t digits) {
  const std::uint64_t two = (digits * 10 + (digits >> 8)) & 0x00ff00ff00ff00ffU;
  const std::uint64_t four = (two * 100 + (two >> 16)) & 0x0000ffff0000ffffU;
  return (four * 10000 + (four >> 32)) & 0xffffffffU;
}

std::uint64_t from_hexadecimal(std::uint64_t digits) {
  const std::uint64_t two = (digits << 4 | digits >> 8) & 0x00ff00ff00ff00ffU;
  const std::uint64_t four = (two << 8 | two >> 16) & 0x0000ffff0000ffffU;
  return (four << 16 | four >> 32) & 0xffffffffU;
}

/// Values of eight hexadecimal characters; `bad` becomes nonzero where one is none.
std::uint64_t hexadecimal_digits(std::uint64_t text, std::uint64_t& bad) {
  // With high bits away, a digit is what '0' takes below ten, a letter what '`' and any case take
  // into 1 .. 6.
  const std::uint64_t low = text & ~kHighBits;
  const std::uint64_t no_digit = ((low ^ each_byte('0')) + each_byte(0x76)) & kHighBits;
  const std::uint64_t letter = (low | each_byte(0x20)) ^ each_byte(0x60);
  const std::uint64_t is_letter =
      (letter + each_byte(0x7f)) & ~(letter + each_byte(0x79)) & kHighBits;
  bad |= (no_digit & ~is_letter) | (text & kHighBits);
  // '0' is 0x30 and 'a' 0x61: letters have bit 6 and begin with 1 where 10 is meant.
  return (text & each_byte(0x0f)) + ((text >> 6) & each_byte(1)) * 9;
}

/// An integer of more than eight digits, as in parse_criteo_line(); false where it is none.
bool long_integer(std::string_view digits, bool negative, float& out) {
  if (digits.size() > static_cast<std::size_t>(kCriteoMaxDigits)) {
    return false;
  }
  std::int64_t value = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') {
      return false;
    }
    value = value * 10 + (c - '0');
  }
  out = static_cast<float>(negative ? -value : value);
  return true;
}

/// Where each field of a line ends; false where it has not kCriteoFields of them.
bool cut_line(std::string_view line, std::uint16_t* ends) {
  constexpr std::size_t kStep = 64;
  std::size_t tabs = 0;
  for (std::size_t at = 0; at < line.size(); at += kStep) {
    std::uint64_t mask = tab_mask(line.data() + at);
    const std::size_t left = line.size() - at;
    if (left < kStep) {
      mask &= (std::uint64_t{1} << left) - 1;
    }
    const std::size_t found = count_bits(mask);
    if (tabs + found >= kCriteoFields) {
      return false;
    }
    // Eight at a time whether or not they are there: what is too much is written over later.
    std::uint16_t* out = ends + tabs;
    for (std::size_t i = 0; i < found; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) {
        *out++ = static_cast<std::uint16_t>(at + static_cast<std::size_t>(std::countr_zero(mask)));
        mask &= mask - 1;
      }
    }
    tabs += found;
  }
  ends[kCriteoFields - 1] = static_cast<std::uint16_t>(line.size());
  return tabs + 1 == kCriteoFields;
}

}  // namespace

CriteoDecoder::CriteoDecoder(const ColumnSelection& selection, std::size_t samples, RawBlock& out)
    : selection_(selection), out_(out) {
  // What is there is kept and written over: nothing is filled with zeros but new memory.
  const auto shape = [](auto& column, char selected, std::size_t size) {
    column.resize(selected != 0 ? size : 0);
  };
  out.size = static_cast<std::int64_t>(samples);
  out.labels.resize(1);
  shape(out.labels[0], selection.labels[0], samples);
  out.dense.resize(kCriteoIntegers);
  for (std::size_t i = 0; i < kCriteoIntegers; ++i) {
    shape(out.dense[i], selection.dense[i], samples);
  }
  out.categorical.resize(kCriteoCategories);
  for (std::size_t i = 0; i < kCriteoCategories; ++i) {
    RawBlock::Bags& bags = out.categorical[i];
    // One more than can be: an id is written before it is known to be there.
    shape(bags.ids, selection.categorical[i], samples + 1);
    shape(bags.offsets, selection.categorical[i], samples + 1);
    bags.weights.clear();
    if (selection.categorical[i] != 0) {
      bags.offsets[0] = 0;
    }
  }
}

bool CriteoDecoder::add(std::span<const std::string_view> lines) {
  WEFT_CHECK(lines.size() <= kTile, "{} lines", lines.size());
  bool good = cut(lines) && add_labels();
  for (std::size_t i = 0; good && i < kCriteoIntegers; ++i) {
    good = add_integers(i);
  }
  for (std::size_t i = 0; good && i < kCriteoCategories; ++i) {
    good = add_categories(i);
  }
  first_ += lines_;
  return good;
}

void CriteoDecoder::finish() {
  for (std::size_t i = 0; i < kCriteoCategories; ++i) {
    if (selection_.categorical[i] != 0) {
      out_.categorical[i].ids.resize(ids_[i]);
    }
  }
}

bool CriteoDecoder::cut(std::span<const std::string_view> lines) {
  lines_ = lines.size();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text_[i] = lines[i].data();
    if (!cut_line(lines[i], ends_.data() + i * kCriteoFields)) {
      return false;
    }
  }
  return true;
}

bool CriteoDecoder::add_labels() {
  float* const out =
      selection_.labels[0] != 0 ? out_.labels[0].data() + first_ : unused_floats_.data();
  bool bad = false;
  for (std::size_t i = 0; i < lines_; ++i) {
    const auto digit = static_cast<unsigned>(text_[i][0] - '0');
    bad |= ends_[i * kCriteoFields] != 1 || digit > 1;
    out[i] = static_cast<float>(digit & 1);
  }
  return !bad;
}

bool CriteoDecoder::add_integers(std::size_t column) {
  float* const out =
      selection_.dense[column] != 0 ? out_.dense[column].data() + first_ : unused_floats_.data();
  const std::uint16_t* end = &ends_[column + 1];
  std::uint64_t bad = 0;
  for (std::size_t i = 0, lines = lines_; i < lines; ++i, end += kCriteoFields) {
    const std::size_t begin = std::size_t{end[-1]} + 1;
    const bool negative = text_[i][begin] == '-';  // never where the field is empty
    const std::size_t digits = *end - begin - (negative ? 1 : 0);
    if (digits > kWord) [[unlikely]] {
      bad |= long_integer({text_[i] + *end - digits, digits}, negative, out[i]) ? 0 : 1;
      continue;
    }
    const std::uint64_t word =
        keep_last(load_word(text_[i] + *end - kWord) ^ each_byte('0'), digits);
    bad |= above_nine(word) | static_cast<std::uint64_t>(negative && digits == 0);
    const auto value = static_cast<std::int32_t>(from_decimal(word));
    const auto number = static_cast<float>(negative ? -value : value);
    out[i] = digits == 0 ? std::numeric_limits<float>::quiet_NaN() : number;
  }
  return bad == 0;
}

bool CriteoDecoder::add_categories(std::size_t column) {
  std::int64_t* ids = unused_ids_.data();
  std::int64_t* offsets = unused_offsets_.data();
  std::size_t count = 0;
  if (selection_.categorical[column] != 0) {
    ids = out_.categorical[column].ids.data();
    offsets = out_.categorical[column].offsets.data() + first_ + 1;
    count = ids_[column];
  }
  // First the text of those that are there, one after the other, then its values in its place: the
  // second loop has no addresses in it and becomes vector instructions.
  const std::size_t begin = count;
  const std::uint16_t* end = &ends_[kCriteoIntegers + column + 1];
  std::uint64_t bad = 0;
  for (std::size_t i = 0, lines = lines_; i < lines; ++i, end += kCriteoFields) {
    const std::size_t digits = *end - std::size_t{end[-1]} - 1;
    bad |= static_cast<std::uint64_t>(digits > kWord);
    ids[count] = static_cast<std::int64_t>(
        keep_last(load_word(text_[i] + *end - kWord) ^ each_byte('0'), digits));
    count += digits != 0 ? 1 : 0;
    offsets[i] = static_cast<std::int64_t>(count);
  }
  for (std::size_t i = begin; i < count; ++i) {
    const std::uint64_t text = static_cast<std::uint64_t>(ids[i]) ^ each_byte('0');
    ids[i] = static_cast<std::int64_t>(from_hexadecimal(hexadecimal_digits(text, bad)));
  }
  ids_[column] = count;
  return bad == 0;
}

}  // namespace weft::data
