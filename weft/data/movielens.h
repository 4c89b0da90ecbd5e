/// MovieLens, from the folder with ratings.csv and movies.csv. A click is a rating of 4 or more.
///
/// Order    by (timestamp, user, film, rating); the last tenth, rounded down, is for evaluation and
/// the rest
///          for training.
/// History  features of an event are computed from all events of earlier seconds, those of the
///          evaluation part too; events of the same second do not see each other.
/// Rates    rate(liked, all, prior) = (liked + 10 prior) / (all + 10), in fp64, rounded once.
///
///   labels       label               1 where rating >= 4
///   categorical  user, film          the file's ids
///                genres              several; numbered by name in alphabetical (byte) order, from
///                0 hour, weekday       of the timestamp in UTC; 0-23, and 0 = Monday liked,
///                disliked     films the user had rated >= 4, < 4; latest first, at most 50
///   dense        click_rate          rate of the user's earlier ratings; prior: that of all users'
///                                    earlier ratings, whose own prior is 1/2
///                genre_click_rate    the same over the film's genres, counts of the genres added;
///                                    prior: click_rate
///                recent_click_rate   of the user's last 10 ratings; prior: click_rate
///                history             number of the user's earlier ratings
///                film_click_rate     of the film's earlier ratings; prior as of click_rate
///                film_history        number of the film's earlier ratings
///                rating              0.5 to 5: the label's source, never to be a feature
///
/// Access   random; all is held in memory, about 90 bytes per rating.
/// Source   Harper and Konstan, The MovieLens Datasets, TiiS 2015.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/data/source.h"

namespace weft::data {

/// One rating.
struct Rating {
  std::int64_t timestamp = 0;  ///< seconds since 1970, UTC
  std::int64_t user = 0;
  std::int64_t film = 0;
  float rating = 0.0F;
};

/// The two files, parsed.
struct MovielensLog {
  std::vector<Rating> ratings;                                         ///< in order
  std::vector<std::string> genre_names;                                ///< by number
  std::unordered_map<std::int64_t, std::vector<std::int64_t>> genres;  ///< of each film, ascending
};

/// Throws Error(kData) naming file:line, column and value: a wrong header or field count, values
/// out of range, a film listed twice, a rating of a film that is not listed, fewer than ten
/// ratings.
MovielensLog parse_movielens(std::string_view ratings,
                             std::string_view movies,
                             const std::string& folder);

/// Computes the features and takes one side of the split. `fingerprint`: of both files.
std::unique_ptr<Source> make_movielens(MovielensLog log, Split split, std::uint64_t fingerprint);

/// The files of `folder`. Throws as parse_movielens, and for a missing or empty file.
std::unique_ptr<Source> open_movielens(const std::string& folder, Split split);

}  // namespace weft::data
