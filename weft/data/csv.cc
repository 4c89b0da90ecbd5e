#include "weft/data/csv.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::data {

bool CsvReader::next(std::vector<std::string>& fields) {
  if (at_ >= text_.size()) {
    return false;
  }
  line_ = next_line_;
  std::size_t count = 0;
  for (bool more = true; more;) {
    if (count == fields.size()) {
      fields.emplace_back();
    }
    std::string& field = fields[count++];
    field.clear();
    if (at_ < text_.size() && text_[at_] == '"') {
      quoted_field(field);
    } else {
      plain_field(field);
    }
    more = at_ < text_.size() && text_[at_] == ',';
    at_ += more ? 1 : 0;
  }
  fields.resize(count);
  at_ += text_.substr(at_).starts_with('\r') ? 1 : 0;
  at_ += text_.substr(at_).starts_with('\n') ? 1 : 0;
  ++next_line_;
  return true;
}

void CsvReader::plain_field(std::string& field) {
  const std::size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
  std::string_view value = text_.substr(at_, end - at_);
  const bool line_end = end == text_.size() || text_[end] == '\n';
  if (line_end && value.ends_with('\r')) {
    value.remove_suffix(1);
  }
  if (value.find('\0') != std::string_view::npos) {
    fail(ErrorCode::kData, "{}:{}: a NUL byte; the file is damaged or is not text", name_, line_);
  }
  field.assign(value);
  at_ += value.size();
}

void CsvReader::quoted_field(std::string& field) {
  for (++at_;;) {
    const std::size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) {
      fail(ErrorCode::kData,
           "{}:{}: a quoted field that begins in this record never ends; is the "
           "file cut?",
           name_, line_);
    }
    const std::string_view value = text_.substr(at_, quote - at_);
    field.append(value);
    next_line_ += std::count(value.begin(), value.end(), '\n');
    at_ = quote + 1;
    if (!text_.substr(at_).starts_with('"')) {
      break;
    }
    field += '"';
    ++at_;
  }
  const std::string_view rest = text_.substr(at_);
  if (!rest.empty() && !rest.starts_with(',') && !rest.starts_with('\n') &&
      !rest.starts_with("\r\n") && rest != "\r") {
    fail(ErrorCode::kData,
         "{}:{}: text after the closing quote of a field; double the quotes inside a quoted field",
         name_, line_);
  }
}

}  // namespace weft::data
