#include "weft/data/movielens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/data/byte_stream.h"

namespace weft::data {
namespace {

constexpr float kClickRating = 4.0F;
constexpr double kSmoothing = 10.0;     ///< ratings that the prior of a rate counts for
constexpr double kFirstPrior = 0.5;     ///< of the rate of all users
constexpr std::int64_t kMaxFilms = 50;  ///< in liked and in disliked
constexpr int kRecent = 10;             ///< ratings of recent_click_rate
constexpr std::int64_t kDaySeconds = 86400;
constexpr std::int64_t kFirstWeekday = 3;  ///< 1970-01-01 was a Thursday

enum Dense { kClickRate, kGenreRate, kRecentRate, kHistory, kFilmRate, kFilmHistory, kRating };

enum Categorical { kUser, kFilm, kGenres, kHour, kWeekday, kLiked, kDisliked };

Schema movielens_schema() {
  Schema schema;
  schema.labels = {"label"};
  schema.dense = {"click_rate", "genre_click_rate", "recent_click_rate",
                  "history",    "film_click_rate",  "film_history",
                  "rating"};
  schema.categorical = {{"user"},    {"film"},        {"genres", true},  {"hour"},
                        {"weekday"}, {"liked", true}, {"disliked", true}};
  return schema;
}

struct Counts {
  std::int64_t liked = 0;
  std::int64_t all = 0;

  void add(bool click) {
    liked += click ? 1 : 0;
    ++all;
  }

  [[nodiscard]] double rate(double prior) const {
    return (static_cast<double>(liked) + kSmoothing * prior) /
           (static_cast<double>(all) + kSmoothing);
  }
};

/// What is known of one user before a second.
struct User {
  Counts counts;
  std::vector<Counts> on_genres;
  std::uint32_t recent = 0;  ///< the latest ratings, a bit each, set = liked
  std::vector<std::int64_t> liked;
  std::vector<std::int64_t> disliked;
};

/// An event's features; its liked films are the first `liked` of the user's, and so on.
struct Event {
  Rating rating;
  const std::vector<std::int64_t>* genres = nullptr;
  const User* user = nullptr;
  std::int64_t liked = 0;
  std::int64_t disliked = 0;
  std::array<float, kRating> dense{};
};

/// Walks through time, second by second: features first, then what they tell is added.
class History {
 public:
  explicit History(std::size_t genres) : genres_(genres) {}

  void features(Event& event) {
    User& user = find(event.rating.user);
    const Counts& film = films_[event.rating.film];
    Counts on_genres;
    for (const std::int64_t genre : *event.genres) {
      on_genres.liked += user.on_genres[at(genre)].liked;
      on_genres.all += user.on_genres[at(genre)].all;
    }
    const Counts recent = {std::popcount(user.recent),
                           std::min<std::int64_t>(user.counts.all, kRecent)};
    const double prior = all_.rate(kFirstPrior);
    const double click_rate = user.counts.rate(prior);
    event.user = &user;
    event.liked = static_cast<std::int64_t>(user.liked.size());
    event.disliked = static_cast<std::int64_t>(user.disliked.size());
    event.dense[kClickRate] = static_cast<float>(click_rate);
    event.dense[kGenreRate] = static_cast<float>(on_genres.rate(click_rate));
    event.dense[kRecentRate] = static_cast<float>(recent.rate(click_rate));
    event.dense[kHistory] = static_cast<float>(user.counts.all);
    event.dense[kFilmRate] = static_cast<float>(film.rate(prior));
    event.dense[kFilmHistory] = static_cast<float>(film.all);
  }

  void add(const Event& event) {
    const bool click = event.rating.rating >= kClickRating;
    User& user = find(event.rating.user);
    all_.add(click);
    user.counts.add(click);
    films_[event.rating.film].add(click);
    for (const std::int64_t genre : *event.genres) {
      user.on_genres[at(genre)].add(click);
    }
    user.recent = (user.recent << 1 | (click ? 1U : 0U)) & ((1U << kRecent) - 1);
    (click ? user.liked : user.disliked).push_back(event.rating.film);
  }

  /// Users do not move; they outlive the walk because events point at them.
  std::unordered_map<std::int64_t, std::unique_ptr<User>> take_users() { return std::move(users_); }

 private:
  User& find(std::int64_t id) {
    std::unique_ptr<User>& user = users_[id];
    if (user == nullptr) {
      user = std::make_unique<User>();
      user->on_genres.resize(genres_);
    }
    return *user;
  }

  std::size_t genres_;
  Counts all_;
  std::unordered_map<std::int64_t, Counts> films_;
  std::unordered_map<std::int64_t, std::unique_ptr<User>> users_;
};

class MovielensSource final : public Source {
 public:
  MovielensSource(MovielensLog log, Split split, std::uint64_t fingerprint)
      : schema_(movielens_schema()),
        selection_(ColumnSelection::all(schema_)),
        genres_(std::move(log.genres)),
        split_(split),
        fingerprint_(hash_combine(fingerprint, static_cast<std::uint64_t>(split))) {
    derive(log);
    const std::size_t train = events_.size() - events_.size() / 10;
    const auto cut = events_.begin() + static_cast<std::ptrdiff_t>(train);
    if (split == Split::kTrain) {
      events_.erase(cut, events_.end());
    } else {
      events_.erase(events_.begin(), cut);
    }
  }

  [[nodiscard]] const Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("movielens, {} part", to_string(split_));
  }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::clamp<std::int64_t>(size() - first, 0, count);
  }

  void read(std::span<const std::int64_t> sample_ids, RawBlock& out) override {
    out.reset(schema_);
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
    for (std::size_t c = 0; c < schema_.categorical.size(); ++c) {
      if (selection_.categorical[c] != 0) {
        read_bags(static_cast<Categorical>(c), out);
      }
    }
    for (const std::int64_t id : sample_ids) {
      const Event& event = events_[at(id)];
      if (selection_.labels[0] != 0) {
        out.labels[0].push_back(event.rating.rating >= kClickRating ? 1.0F : 0.0F);
      }
      for (std::size_t d = 0; d < schema_.dense.size(); ++d) {
        if (selection_.dense[d] != 0) {
          out.dense[d].push_back(d == kRating ? event.rating.rating : event.dense[d]);
        }
      }
    }
  }

  void select(std::span<const std::string> columns) override {
    selection_ = ColumnSelection::of(schema_, columns);
  }

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(events_.size());
  }

  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  void derive(const MovielensLog& log) {
    History history(log.genre_names.size());
    events_.resize(log.ratings.size());
    for (std::size_t begin = 0; begin < events_.size();) {
      std::size_t end = begin;
      while (end < events_.size() && log.ratings[end].timestamp == log.ratings[begin].timestamp) {
        events_[end].rating = log.ratings[end];
        events_[end].genres = &genres_.at(log.ratings[end].film);
        history.features(events_[end]);
        ++end;
      }
      for (; begin < end; ++begin) {
        history.add(events_[begin]);
      }
    }
    users_ = history.take_users();
  }

  void read_bags(Categorical column, RawBlock& out) const {
    RawBlock::Bags& bags = out.categorical[static_cast<std::size_t>(column)];
    bags.offsets.push_back(0);
    for (const std::int64_t id : out.sample_ids) {
      append_ids(column, events_[at(id)], bags.ids);
      bags.offsets.push_back(static_cast<std::int64_t>(bags.ids.size()));
    }
  }

  static void append_ids(Categorical column, const Event& event, std::vector<std::int64_t>& ids) {
    const std::int64_t timestamp = event.rating.timestamp;
    switch (column) {
      case kUser:
        ids.push_back(event.rating.user);
        break;
      case kFilm:
        ids.push_back(event.rating.film);
        break;
      case kGenres:
        ids.insert(ids.end(), event.genres->begin(), event.genres->end());
        break;
      case kHour:
        ids.push_back(timestamp % kDaySeconds / 3600);
        break;
      case kWeekday:
        ids.push_back((timestamp / kDaySeconds + kFirstWeekday) % 7);
        break;
      case kLiked:
        append_latest(event.user->liked, event.liked, ids);
        break;
      case kDisliked:
        append_latest(event.user->disliked, event.disliked, ids);
        break;
    }
  }

  /// The last of the first `count` films, latest first.
  static void append_latest(const std::vector<std::int64_t>& films,
                            std::int64_t count,
                            std::vector<std::int64_t>& ids) {
    for (std::int64_t i = count; i > std::max<std::int64_t>(0, count - kMaxFilms); --i) {
      ids.push_back(films[at(i - 1)]);
    }
  }

  Schema schema_;
  ColumnSelection selection_;
  std::unordered_map<std::int64_t, std::vector<std::int64_t>> genres_;
  std::unordered_map<std::int64_t, std::unique_ptr<User>> users_;
  std::vector<Event> events_;
  Split split_;
  std::uint64_t fingerprint_;
};

std::string read_text(const std::string& path) {
  const std::unique_ptr<ByteStream> stream = open_bytes(path);
  std::string text;
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  for (std::size_t used = 0;;) {
    text.resize(used + kChunk);
    const std::size_t got = stream->read(text.data() + used, kChunk, nullptr);
    used += got;
    if (got == 0) {
      text.resize(used);
      return text;
    }
  }
}

}  // namespace

std::unique_ptr<Source> make_movielens(MovielensLog log, Split split, std::uint64_t fingerprint) {
  return std::make_unique<MovielensSource>(std::move(log), split, fingerprint);
}

std::unique_ptr<Source> open_movielens(const std::string& folder, Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    fail(ErrorCode::kData,
         "data.path: '{}' is not a folder{}; movielens reads a folder with ratings.csv and "
         "movies.csv",
         folder, error ? fmt::format(" that can be looked at ({})", error.message()) : "");
  }
  const std::vector<std::string> files = expand_paths(
      std::vector<std::string>{folder + "/ratings.csv", folder + "/movies.csv"}, "data.path");
  const std::string ratings = read_text(files[0]);
  const std::string movies = read_text(files[1]);
  return make_movielens(parse_movielens(ratings, movies, folder), split,
                        hash_combine(hash_string(ratings), hash_string(movies)));
}

}  // namespace weft::data
