#include "weft/data/movielens.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/data/data_support.h"
#include "weft/base/philox.h"
#include "weft/data/csv.h"

namespace weft::data {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr const char* kRatingsHeader = "userId,movieId,rating,timestamp\n";
constexpr const char* kMovies =
    "movieId,title,genres\n"
    "1,Toy Story (1995),Comedy|Animation\r\n"
    "2,\"Cry, the \"\"Beloved\"\" Country (1995)\",Drama\n"
    "3,\"Two\nlines\",Drama|Comedy\n"
    "4,None,(no genres listed)\n"
    "5,Bare,";

enum Dense { kClickRate, kGenreRate, kRecentRate, kHistory, kFilmRate, kFilmHistory, kRating };

enum Categorical { kUser, kFilm, kGenres, kHour, kWeekday, kLiked, kDisliked };

std::string folder_of(const TemporaryFolder& folder,
                      const std::string& ratings,
                      const std::string& movies = kMovies) {
  folder.write("ratings.csv", kRatingsHeader + ratings);
  folder.write("movies.csv", movies);
  return folder.path();
}

/// Both parts as one block: the split only cuts.
RawBlock all_events(const std::string& folder) {
  const auto train = open_movielens(folder, Split::kTrain);
  const auto eval = open_movielens(folder, Split::kEval);
  RawBlock all = read_range(*train, 0, train->size());
  const RawBlock tail = read_range(*eval, 0, eval->size());
  all.size += tail.size;
  for (std::size_t d = 0; d < all.dense.size(); ++d) {
    all.dense[d].insert(all.dense[d].end(), tail.dense[d].begin(), tail.dense[d].end());
  }
  all.labels[0].insert(all.labels[0].end(), tail.labels[0].begin(), tail.labels[0].end());
  for (std::size_t c = 0; c < all.categorical.size(); ++c) {
    RawBlock::Bags& bags = all.categorical[c];
    const std::int64_t shift = bags.offsets.back();
    for (std::size_t i = 1; i < tail.categorical[c].offsets.size(); ++i) {
      bags.offsets.push_back(tail.categorical[c].offsets[i] + shift);
    }
    bags.ids.insert(bags.ids.end(), tail.categorical[c].ids.begin(), tail.categorical[c].ids.end());
  }
  return all;
}

Ids bag(const RawBlock& block, std::size_t column, std::size_t sample) {
  const RawBlock::Bags& bags = block.categorical[column];
  return {bags.ids.begin() + bags.offsets[sample], bags.ids.begin() + bags.offsets[sample + 1]};
}

// 980730861 is Monday, 29 January 2001, 01:14:21 UTC.
TEST(Movielens, FeaturesOfASmallLog) {
  const TemporaryFolder folder;
  const RawBlock block = all_events(folder_of(folder,
                                              "1,1,4.0,980730861\n"
                                              "1,2,3.5,980730862\n"
                                              "2,1,5.0,980730862\n"
                                              "1,3,4.5,980730863\n"
                                              "1,4,1.0,980730863\n"
                                              "1,5,4.0,980820000\n"
                                              "3,1,2.0,980820001\n"
                                              "3,2,2.0,980820002\n"
                                              "3,3,2.0,980820003\n"
                                              "3,5,2.0,980820004\n"));
  ASSERT_EQ(block.size, 10);
  EXPECT_EQ(bag(block, kUser, 2), Ids{2});
  EXPECT_EQ(bag(block, kFilm, 3), Ids{3});
  // (no genres listed) 0, Animation 1, Comedy 2, Drama 3.
  EXPECT_EQ(bag(block, kGenres, 0), (Ids{1, 2}));
  EXPECT_EQ(bag(block, kGenres, 4), Ids{0});
  EXPECT_EQ(bag(block, kGenres, 5), Ids{});
  EXPECT_EQ(bag(block, kHour, 0), Ids{1});
  EXPECT_EQ(bag(block, kWeekday, 0), Ids{0});
  EXPECT_EQ(bag(block, kWeekday, 5), Ids{1});
  EXPECT_EQ(block.labels[0], (std::vector<float>{1, 0, 1, 1, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(block.dense[kRating][1], 3.5F);

  // The first event knows nothing.
  for (const std::size_t rate : {kClickRate, kGenreRate, kRecentRate, kFilmRate}) {
    EXPECT_EQ(block.dense[rate][0], 0.5F);
  }
  EXPECT_EQ(bag(block, kLiked, 0), Ids{});
  // Events 1 and 2 are of one second and see event 0 only.
  const double prior = (1 + 10 * 0.5) / 11;
  EXPECT_FLOAT_EQ(block.dense[kFilmRate][1], static_cast<float>(prior));
  EXPECT_FLOAT_EQ(block.dense[kFilmRate][2], static_cast<float>((1 + 10 * prior) / 11));
  EXPECT_EQ(block.dense[kFilmHistory][2], 1.0F);
  EXPECT_FLOAT_EQ(block.dense[kClickRate][1], static_cast<float>((1 + 10 * prior) / 11));
  EXPECT_FLOAT_EQ(block.dense[kClickRate][2], static_cast<float>(prior));
  // Events 3 and 4 are of one user and second: both see two ratings.
  EXPECT_EQ(block.dense[kHistory][3], 2.0F);
  EXPECT_EQ(block.dense[kHistory][4], 2.0F);
  const double prior3 = (2 + 5.0) / 13;
  const double click3 = (1 + 10 * prior3) / 12;
  EXPECT_FLOAT_EQ(block.dense[kClickRate][3], static_cast<float>(click3));
  // Drama: one rating, not liked. Comedy: one, liked.
  EXPECT_FLOAT_EQ(block.dense[kGenreRate][3], static_cast<float>((1 + 10 * click3) / 12));
  EXPECT_FLOAT_EQ(block.dense[kGenreRate][4], static_cast<float>(click3));
  EXPECT_EQ(bag(block, kLiked, 5), (Ids{3, 1}));
  EXPECT_EQ(bag(block, kDisliked, 5), (Ids{4, 2}));
  EXPECT_EQ(bag(block, kLiked, 6), Ids{});
}

TEST(Movielens, SplitsTheLastTenthByTime) {
  const TemporaryFolder folder;
  std::string ratings;
  for (int i = 0; i < 29; ++i) {
    ratings += "1,1,4.0," + std::to_string(1000 - i) + "\n";
  }
  folder_of(folder, ratings);
  const auto train = open_movielens(folder.path(), Split::kTrain);
  const auto eval = open_movielens(folder.path(), Split::kEval);
  EXPECT_EQ(train->size(), 27);
  EXPECT_EQ(eval->size(), 2);
  EXPECT_NE(train->fingerprint(), eval->fingerprint());
  EXPECT_EQ(train->load(20, 100), 7);
  // The second event of the evaluation part sees the first.
  EXPECT_EQ(read_range(*eval, 0, 2).dense[kHistory], (std::vector<float>{27, 28}));
}

TEST(Movielens, FingerprintIsOfAllOfBothFiles) {
  std::string ratings;
  for (int i = 0; i < 29; ++i) {
    ratings += "1,1,4.0," + std::to_string(1000 + i) + "\n";
  }
  const auto content = [](const std::string& rows) {
    const TemporaryFolder folder;
    folder_of(folder, rows);
    return fingerprint_of(open_movielens(folder.path(), Split::kTrain)->content(9));
  };
  const std::uint64_t base = content(ratings);
  EXPECT_EQ(content(ratings), base) << "in another folder";
  ratings.replace(ratings.find("4.0,1007"), 3, "3.0");
  EXPECT_NE(content(ratings), base);
}

TEST(Movielens, KeepsTheLatestFiftyFilms) {
  const TemporaryFolder folder;
  std::string movies = "movieId,title,genres\n";
  std::string ratings;
  for (int film = 0; film < 60; ++film) {
    movies += std::to_string(film) + ",x,Drama\n";
    ratings += "1," + std::to_string(film) + ",4.0," + std::to_string(film) + "\n";
  }
  const RawBlock block = all_events(folder_of(folder, ratings, movies));
  const Ids liked = bag(block, kLiked, 59);
  ASSERT_EQ(liked.size(), 50U);
  EXPECT_EQ(liked.front(), 58);
  EXPECT_EQ(liked.back(), 9);
}

TEST(Movielens, OpensThroughTheConfiguration) {
  const TemporaryFolder folder;
  std::string ratings;
  for (int i = 0; i < 20; ++i) {
    ratings += "1,1,4.0," + std::to_string(i) + "\n";
  }
  spec::Config config;
  config.data.format = spec::DataFormat::kMovielens;
  config.data.path = {folder_of(folder, ratings)};
  config.data.max_samples = 5;
  EXPECT_EQ(open_source(config, Split::kTrain)->size(), 5);
  EXPECT_EQ(open_source(config, Split::kEval)->size(), 2);
  config.data.path.push_back("other");
  expect_error(ErrorCode::kConfig, {"one folder"}, [&] { open_source(config, Split::kTrain); });
  config.data.path = {folder.path() + "/ratings.csv"};
  expect_error(ErrorCode::kData, {"not a folder"}, [&] { open_source(config, Split::kTrain); });
}

void expect_bad(const std::string& ratings,
                const std::string& movies,
                const std::vector<std::string>& parts) {
  expect_error(ErrorCode::kData, parts, [&] { parse_movielens(ratings, movies, "ml"); });
}

TEST(Movielens, BadFilesAreNamed) {
  const std::string header = kRatingsHeader;
  const std::string good = "1,1,4.0,5\n";
  expect_bad("user,film\n" + good, kMovies, {"ml/ratings.csv:1:", "user,film"});
  expect_bad("", kMovies, {"ml/ratings.csv:1:", "header"});
  expect_bad(header + good, kMovies, {"ml/ratings.csv", "1 ratings", "at least 10"});
  expect_bad(header + good + "1,1,4.0\n", kMovies, {"ml/ratings.csv:3:", "3 fields"});
  expect_bad(header + "x,1,4.0,5\n", kMovies, {"ml/ratings.csv:2:", "userId", "'x'"});
  expect_bad(header + "1,99,4.0,5\n", kMovies, {"ml/ratings.csv:2:", "movieId", "'99'"});
  expect_bad(header + "1,1,6.0,5\n", kMovies, {"ml/ratings.csv:2:", "rating", "'6.0'"});
  expect_bad(header + "1,1,nan,5\n", kMovies, {"ml/ratings.csv:2:", "rating", "'nan'"});
  expect_bad(header + "1,1,4,-5\n", kMovies, {"ml/ratings.csv:2:", "timestamp", "'-5'"});
  expect_bad(header + "1,1,4,99999999999999999999\n", kMovies, {"ml/ratings.csv:2:", "timestamp"});
  const std::string movies = "movieId,title,genres\n";
  expect_bad(header, movies + "1,a,b\n1,c,d\n", {"ml/movies.csv:3:", "'1'", "not listed before"});
  expect_bad(header, movies + "1,a,b,c\n", {"ml/movies.csv:2:", "4 fields"});
  expect_bad(header, movies + "1,\"a,b\n", {"ml/movies.csv:2:", "never ends"});
  expect_bad(header, movies + "1,\"a\"b,c\n", {"ml/movies.csv:2:", "closing quote"});
  expect_bad(header, movies + "1,\"a\nb\",c\nx,a,b\n", {"ml/movies.csv:4:", "'x'"});
}

TEST(Movielens, MissingFilesAreNamed) {
  const TemporaryFolder folder;
  folder.write("ratings.csv", "x");
  expect_error(ErrorCode::kData, {"movies.csv"},
               [&] { open_movielens(folder.path(), Split::kTrain); });
  folder.write("movies.csv", "");
  expect_error(ErrorCode::kData, {"movies.csv", "empty"},
               [&] { open_movielens(folder.path(), Split::kTrain); });
}

TEST(Csv, RecordsAndLineEnds) {
  CsvReader csv("a,,\"b\"\"c,\n\"\r\n,\n\"x\"", "t");
  std::vector<std::string> fields;
  ASSERT_TRUE(csv.next(fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"a", "", "b\"c,\n"}));
  ASSERT_TRUE(csv.next(fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"", ""}));
  EXPECT_EQ(csv.line(), 3);
  ASSERT_TRUE(csv.next(fields));
  EXPECT_EQ(fields, std::vector<std::string>{"x"});
  EXPECT_FALSE(csv.next(fields));
}

/// One event a line: click, user, film, hour, weekday, the dense features, liked, disliked.
void expect_dump(const std::string& path, const RawBlock& block) {
  std::ifstream file(path);
  std::string line;
  std::size_t s = 0;
  for (; std::getline(file, line); ++s) {
    std::istringstream fields(line);
    std::string field;
    const auto next = [&] {
      std::getline(fields, field, '\t');
      return field;
    };
    ASSERT_LT(s, static_cast<std::size_t>(block.size));
    EXPECT_EQ(std::stof(next()), block.labels[0][s]);
    for (const std::size_t column : {kUser, kFilm, kHour, kWeekday}) {
      EXPECT_EQ(Ids{std::stoll(next())}, bag(block, column, s));
    }
    for (std::size_t d = 0; d < kRating; ++d) {
      ASSERT_NEAR(std::stod(next()), block.dense[d][s], 1e-6 * (1 + block.dense[d][s])) << line;
    }
    for (const std::size_t column : {kLiked, kDisliked}) {
      std::istringstream ids(next());
      Ids expected;
      for (std::int64_t id = 0; ids >> id;) {
        expected.push_back(id);
      }
      ASSERT_EQ(expected, bag(block, column, s)) << line;
    }
  }
  EXPECT_EQ(s, static_cast<std::size_t>(block.size));
}

/// The features as tools/movielens_baselines.py derives them, independently.
void compare_with_script(const std::string& folder) {
  const TemporaryFolder out;
  const std::string dump = out.path() + "/dump.tsv";
  const std::string command = std::string("python3 '") + WEFT_SOURCE_DIR +
                              "/tools/movielens_baselines.py' '" + folder + "' --dump '" + dump +
                              "' 2> /dev/null";
  if (std::system(command.c_str()) != 0) {
    GTEST_SKIP() << "no python3";
  }
  expect_dump(dump, all_events(folder));
}

TEST(MovielensAgainstScript, GeneratedLog) {
  const TemporaryFolder folder;
  std::string movies = "movieId,title,genres\n";
  for (std::uint64_t film = 0; film < 80; ++film) {
    movies += std::to_string(film) + ",\"A, film\",";
    const auto draw = philox(1, film, 0);
    for (std::uint32_t genre = 0; genre < 6; ++genre) {
      movies += (draw[0] >> genre & 1U) != 0 ? "|g" + std::to_string(genre) : "";
    }
    movies += "|g9\n";
  }
  // Few distinct seconds, so that many events share one.
  std::string ratings;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const auto draw = philox(2, i, 0);
    ratings += std::to_string(draw[0] % 40) + "," + std::to_string(draw[1] % 80) + "," +
               std::to_string(draw[2] % 5 + 1) + ".0," + std::to_string(draw[3] % 1000 * 5000) +
               "\n";
  }
  // The script takes empty genre names as a genre of its own, so the leading bar goes.
  for (std::size_t at = movies.find(",|"); at != std::string::npos; at = movies.find(",|")) {
    movies.erase(at + 1, 1);
  }
  compare_with_script(folder_of(folder, ratings, movies));
}

TEST(MovielensAgainstScript, RealLog) {
  const std::string folder = real_data("ml-latest-small");
  if (folder.empty()) {
    GTEST_SKIP() << "no real data";
  }
  compare_with_script(folder);
}

TEST(Movielens, RealLog) {
  const std::string folder = real_data("ml-latest-small");
  if (folder.empty()) {
    GTEST_SKIP() << "no real data";
  }
  const auto train = open_movielens(folder, Split::kTrain);
  const auto eval = open_movielens(folder, Split::kEval);
  EXPECT_EQ(train->size(), 90021);
  EXPECT_EQ(eval->size(), 10002);
  const RawBlock block = read_range(*eval, 0, eval->size());
  EXPECT_EQ(std::count(block.labels[0].begin(), block.labels[0].end(), 1.0F), 4754);
  const auto genres = block.categorical[kGenres].ids;
  EXPECT_LE(*std::max_element(genres.begin(), genres.end()), 19);
}

}  // namespace
}  // namespace weft::data
