#include "weft/data/criteo.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/data/byte_stream.h"

namespace weft::data {
namespace {

constexpr std::size_t kChunk = 256 * 1024;
constexpr std::int64_t kSkipRun = 4096;  ///< lines read at once where none is kept
constexpr int kMaxDigits = 18;           ///< so that an int64 cannot overflow
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

std::string column_name(std::size_t field) {
  if (field == 0) {
    return "label";
  }
  return field <= kCriteoIntegers ? fmt::format("I{}", field)
                                  : fmt::format("C{}", field - kCriteoIntegers);
}

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
    while (p != end_ && *p >= '0' && *p <= '9' && p - first <= kMaxDigits) {
      value = value * 10 + static_cast<std::uint64_t>(*p++ - '0');
    }
    const std::int64_t digits = p - first;
    if (digits > kMaxDigits || (digits == 0 && negative)) {
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
         "{}:{}: {} fields where a Criteo line has {} separated by tabs (label, I1..I13, "
         "C1..C26){}; line: {}",
         place.file, place.line, fields, kCriteoFields,
         fields + 1 == kCriteoFields ? " - the test set without labels cannot be used" : "",
         quoted(line));
  }
  for (std::size_t field = 0; field < kCriteoFields; ++field) {
    const std::string_view value = line.substr(0, line.find('\t'));
    if (!field_is_good(field, value)) {
      fail(ErrorCode::kData, "{}:{}: column {} holds {}, but {}; correct or remove the line",
           place.file, place.line, column_name(field), quoted(value), expected(field));
    }
    line.remove_prefix(std::min(line.size(), value.size() + 1));
  }
  fail(ErrorCode::kInternal, "{}:{}: the fast and the slow look at a line differ; line: {}",
       place.file, place.line, quoted(line));
}

Schema make_schema() {
  Schema schema;
  schema.labels = {"label"};
  for (std::size_t field = 1; field < kCriteoFields; ++field) {
    if (field <= kCriteoIntegers) {
      schema.dense.push_back(column_name(field));
    } else {
      schema.categorical.push_back({column_name(field), false, false});
    }
  }
  return schema;
}

/// Keeps the text of the loaded lines [first_, first_ + lines) in `text_`:
///
///   text_   | line | line | .. | line | bytes not yet cut into lines |
///           starts_[0]            starts_.back()                     used_
class CriteoSource final : public Source {
 public:
  explicit CriteoSource(std::vector<std::string> files)
      : files_(std::move(files)),
        schema_(make_schema()),
        selection_(ColumnSelection::all(schema_)) {
    rewind();
  }

  [[nodiscard]] const Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override {
    const std::string name = std::filesystem::path(files_.front()).filename().string();
    return files_.size() == 1 ? fmt::format("criteo {}", name)
                              : fmt::format("criteo {} and {} more files", name, files_.size() - 1);
  }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    if (first < first_) {
      WEFT_CHECK(first == 0, "load from {} after {}", first, first_);
      rewind();
    }
    drop_before(first);
    while (first_ + lines() < first && read_line()) {
      if (lines() == kSkipRun) {
        drop_before(std::min(first, first_ + lines()));
      }
    }
    drop_before(std::min(first, first_ + lines()));
    while (first_ + lines() < first + count && read_line()) {
    }
    return std::clamp<std::int64_t>(first_ + lines() - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    out.reset(schema_);
    CriteoSample sample;
    begin_bags(out);
    for (const std::int64_t id : sample_ids) {
      WEFT_CHECK(id >= first_ && id < first_ + lines(), "sample {} outside the loaded [{}, {})", id,
                 first_, first_ + lines());
      parse_criteo_line(line(id - first_), place(id), sample);
      append(sample, out);
    }
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema_, columns);
  }

  [[nodiscard]] bool random_access() const override { return false; }

  [[nodiscard]] std::int64_t size() const override { return total_; }

  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_files(files_); }

 private:
  [[nodiscard]] std::int64_t lines() const { return static_cast<std::int64_t>(starts_.size()) - 1; }

  /// Line `index` of the loaded ones, without its end.
  [[nodiscard]] std::string_view line(std::int64_t index) const {
    const std::size_t begin = starts_[static_cast<std::size_t>(index)];
    std::size_t end = starts_[static_cast<std::size_t>(index) + 1] - 1;
    if (end > begin && text_[end - 1] == '\r') {
      --end;
    }
    return {text_.data() + begin, end - begin};
  }

  [[nodiscard]] LinePlace place(std::int64_t sample) const {
    const auto next = std::upper_bound(file_first_.begin(), file_first_.end(), sample);
    const auto file = static_cast<std::size_t>(next - file_first_.begin()) - 1;
    return {files_[file], sample - file_first_[file] + 1};
  }

  void rewind() {
    stream_.reset();
    file_first_.clear();
    starts_.assign(1, 0);
    used_ = searched_ = 0;
    first_ = 0;
  }

  /// Forgets the lines before sample `first`, which is not after the loaded range.
  void drop_before(std::int64_t first) {
    const std::int64_t count = std::min(first - first_, lines());
    if (count <= 0) {
      return;
    }
    const std::size_t bytes = starts_[static_cast<std::size_t>(count)];
    std::memmove(text_.data(), text_.data() + bytes, used_ - bytes);
    starts_.erase(starts_.begin(), starts_.begin() + count);
    for (std::size_t& start : starts_) {
      start -= bytes;
    }
    used_ -= bytes;
    searched_ -= bytes;
    first_ += count;
  }

  /// Cuts off one more line; false at the end of the last file.
  bool read_line() {
    for (;;) {
      const char* const from = text_.data() + searched_;
      const std::size_t left = used_ - searched_;
      const void* const found = left == 0 ? nullptr : std::memchr(from, '\n', left);
      if (found != nullptr) {
        searched_ += static_cast<std::size_t>(static_cast<const char*>(found) - from) + 1;
        check_length(searched_ - starts_.back());
        starts_.push_back(searched_);
        return true;
      }
      searched_ = used_;
      check_length(used_ - starts_.back());
      if (!fill()) {
        return false;
      }
    }
  }

  void check_length(std::size_t bytes) const {
    if (bytes > kCriteoMaxLine) {
      const LinePlace where = place(first_ + lines());
      fail(ErrorCode::kData,
           "{}:{}: the line has more than {} bytes, far more than any Criteo line; the file is "
           "damaged or of another format",
           where.file, where.line, kCriteoMaxLine);
    }
  }

  /// Appends more bytes; ends the last line of a file that lacks its end. False after all files.
  bool fill() {
    if (stream_ == nullptr && !open_next()) {
      return false;
    }
    if (text_.size() < used_ + kChunk) {
      text_.resize(std::max(used_ + kChunk, text_.size() * 2));
    }
    const std::size_t got = stream_->read(text_.data() + used_, kChunk);
    used_ += got;
    if (got > 0) {
      return true;
    }
    stream_.reset();
    if (used_ > starts_.back()) {
      text_[used_++] = '\n';
    } else if (file_first_.back() == first_ + lines()) {
      fail(ErrorCode::kData, "'{}' holds no line; remove it from data.path or fetch it again",
           files_[file_first_.size() - 1]);
    }
    return true;
  }

  bool open_next() {
    if (file_first_.size() == files_.size()) {
      total_ = first_ + lines();
      return false;
    }
    stream_ = open_bytes(files_[file_first_.size()]);
    file_first_.push_back(first_ + lines());
    return true;
  }

  void begin_bags(RawBlock& out) const {
    for (std::size_t c = 0; c < kCriteoCategories; ++c) {
      if (selection_.categorical[c] != 0) {
        out.categorical[c].offsets.push_back(0);
      }
    }
  }

  void append(const CriteoSample& sample, RawBlock& out) const {
    if (selection_.labels[0] != 0) {
      out.labels[0].push_back(sample.label);
    }
    for (std::size_t d = 0; d < kCriteoIntegers; ++d) {
      if (selection_.dense[d] != 0) {
        out.dense[d].push_back(sample.integers[d]);
      }
    }
    for (std::size_t c = 0; c < kCriteoCategories; ++c) {
      if (selection_.categorical[c] == 0) {
        continue;
      }
      RawBlock::Bags& bags = out.categorical[c];
      if (sample.categories[c] >= 0) {
        bags.ids.push_back(sample.categories[c]);
      }
      bags.offsets.push_back(static_cast<std::int64_t>(bags.ids.size()));
    }
  }

  std::vector<std::string> files_;
  Schema schema_;
  ColumnSelection selection_;

  std::unique_ptr<ByteStream> stream_;    ///< of file file_first_.size() - 1
  std::vector<std::int64_t> file_first_;  ///< first sample of each file opened so far
  std::int64_t total_ = -1;

  std::vector<char> text_;
  std::vector<std::size_t> starts_;  ///< of the loaded lines, and where the next begins
  std::size_t used_ = 0;
  std::size_t searched_ = 0;  ///< no line end in [starts_.back(), searched_)
  std::int64_t first_ = 0;    ///< sample of the first loaded line
};

}  // namespace

void parse_criteo_line(std::string_view line, const LinePlace& place, CriteoSample& out) {
  if (!parse(line, out)) [[unlikely]] {
    fail_line(line, place);
  }
}

std::unique_ptr<Source> open_criteo(std::vector<std::string> files) {
  WEFT_CHECK(!files.empty());
  return std::make_unique<CriteoSource>(std::move(files));
}

}  // namespace weft::data
