#include "weft/spec/describe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "weft/spec/text.h"

namespace weft::spec {
namespace {

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  }
  return fmt::format("{}", value);
}

/// Collects the text of defaults by key.
class DefaultCollector final : public Visitor {
 public:
  DefaultCollector(std::string prefix, std::map<std::string, std::string>& out)
      : prefix_(std::move(prefix)), out_(out) {}

  void value(const Field& field, const Value& value) override {
    out_[key(field)] =
        field.default_text.empty() ? value_text(value) : std::string(field.default_text);
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    out_[key(field)] = field.default_text;
    DefaultCollector inner(key(field) + ".", out_);
    body(inner);
  }

  void list(const Field& field, const ListAccess& access) override {
    out_[key(field)] = field.default_text.empty() ? "none" : std::string(field.default_text);
    DefaultCollector inner(key(field) + "[].", out_);
    access.visit_default(inner);
  }

 private:
  [[nodiscard]] std::string key(const Field& field) const {
    return prefix_ + std::string(field.name);
  }

  std::string prefix_;
  std::map<std::string, std::string>& out_;
};

template <typename T>
std::string join_flow(const std::vector<T>& items) {
  std::vector<std::string> texts;
  for (const T& item : items) {
    if constexpr (std::is_same_v<T, std::string>) {
      texts.push_back(quote_yaml(item));
    } else {
      texts.push_back(fmt::format("{}", item));
    }
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

bool is_name(std::string_view text) {
  constexpr std::size_t kLongest = 128;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto allowed = [&](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kLongest &&
         std::all_of(text.begin(), text.end(), allowed) &&
         !std::all_of(text.begin(), text.end(), is_digit);
}

std::string entry_path(std::string_view list_path, std::string_view label, std::size_t index) {
  return is_name(label) ? fmt::format("{}.{}", list_path, label)
                        : fmt::format("{}.{}", list_path, index);
}

std::string type_text(const Value& value) {
  struct {
    std::string operator()(const std::int64_t*) const { return "integer"; }

    std::string operator()(const std::uint64_t*) const { return "integer"; }

    std::string operator()(const double*) const { return "number"; }

    std::string operator()(const bool*) const { return "true or false"; }

    std::string operator()(const std::string*) const { return "text"; }

    std::string operator()(const Range*) const { return "two integers"; }

    std::string operator()(const RowSet*) const { return "two or three integers"; }

    std::string operator()(const std::vector<Range>*) const { return "list of two integers each"; }

    std::string operator()(const std::vector<std::int64_t>*) const { return "list of integers"; }

    std::string operator()(const CutSizes*) const { return "integer or list of integers"; }

    std::string operator()(const std::vector<std::string>*) const { return "text or list of text"; }

    std::string operator()(const Choice&) const { return "word"; }
  } visitor;

  return std::visit(visitor, value);
}

std::string range_text(const Field& field, const Value& value) {
  if (const auto* choice = std::get_if<Choice>(&value)) {
    return fmt::format("{}", fmt::join(choice->names, ", "));
  }
  if (std::holds_alternative<std::uint64_t*>(value)) {
    return "0 to 2^64 - 1";
  }
  // Limits above this are only there to keep products from overflowing.
  constexpr double kOfInterest = 1e9;
  const Bounds& bounds = field.bounds;
  if (bounds.min < -kOfInterest || std::isinf(bounds.min)) {
    return {};
  }
  const std::string low = number_text(bounds.min);
  if (bounds.max > kOfInterest) {
    return fmt::format("{} {}", bounds.above_min ? "above" : "at least", low);
  }
  const std::string high = number_text(bounds.max);
  if (bounds.min == bounds.max) {
    return low;
  }
  std::string text = fmt::format("{} to {}", low, high);
  if (bounds.above_min || bounds.below_max) {
    text += bounds.above_min && bounds.below_max ? ", without the ends"
            : bounds.above_min                   ? fmt::format(", without {}", low)
                                                 : fmt::format(", without {}", high);
  }
  return text;
}

std::string value_text(const Value& value) {
  struct {
    std::string operator()(const std::int64_t* v) const { return fmt::format("{}", *v); }

    std::string operator()(const std::uint64_t* v) const { return fmt::format("{}", *v); }

    std::string operator()(const double* v) const { return fmt::format("{}", *v); }

    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }

    std::string operator()(const std::string* v) const { return quote_yaml(*v); }

    std::string operator()(const Range* v) const {
      return fmt::format("[{}, {}]", v->begin, v->end);
    }

    std::string operator()(const RowSet* v) const {
      return v->step == 1 ? fmt::format("[{}, {}]", v->begin, v->end)
                          : fmt::format("[{}, {}, {}]", v->begin, v->end, v->step);
    }

    std::string operator()(const std::vector<Range>* v) const {
      std::vector<std::string> ranges;
      for (const Range& range : *v) {
        ranges.push_back((*this)(&range));
      }
      return fmt::format("[{}]", fmt::join(ranges, ", "));
    }

    std::string operator()(const std::vector<std::int64_t>* v) const { return join_flow(*v); }

    std::string operator()(const CutSizes* v) const {
      const bool equal = std::all_of(v->sizes.begin(), v->sizes.end(),
                                     [](std::int64_t size) { return size == 1; });
      return equal ? fmt::format("{}", v->sizes.size()) : join_flow(v->sizes);
    }

    std::string operator()(const std::vector<std::string>* v) const { return join_flow(*v); }

    std::string operator()(const Choice& v) const { return std::string(v.names[v.get()]); }
  } visitor;

  return std::visit(visitor, value);
}

std::map<std::string, std::string> default_texts() {
  std::map<std::string, std::string> out;
  DefaultCollector collector("", out);
  Config fresh;
  visit(collector, fresh);
  return out;
}

}  // namespace weft::spec
