#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/spec/parse.h"

namespace weft::spec {
namespace {

bool inside(double value, const Bounds& bounds) {
  return (bounds.above_min ? value > bounds.min : value >= bounds.min) &&
         (bounds.below_max ? value < bounds.max : value <= bounds.max);
}

/// "at least 1" and, where the limit is only there to keep products from overflowing, that limit.
std::string allowed_text(const Field& field, const Value& value, bool too_large) {
  std::string text = range_text(field, value);
  if (too_large && (text.starts_with("at least") || text.starts_with("above"))) {
    text = fmt::format("at most {}", field.bounds.max);
  }
  return text;
}

class BoundsChecker final : public Visitor {
 public:
  BoundsChecker(std::string prefix, const Places& places)
      : prefix_(std::move(prefix)), places_(places) {}

  void value(const Field& field, const Value& value) override {
    if (const auto* integer = std::get_if<std::int64_t*>(&value)) {
      check(field, value, static_cast<double>(**integer), fmt::format("{}", **integer));
    } else if (const auto* number = std::get_if<double*>(&value)) {
      check(field, value, **number, fmt::format("{}", **number));
    } else if (const auto* range = std::get_if<Range*>(&value)) {
      check(field, value, static_cast<double>((*range)->begin), value_text(value));
      check(field, value, static_cast<double>((*range)->end), value_text(value));
    } else if (const auto* rows = std::get_if<RowSet*>(&value)) {
      for (const std::int64_t part : {(*rows)->begin, (*rows)->end, (*rows)->step}) {
        check(field, value, static_cast<double>(part), value_text(value));
      }
    } else if (const auto* ranges = std::get_if<std::vector<Range>*>(&value)) {
      for (const Range& one : **ranges) {
        check(field, value, static_cast<double>(one.begin), fmt::format("{}", one.begin));
        check(field, value, static_cast<double>(one.end), fmt::format("{}", one.end));
      }
    } else if (const auto* cuts = std::get_if<CutSizes*>(&value)) {
      const std::size_t count = (*cuts)->sizes.size();
      check(field, value, static_cast<double>(count), fmt::format("a list of {}", count));
      for (const std::int64_t size : (*cuts)->sizes) {
        check(field, value, static_cast<double>(size), fmt::format("{}", size));
      }
    } else if (const auto* list = std::get_if<std::vector<std::int64_t>*>(&value)) {
      for (const std::int64_t item : **list) {
        check(field, value, static_cast<double>(item), fmt::format("{}", item));
      }
    }
  }

  void section(const Field& field, const std::function<void(Visitor&)>& body) override {
    BoundsChecker inner(path(field) + ".", places_);
    body(inner);
  }

  void list(const Field& field, const ListAccess& access) override {
    for (std::size_t i = 0; i < access.size(); ++i) {
      BoundsChecker inner(entry_path(path(field), access.label(i), i) + ".", places_);
      access.visit(inner, i);
    }
  }

 private:
  [[nodiscard]] std::string path(const Field& field) const {
    return prefix_ + std::string(field.name);
  }

  void check(const Field& field, const Value& value, double number, const std::string& text) const {
    const std::string at = path(field);
    if (!std::isfinite(number)) {
      fail(ErrorCode::kConfig, "{}{}: {} is not finite", where_of(places_, at), at, text);
    }
    if (!inside(number, field.bounds)) {
      fail(ErrorCode::kConfig, "{}{}: must be {}{}{}, is {}", where_of(places_, at), at,
           allowed_text(field, value, number > field.bounds.max), field.unit.empty() ? "" : " ",
           field.unit, text);
    }
  }

  std::string prefix_;
  const Places& places_;
};

}  // namespace

void check_bounds(const std::function<void(Visitor&)>& body, const Places& places) {
  BoundsChecker checker("", places);
  body(checker);
}

}  // namespace weft::spec
