// The fast path over Criteo text against the plain parser: what is accepted, and every value.
#include "weft/data/criteo_decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/data/data_support.h"
#include "weft/base/hash.h"
#include "weft/base/thread_pool.h"
#include "weft/data/weft_format.h"

namespace weft::data {
namespace {

/// Numbers for making input, the same on every run.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL) {}

  std::uint64_t below(std::uint64_t n) { return mix64(++state_) % n; }

  template <std::size_t N>
  char any_of(const char (&characters)[N]) {
    return characters[below(N - 1)];
  }

 private:
  std::uint64_t state_;
};

std::string integer_field(Draws& draws) {
  if (draws.below(4) == 0) {
    return "";
  }
  std::string text = draws.below(6) == 0 ? "-" : "";
  const std::uint64_t digits = draws.below(20) == 0 ? 1 + draws.below(18) : 1 + draws.below(9);
  for (std::uint64_t i = 0; i < digits; ++i) {
    text += static_cast<char>('0' + draws.below(10));
  }
  return text;
}

std::string category_field(Draws& draws) {
  if (draws.below(5) == 0) {
    return "";
  }
  std::string text;
  const std::uint64_t digits = draws.below(4) == 0 ? 1 + draws.below(8) : 8;
  for (std::uint64_t i = 0; i < digits; ++i) {
    text += draws.any_of("0123456789abcdefABCDEF");
  }
  return text;
}

std::string good_line(Draws& draws) {
  std::string line(1, draws.any_of("01"));
  for (std::size_t i = 0; i < kCriteoIntegers; ++i) {
    line += "\t" + integer_field(draws);
  }
  for (std::size_t i = 0; i < kCriteoCategories; ++i) {
    line += "\t" + category_field(draws);
  }
  return line;
}

/// A good line with a few bytes changed, put in or taken out: most are bad then, some are not.
std::string changed_line(Draws& draws) {
  std::string line = good_line(draws);
  for (std::uint64_t left = 1 + draws.below(2); left > 0 && !line.empty(); --left) {
    const std::size_t at = draws.below(line.size());
    const char byte = draws.any_of("\t\t0189afAFgG@`:/-+ .\r\0\x7f\x80\xb0\xff");
    switch (draws.below(3)) {
      case 0:
        line[at] = byte;
        break;
      case 1:
        line.insert(at, 1, byte);
        break;
      default:
        line.erase(at, 1);
    }
  }
  return line;
}

bool plain_parser_takes(std::string_view line, CriteoSample& sample) {
  try {
    parse_criteo_line(line, {"log", 1}, sample);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Decodes lines that lie in one text as in a file, margins included.
bool decode(const std::vector<std::string>& lines,
            const ColumnSelection& selection,
            RawBlock& out) {
  std::string text(CriteoDecoder::kFront, '9');
  std::vector<std::size_t> begins;
  for (const std::string& line : lines) {
    begins.push_back(text.size());
    text += line + "\n";
  }
  text.append(CriteoDecoder::kBack, '\t');
  CriteoDecoder decoder(selection, lines.size(), out);
  std::array<std::string_view, CriteoDecoder::kTile> tile;
  for (std::size_t first = 0; first < lines.size(); first += tile.size()) {
    const std::size_t count = std::min(tile.size(), lines.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      tile[i] = std::string_view(text).substr(begins[first + i], lines[first + i].size());
    }
    if (!decoder.add(std::span(tile).first(count))) {
      return false;
    }
  }
  decoder.finish();
  return true;
}

bool same_float(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

/// Expects sample `at` of the block to be `sample`, in the selected columns.
void expect_sample(const RawBlock& block,
                   std::size_t at,
                   const ColumnSelection& selection,
                   const CriteoSample& sample) {
  if (selection.labels[0] != 0) {
    ASSERT_EQ(block.labels[0][at], sample.label);
  }
  for (std::size_t i = 0; i < kCriteoIntegers; ++i) {
    if (selection.dense[i] != 0) {
      ASSERT_TRUE(same_float(block.dense[i][at], sample.integers[i]))
          << "I" << i + 1 << ": " << block.dense[i][at] << ", not " << sample.integers[i];
    }
  }
  for (std::size_t i = 0; i < kCriteoCategories; ++i) {
    if (selection.categorical[i] == 0) {
      continue;
    }
    const RawBlock::Bags& bags = block.categorical[i];
    const std::int64_t begin = bags.offsets[at];
    ASSERT_EQ(bags.offsets[at + 1] - begin, sample.categories[i] < 0 ? 0 : 1) << "C" << i + 1;
    if (sample.categories[i] >= 0) {
      ASSERT_EQ(bags.ids[static_cast<std::size_t>(begin)], sample.categories[i]) << "C" << i + 1;
    }
  }
}

Schema criteo_schema() {
  const TemporaryFolder folder;
  return open_criteo({folder.write("log.txt", criteo_text(0, 1))})->schema();
}

TEST(CriteoDecoder, GoodLinesHaveThePlainParsersValues) {
  const Schema schema = criteo_schema();
  const std::vector<std::string> some = {"I3", "C1", "C26"};
  Draws draws(1);
  RawBlock block;  // one for all, as a reader has it
  for (const std::size_t count : {1, 2, 63, 64, 65, 1000, 64, 3, 0}) {
    for (const ColumnSelection& selection :
         {ColumnSelection::all(schema), ColumnSelection::of(schema, some)}) {
      std::vector<std::string> lines(count);
      std::generate(lines.begin(), lines.end(), [&] { return good_line(draws); });
      ASSERT_TRUE(decode(lines, selection, block));
      ASSERT_EQ(block.size, static_cast<std::int64_t>(count));
      for (std::size_t i = 0; i < count; ++i) {
        CriteoSample sample;
        parse_criteo_line(lines[i], {"log", 1}, sample);
        expect_sample(block, i, selection, sample);
      }
    }
  }
}

TEST(CriteoDecoder, RefusesExactlyWhatThePlainParserRefuses) {
  const ColumnSelection all = ColumnSelection::all(criteo_schema());
  Draws draws(2);
  RawBlock block;
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 60000; ++i) {
    const std::string line = changed_line(draws);
    CriteoSample sample;
    const bool good = plain_parser_takes(line, sample);
    ASSERT_EQ(decode({line}, all, block), good) << line;
    (good ? taken : refused) += 1;
    if (good) {
      expect_sample(block, 0, all, sample);
    }
  }
  EXPECT_GT(taken, 5000);
  EXPECT_GT(refused, 20000);
}

TEST(CriteoDecoder, OneBadLineAnywhereInATileIsSeen) {
  const ColumnSelection all = ColumnSelection::all(criteo_schema());
  Draws draws(3);
  RawBlock block;
  for (std::size_t bad = 0; bad < 150; ++bad) {
    std::vector<std::string> lines(150);
    std::generate(lines.begin(), lines.end(), [&] { return good_line(draws); });
    lines[bad] = bad % 2 == 0 ? "" : std::string(3000, '\t');
    EXPECT_FALSE(decode(lines, all, block)) << bad;
  }
}

std::string bytes_in_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Lines of two files, the second compressed; some end in \r\n, the first file's last in nothing.
struct Log {
  explicit Log(const TemporaryFolder& folder, std::size_t count) {
    Draws draws(4);
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      lines.push_back(good_line(draws));
      text += lines.back();
      if (i + 1 == count / 2) {
        files.push_back(folder.write("a.txt", text));
        text.clear();
      } else {
        text += i % 5 == 0 ? "\r\n" : "\n";
      }
    }
    const std::string path = folder.path() + "/b.gz";
    const gzFile file = gzopen(path.c_str(), "wb1");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    files.push_back(path);
  }

  std::vector<std::string> lines;
  std::vector<std::string> files;
};

TEST(CriteoConvert, EqualsParsingLineByLineForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const Log log(folder, 70000);
  std::string expected;
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    const auto source = open_source(criteo_config_of(log.files), Split::kTrain);
    const std::string path = folder.path() + "/log.weft";
    EXPECT_EQ(write_weft(*source, path, {.samples = -1, .pool = &pool, .progress = {}}), 70000);
    if (threads > 1) {
      EXPECT_TRUE(bytes_in_file(path) == expected) << threads;
      continue;
    }
    expected = bytes_in_file(path);
    const auto kept = open_weft({path});
    const RawBlock block = read_range(*kept, 0, 70000);
    const ColumnSelection all = ColumnSelection::all(kept->schema());
    ASSERT_EQ(block.size, 70000);
    for (std::size_t i = 0; i < log.lines.size(); ++i) {
      CriteoSample sample;
      parse_criteo_line(log.lines[i], {"log", 1}, sample);
      expect_sample(block, i, all, sample);
    }
  }
}

TEST(CriteoConvert, NamesTheFirstBadLineForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  Draws draws(5);
  std::string text;
  for (int i = 0; i < 60000; ++i) {
    text += (i == 34567 || i == 34569 || i == 50000 ? "bad" : good_line(draws)) + "\n";
  }
  const std::string file = folder.write("log.txt", text);
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    const auto source = open_source(criteo_config_of({file}), Split::kTrain);
    expect_error(ErrorCode::kData, {"log.txt:34568:", "1 field where"}, [&] {
      write_weft(*source, folder.path() + "/log.weft",
                 {.samples = -1, .pool = &pool, .progress = {}});
    });
  }
}

TEST(CriteoConvert, WhatIsBehindTheSamplesWantedIsNotLookedAt) {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("log.txt", criteo_text(0, 100) + "bad\n" + std::string(5000, 'x') + "\n");
  ThreadPool pool(2);
  const auto source = open_source(criteo_config_of({file}), Split::kTrain);
  const std::string path = folder.path() + "/log.weft";
  EXPECT_EQ(write_weft(*source, path, {.samples = 100, .pool = &pool, .progress = {}}), 100);
  EXPECT_EQ(read_range(*source, 40, 60).size, 60);
  expect_error(ErrorCode::kData, {"log.txt:101:"}, [&] { read_range(*source, 40, 61); });
  expect_error(ErrorCode::kData, {"log.txt:102:", "4096 bytes"},
               [&] { read_range(*source, 40, 62); });
}

}  // namespace
}  // namespace weft::data
