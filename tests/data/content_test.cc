#include "weft/data/content.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/data/data_support.h"

namespace weft::data {
namespace {

std::int64_t size_of_places(const std::vector<Place>& places) {
  return std::accumulate(
      places.begin(), places.end(), std::int64_t{0},
      [](std::int64_t sum, const Place& place) { return sum + place.end - place.begin; });
}

TEST(Content, PlacesLieInTheFileAndAreAsManyAsAllowed) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    const auto bytes = static_cast<std::int64_t>(random() >> (1 + random() % 63));
    const auto most = static_cast<std::int64_t>(random() % 65);
    const std::vector<Place> places = choose_places(bytes, most);
    ASSERT_LE(static_cast<std::int64_t>(places.size()), most);
    std::int64_t begin = 0;
    for (const Place& place : places) {
      ASSERT_LE(begin, place.begin) << bytes << " bytes, " << most << " places";
      ASSERT_LT(place.begin, place.end);
      ASSERT_LE(place.end, bytes);
      ASSERT_LE(place.end - place.begin, kPlaceBytes);
      begin = place.begin;
    }
    ASSERT_EQ(size_of_places(places), std::min(bytes, most * kPlaceBytes));
    if (most > 1 && bytes > 0) {
      ASSERT_EQ(places.front().begin, 0);
      ASSERT_EQ(places.back().end, bytes);
    }
  }
}

/// A string of that many bytes of its own.
std::string random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
  return bytes;
}

TEST(Content, EveryByteOfASmallFileCounts) {
  const TemporaryFolder folder;
  std::string bytes = random_bytes(300'000, 1);
  const std::vector<std::string> file = {folder.write("a", bytes)};
  const std::uint64_t base = fingerprint_of(sample_files(file, kTrainPlaces));
  for (std::size_t at = 0; at < bytes.size(); at += 9973) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    folder.write("a", bytes);
    EXPECT_NE(fingerprint_of(sample_files(file, kTrainPlaces)), base) << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  }
  folder.write("a", bytes);
  EXPECT_EQ(fingerprint_of(sample_files(file, kTrainPlaces)), base);
}

TEST(Content, OfALargeFileOnlyPlacesAreRead) {
  const TemporaryFolder folder;
  const std::vector<std::string> file = {folder.write("sparse", "")};
  constexpr std::int64_t kSize = std::int64_t{1} << 40;  // it takes no space
  std::filesystem::resize_file(file[0], kSize);
  const std::uint64_t base = fingerprint_of(sample_files(file, kTrainPlaces));
  const auto with_byte_at = [&](std::int64_t at) {
    std::fstream out(file[0], std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(at);
    out.put('x');
    out.close();
    const std::uint64_t changed = fingerprint_of(sample_files(file, kTrainPlaces));
    std::ofstream(file[0], std::ios::trunc).close();
    std::filesystem::resize_file(file[0], kSize);
    return changed;
  };
  const std::vector<Place> places = choose_places(kSize, kTrainPlaces);
  for (const Place& place : places) {
    EXPECT_NE(with_byte_at(place.begin), base);
    EXPECT_NE(with_byte_at(place.end - 1), base);
  }
  EXPECT_EQ(with_byte_at(places[3].end), base) << "between two places";
}

TEST(Content, FilesShareThePlaces) {
  const TemporaryFolder folder;
  for (const std::size_t count : {1U, 2U, 5U, 24U, 25U, 40U}) {
    std::vector<std::string> files;
    for (std::size_t i = 0; i < count; ++i) {
      files.push_back(folder.write("f" + std::to_string(i), random_bytes(70'000, 1)));
    }
    const std::uint64_t base = fingerprint_of(sample_files(files, kTrainPlaces));
    std::size_t seen = 0;
    for (std::size_t i = 0; i < count; ++i) {
      folder.write("f" + std::to_string(i), random_bytes(70'000, 2));
      seen += fingerprint_of(sample_files(files, kTrainPlaces)) != base ? 1 : 0;
      folder.write("f" + std::to_string(i), random_bytes(70'001, 1));
      EXPECT_NE(fingerprint_of(sample_files(files, kTrainPlaces)), base) << "the size of " << i;
      folder.write("f" + std::to_string(i), random_bytes(70'000, 1));
    }
    EXPECT_EQ(seen, std::min<std::size_t>(count, kTrainPlaces)) << count << " files";
  }
}

TEST(Content, OrderOfFilesCounts) {
  const TemporaryFolder folder;
  const std::string a = folder.write("a", "first");
  const std::string b = folder.write("b", "other");
  const auto fingerprint = [](const std::vector<std::string>& files) {
    return fingerprint_of(sample_files(files, kTrainPlaces));
  };
  EXPECT_NE(fingerprint({a, b}), fingerprint({b, a}));
  EXPECT_NE(fingerprint({a}), fingerprint({a, b}));
}

TEST(Content, AFileThatIsGoneIsNamed) {
  const std::vector<std::string> files = {"/nowhere/day.txt"};
  for (const std::int64_t places : {0, 5}) {
    expect_error(ErrorCode::kIo, {"/nowhere/day.txt"}, [&] { sample_files(files, places); });
  }
}

}  // namespace
}  // namespace weft::data
