#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/data/csv.h"
#include "weft/data/movielens.h"

namespace weft::data {
namespace {

constexpr std::size_t kMinRatings = 10;   ///< so that the last tenth is not empty
constexpr std::size_t kMaxGenres = 1000;  ///< MovieLens has 20; counts are kept per user and genre

/// One file's records: the header checked, numbers converted, errors placed.
class Records {
 public:
  Records(std::string_view text, std::string name, std::vector<std::string> columns)
      : name_(std::move(name)), columns_(std::move(columns)), csv_(text, name_) {
    if (!csv_.next(fields_) || fields_ != columns_) {
      fail(ErrorCode::kData, "{}:1: the header is '{}' and should be '{}'; is it a MovieLens file?",
           name_, fmt::format("{}", fmt::join(fields_, ",")).substr(0, 80),
           fmt::join(columns_, ","));
    }
  }

  bool next() {
    if (!csv_.next(fields_)) {
      return false;
    }
    if (fields_.size() != columns_.size()) {
      fail(ErrorCode::kData,
           "{}:{}: {} where there should be {} ({}); quote fields that hold "
           "commas",
           name_, csv_.line(), counted(std::ssize(fields_), "field"), columns_.size(),
           fmt::join(columns_, ","));
    }
    return true;
  }

  [[nodiscard]] const std::string& text(std::size_t column) const { return fields_[column]; }

  /// A whole number that is not negative.
  [[nodiscard]] std::int64_t number(std::size_t column) const {
    const std::string& field = fields_[column];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value < 0) {
      fail_value(column, "a whole number, not negative");
    }
    return value;
  }

  [[nodiscard]] float rating(std::size_t column) const {
    const std::string& field = fields_[column];
    float value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() ||
        !(value >= 0.0F && value <= 5.0F)) {
      fail_value(column, "a rating from 0 to 5");
    }
    return value;
  }

  [[noreturn]] void fail_value(std::size_t column, std::string_view expected) const {
    fail(ErrorCode::kData, "{}:{}: column {} holds '{}' and should hold {}", name_, csv_.line(),
         columns_[column], fields_[column].substr(0, 40), expected);
  }

 private:
  std::string name_;
  std::vector<std::string> columns_;
  CsvReader csv_;
  std::vector<std::string> fields_;
};

std::vector<std::string> split_names(const std::string& field) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < field.size();) {
    const std::size_t end = std::min(field.find('|', begin), field.size());
    if (end > begin) {
      names.push_back(field.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return names;
}

void parse_movies(std::string_view text, const std::string& name, MovielensLog& log) {
  Records records(text, name, {"movieId", "title", "genres"});
  std::unordered_map<std::int64_t, std::vector<std::string>> names;
  std::set<std::string> all;
  while (records.next()) {
    const auto [film, added] = names.emplace(records.number(0), split_names(records.text(2)));
    if (!added) {
      records.fail_value(0, "a film that is not listed before");
    }
    all.insert(film->second.begin(), film->second.end());
    if (all.size() > kMaxGenres) {
      records.fail_value(2,
                         fmt::format("genres separated by '|', of {} names at most", kMaxGenres));
    }
  }
  log.genre_names.assign(all.begin(), all.end());
  for (const auto& [film, genres] : names) {
    std::vector<std::int64_t>& numbers = log.genres[film];
    for (const std::string& genre : genres) {
      const auto it = std::lower_bound(log.genre_names.begin(), log.genre_names.end(), genre);
      numbers.push_back(it - log.genre_names.begin());
    }
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  }
}

void parse_ratings(std::string_view text, const std::string& name, MovielensLog& log) {
  Records records(text, name, {"userId", "movieId", "rating", "timestamp"});
  while (records.next()) {
    const Rating rating = {records.number(3), records.number(0), records.number(1),
                           records.rating(2)};
    if (!log.genres.contains(rating.film)) {
      records.fail_value(1, "a film of movies.csv; the two files belong together");
    }
    log.ratings.push_back(rating);
  }
  if (log.ratings.size() < kMinRatings) {
    fail(ErrorCode::kData, "{}: {} ratings; at least {} are needed to hold out the last tenth",
         name, log.ratings.size(), kMinRatings);
  }
  std::sort(log.ratings.begin(), log.ratings.end(), [](const Rating& a, const Rating& b) {
    return std::tie(a.timestamp, a.user, a.film, a.rating) <
           std::tie(b.timestamp, b.user, b.film, b.rating);
  });
}

}  // namespace

MovielensLog parse_movielens(std::string_view ratings,
                             std::string_view movies,
                             const std::string& folder) {
  MovielensLog log;
  parse_movies(movies, folder + "/movies.csv", log);
  parse_ratings(ratings, folder + "/ratings.csv", log);
  return log;
}

}  // namespace weft::data
