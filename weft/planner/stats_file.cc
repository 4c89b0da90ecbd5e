#include "weft/planner/stats_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft::planner {
namespace {

using nlohmann::json;

constexpr double kMostIds = 1e9;        // of a sample
constexpr double kMostDistinct = 1e18;  // int64 holds it
constexpr double kRounding = 1e-6;

/// Of what was read, short enough for a line.
std::string excerpt(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 40) {
    text.resize(40);
    text += "...";
  }
  return text;
}

class Reader {
 public:
  Reader(const std::string& text, const std::string& file) : file_(file) {
    try {
      root_ = json::parse(text);
    } catch (const json::parse_error& error) {
      refuse("no JSON: byte {} is not what can stand there", error.byte);
    } catch (const json::exception&) {
      refuse("a number that is too large");
    }
    if (!root_.is_object()) {
      refuse("{}, not an object", excerpt(root_));
    }
    const json version = root_.value("version", json());
    if (version != 1) {
      refuse("version {}; this Weft reads version 1", excerpt(version));
    }
  }

  std::map<std::string, ColumnStats> columns(const std::map<std::string, std::string>& wanted) {
    const auto list = root_.find("categorical");
    if (list == root_.end() || !list->is_array()) {
      refuse("no list 'categorical'");
    }
    std::map<std::string, ColumnStats> columns;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const json& entry = (*list)[i];
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) {
        refuse("an entry {} of 'categorical' without a text 'name': {}", i, excerpt(entry));
      }
      const auto name = entry["name"].get<std::string>();
      const auto feature = wanted.find(name);
      if (feature == wanted.end()) {
        continue;
      }
      where_ = fmt::format("column {} (of feature {})", name, feature->second);
      if (!columns.emplace(name, column(entry)).second) {
        refuse("{} twice", where_);
      }
    }
    return columns;
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kConfig,
         "{} has no statistics of columns: it has {}; write them with weft data stats --format "
         "json",
         file_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// A number of the column in hand within [0, most].
  [[nodiscard]] double number(const json& entry, const char* key, double most) const {
    const auto found = entry.find(key);
    if (found == entry.end()) {
      refuse("{} without '{}', a number from 0 to {:.0f}", where_, key, most);
    }
    // Whatever else it is compares false.
    const double value = found->is_number() ? found->get<double>() : -1.0;
    if (!(value >= 0.0 && value <= most * (1.0 + kRounding))) {
      refuse("{} with {} {}, not a number from 0 to {:.0f}", where_, key, excerpt(*found), most);
    }
    return std::min(value, most);
  }

  [[nodiscard]] ColumnStats column(const json& entry) const {
    const ColumnStats column{.missing = number(entry, "missing", 1.0),
                             .length_mean = number(entry, "length_mean", kMostIds),
                             .distinct = number(entry, "distinct", kMostDistinct),
                             .top_1 = number(entry, "top_1", 1.0),
                             .top_10 = number(entry, "top_10", 1.0),
                             .top_100 = number(entry, "top_100", 1.0),
                             .top_1000 = number(entry, "top_1000", 1.0),
                             .top_percent = number(entry, "top_percent", 1.0)};
    if (column.length_mean < (1.0 - column.missing) - kRounding) {
      refuse("{} with length_mean {}, less than {}, the share of samples with an id (1 - missing)",
             where_, column.length_mean, 1.0 - column.missing);
    }
    if (column.length_mean > 0.0 && (column.missing >= 1.0 || column.distinct < 1.0)) {
      refuse("{} with length_mean {}, missing {} and distinct {}: ids that nobody has", where_,
             column.length_mean, column.missing, column.distinct);
    }
    if (column.distinct != std::floor(column.distinct)) {
      refuse("{} with distinct {}, not a whole number", where_, column.distinct);
    }
    const std::array<std::pair<const char*, double>, 4> tops = {{{"top_1", column.top_1},
                                                                 {"top_10", column.top_10},
                                                                 {"top_100", column.top_100},
                                                                 {"top_1000", column.top_1000}}};
    for (std::size_t i = 1; i < tops.size(); ++i) {
      if (tops[i].second < tops[i - 1].second - kRounding) {
        refuse("{} with {} {} below {} {}, of fewer ids", where_, tops[i].first, tops[i].second,
               tops[i - 1].first, tops[i - 1].second);
      }
    }
    return column;
  }

  const std::string& file_;
  json root_;
  std::string where_;
};

}  // namespace

std::map<std::string, ColumnStats> read_column_stats(
    const std::string& text,
    const std::string& file,
    const std::map<std::string, std::string>& wanted) {
  return Reader(text, file).columns(wanted);
}

}  // namespace weft::planner
