#include "weft/data/criteo.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/data/data_support.h"

namespace weft::data {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

/// Expects the log of criteo_text(0, count).
void expect_log(Source& source, std::int64_t count) {
  const RawBlock block = read_range(source, 0, count + 10);
  ASSERT_EQ(block.size, count);
  for (std::size_t s = 0; s < static_cast<std::size_t>(count); ++s) {
    ASSERT_EQ(block.dense[0][s], static_cast<float>(s));
    ASSERT_EQ(block.labels[0][s], s % 3 == 0 ? 1.0F : 0.0F);
  }
}

void expect_text_error(const std::string& text, const std::vector<std::string>& parts) {
  const TemporaryFolder folder;
  const std::string path = folder.write("log.txt", text);
  expect_error(ErrorCode::kData, parts, [&] {
    const auto source = open_source(criteo_config_of({path}), Split::kTrain);
    read_range(*source, 0, 1000);
  });
}

/// criteo_line(1) with one field replaced.
std::string line_with(std::size_t field, const std::string& value) {
  std::string line = criteo_line(1);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < field; ++i) {
    begin = line.find('\t', begin) + 1;
  }
  return line.replace(begin, line.find('\t', begin) - begin, value);
}

TEST(CriteoLine, ReadsEveryColumn) {
  CriteoSample sample;
  parse_criteo_line(line_with(3, "-17"), {"log", 1}, sample);
  EXPECT_EQ(sample.label, 0.0F);
  EXPECT_EQ(sample.integers[0], 1.0F);
  EXPECT_EQ(sample.integers[1], -1.0F);
  EXPECT_EQ(sample.integers[2], -17.0F);
  EXPECT_TRUE(std::isnan(sample.integers[3]));
  EXPECT_EQ(sample.categories[0], 1);
  EXPECT_EQ(sample.categories[2], -1);
  EXPECT_EQ(sample.categories[3], 0xfffffff4);
}

TEST(CriteoLine, TakesUpperCaseAndEmptyLastField) {
  CriteoSample sample;
  parse_criteo_line(line_with(39, ""), {"log", 1}, sample);
  EXPECT_EQ(sample.categories[25], -1);
  parse_criteo_line(line_with(39, "DEADBEEF"), {"log", 1}, sample);
  EXPECT_EQ(sample.categories[25], 0xdeadbeef);
}

TEST(CriteoLine, NamesColumnAndValue) {
  const auto expect_bad = [](std::size_t field, const std::string& value,
                             const std::string& column) {
    CriteoSample sample;
    expect_error(ErrorCode::kData, {"day_3:12:", "column " + column + " holds '" + value + "'"},
                 [&] { parse_criteo_line(line_with(field, value), {"day_3", 12}, sample); });
  };
  expect_bad(0, "2", "label");
  expect_bad(0, "", "label");
  expect_bad(0, "01", "label");
  expect_bad(1, "1.5", "I1");
  expect_bad(13, "x", "I13");
  expect_bad(4, "-", "I4");
  expect_bad(5, "1234567890123456789", "I5");
  expect_bad(14, "68fd1e6g", "C1");
  expect_bad(39, "123456789", "C26");
  expect_bad(20, "-1", "C7");
}

TEST(CriteoLine, NamesUnprintableBytesAndCutsLongValues) {
  CriteoSample sample;
  expect_error(ErrorCode::kData, {"'\\x01\\xff'"},
               [&] { parse_criteo_line(line_with(3, "\x01\xff"), {"log", 1}, sample); });
  expect_error(ErrorCode::kData, {"zzz...'"}, [&] {
    parse_criteo_line(line_with(3, std::string(1000, 'z')), {"log", 1}, sample);
  });
}

TEST(CriteoText, BadLinesAreNamed) {
  const std::string good = criteo_line(0) + "\n";
  expect_text_error(good + "0\t1\t2\n", {"log.txt:2:", "3 fields", "40"});
  expect_text_error(good + criteo_line(1) + "\t\n", {"log.txt:2:", "41 fields"});
  expect_text_error(good + "\n" + good, {"log.txt:2:", "1 field where"});
  expect_text_error(good + criteo_line(1).substr(2) + "\n", {"log.txt:2:", "39 fields", "labels"});
  expect_text_error(good + line_with(20, std::string("a\0b", 3)) + "\n",
                    {"log.txt:2:", "NUL byte"});
  expect_text_error(good + line_with(39, std::string(5000, 'a')) + "\n",
                    {"log.txt:2:", "more than 4096 bytes"});
  expect_text_error(std::string(1 << 20, 'a'), {"log.txt:1:", "more than 4096 bytes"});
}

TEST(CriteoText, TakesCarriageReturnsAndAMissingLastLineEnd) {
  const TemporaryFolder folder;
  std::string text;
  for (int s = 0; s < 5; ++s) {
    text += criteo_line(s) + "\r\n";
  }
  const auto crlf = open_source(criteo_config_of({folder.write("crlf.txt", text)}), Split::kTrain);
  expect_log(*crlf, 5);
  text = criteo_text(0, 5);
  text.pop_back();
  const auto cut = open_source(criteo_config_of({folder.write("cut.txt", text)}), Split::kTrain);
  expect_log(*cut, 5);
}

TEST(CriteoFiles, PlainGzipAndZstdAreOneLog) {
  const TemporaryFolder folder;
  const auto source =
      open_source(criteo_config_of({folder.write("a.txt", criteo_text(0, 10)),
                                    folder.write("b.gz", gzip(criteo_text(10, 2000))),
                                    folder.write("c.zst", zstd(criteo_text(2010, 990)))}),
                  Split::kTrain);
  expect_log(*source, 3000);
  EXPECT_EQ(source->size(), 3000);
}

TEST(CriteoFiles, SeveralMembersAndFramesAreTaken) {
  const TemporaryFolder folder;
  const std::string first = criteo_text(0, 10);
  const std::string second = criteo_text(10, 10);
  const auto gz = open_source(criteo_config_of({folder.write("a.gz", gzip(first) + gzip(second))}),
                              Split::kTrain);
  expect_log(*gz, 20);
  const auto zst = open_source(
      criteo_config_of({folder.write("a.zst", zstd(first) + zstd(second))}), Split::kTrain);
  expect_log(*zst, 20);
}

TEST(CriteoFiles, GlobIsSortedByName) {
  const TemporaryFolder folder;
  folder.write("day_1", criteo_text(7, 5));
  folder.write("day_0", criteo_text(0, 7));
  folder.write("other", "no log");
  const auto source = open_source(criteo_config_of({folder.path() + "/day_*"}), Split::kTrain);
  expect_log(*source, 12);
}

TEST(CriteoFiles, ErrorsNameTheFileAndItsOwnLine) {
  const TemporaryFolder folder;
  folder.write("day_0", criteo_text(0, 5));
  folder.write("day_1", criteo_text(5, 3) + "bad\n");
  const auto source = open_source(criteo_config_of({folder.path() + "/day_*"}), Split::kTrain);
  expect_error(ErrorCode::kData, {"day_1:4:"}, [&] { read_range(*source, 0, 100); });
}

TEST(CriteoFiles, CutAndDamagedFilesAreNamed) {
  const TemporaryFolder folder;
  const auto expect_bad = [&](const std::string& name, const std::string& bytes,
                              const std::vector<std::string>& parts) {
    const std::string path = folder.write(name, bytes);
    expect_error(ErrorCode::kData, parts, [&] {
      const auto source = open_source(criteo_config_of({path}), Split::kTrain);
      read_range(*source, 0, 100000);
    });
  };
  const std::string text = criteo_text(0, 3000);
  const std::string gz = gzip(text);
  const std::string zst = zstd(text);
  expect_bad("cut.gz", gz.substr(0, gz.size() / 2), {"cut.gz", "is cut"});
  expect_bad("tail.gz", gz.substr(0, gz.size() - 4), {"tail.gz", "is cut"});
  expect_bad("header.gz", gz.substr(0, 5), {"header.gz", "is cut"});
  expect_bad("cut.zst", zst.substr(0, zst.size() / 2), {"cut.zst", "is cut"});
  expect_bad("tail.zst", zst.substr(0, zst.size() - 1), {"tail.zst", "is cut"});
  expect_bad("junk.gz", gz + "junk", {"junk.gz", "damaged"});
  std::string flipped = gz;
  flipped[gz.size() / 2] = static_cast<char>(flipped[gz.size() / 2] ^ 0x55);
  expect_bad("flipped.gz", flipped, {"flipped.gz"});
  expect_bad("plain.gz", text, {"plain.gz", "not gzip"});
  expect_bad("plain.zst", text, {"plain.zst", "not zstd"});
  expect_bad("nothing.gz", gzip(""), {"nothing.gz", "no line"});
}

/// As pzstd writes it: each frame behind a skippable one that holds the frame's size.
std::string pzstd(const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) {
    const std::string frame = zstd(piece);
    out += std::string("\x50\x2a\x4d\x18\x04\0\0\0", 8);
    for (int byte = 0; byte < 4; ++byte) {
      out += static_cast<char>(frame.size() >> (8 * byte) & 0xff);
    }
    out += frame;
  }
  return out;
}

TEST(CriteoFiles, SkippableFramesAreSkipped) {
  const TemporaryFolder folder;
  const std::string packed = pzstd({criteo_text(0, 3000), criteo_text(3000, 10)});
  // A large one, which reaches over what is read at once, and the last of the 16 kinds.
  const std::string large =
      std::string("\x5f\x2a\x4d\x18\0\0\x10\0", 8) + std::string(std::size_t{1} << 20, 'x');
  for (const std::string& bytes :
       {packed, large + packed, packed + large, packed + packed.substr(0, 12)}) {
    const auto source =
        open_source(criteo_config_of({folder.write("a.zst", bytes)}), Split::kTrain);
    expect_log(*source, 3010);
    const auto unnamed = open_source(criteo_config_of({folder.write("a", bytes)}), Split::kTrain);
    expect_log(*unnamed, 3010);
  }
  for (const std::string& bytes :
       {packed.substr(0, packed.size() - 1), packed + large.substr(0, 99)}) {
    const std::string path = folder.write("cut.zst", bytes);
    expect_error(ErrorCode::kData, {"cut.zst", "is cut"}, [&] {
      const auto source = open_source(criteo_config_of({path}), Split::kTrain);
      read_range(*source, 0, 100000);
    });
  }
}

TEST(CriteoFiles, ZerosBehindGzipAreItsEnd) {
  const TemporaryFolder folder;
  const std::string packed = gzip(criteo_text(0, 3000));
  for (const std::size_t zeros : {1UL, 511UL, 600'000UL}) {
    const std::string padding(zeros, '\0');
    const auto source =
        open_source(criteo_config_of({folder.write("a.gz", packed + padding)}), Split::kTrain);
    expect_log(*source, 3000);
    const auto more = open_source(
        criteo_config_of(
            {folder.write("b.gz", packed + padding + gzip(criteo_text(3000, 5)) + padding)}),
        Split::kTrain);
    expect_log(*more, 3005);
    const std::string path = folder.write("junk.gz", packed + padding + "junk");
    expect_error(ErrorCode::kData, {"junk.gz", "damaged"}, [&] {
      const auto junk = open_source(criteo_config_of({path}), Split::kTrain);
      read_range(*junk, 0, 100000);
    });
  }
}

TEST(CriteoFiles, MissingAndEmptyFilesAreNamed) {
  const TemporaryFolder folder;
  const auto expect_bad = [](const std::string& path, const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kData, parts,
                 [&] { open_source(criteo_config_of({path}), Split::kTrain); });
  };
  expect_bad(folder.path() + "/none.txt", {"data.path", "none.txt"});
  expect_bad(folder.path() + "/day_*", {"data.path", "day_*", "no file matches"});
  expect_bad(folder.write("empty.txt", ""), {"data.path", "empty.txt", "empty"});
  expect_bad(folder.path(), {"data.path", "not a regular file"});
  expect_error(ErrorCode::kData, {"data.path"},
               [] { open_source(criteo_config_of({}), Split::kTrain); });
}

TEST(CriteoSource, LoadMovesForwardAndRewinds) {
  const TemporaryFolder folder;
  const auto source = open_source(
      criteo_config_of({folder.write("log.txt", criteo_text(0, 20000))}), Split::kTrain);
  EXPECT_EQ(source->size(), -1);
  const auto expect_range = [&](std::int64_t first, std::int64_t count, std::int64_t expected) {
    const RawBlock block = read_range(*source, first, count);
    ASSERT_EQ(block.size, expected);
    for (std::int64_t s = 0; s < expected; ++s) {
      ASSERT_EQ(block.dense[0][static_cast<std::size_t>(s)], static_cast<float>(first + s));
    }
  };
  expect_range(0, 10, 10);
  expect_range(5, 10, 10);
  expect_range(15000, 100, 100);  // skips
  expect_range(15050, 0, 0);
  expect_range(19990, 100, 10);
  EXPECT_EQ(source->size(), 20000);
  expect_range(20000, 100, 0);
  expect_range(30000, 100, 0);
  expect_range(0, 30000, 20000);
}

TEST(CriteoSource, ReadsOnlyWhatIsSelected) {
  const TemporaryFolder folder;
  const auto source =
      open_source(criteo_config_of({folder.write("log.txt", criteo_text(0, 10))}), Split::kTrain);
  source->select(std::vector<std::string>{"C2", "I1"});
  const RawBlock block = read_range(*source, 0, 10);
  EXPECT_EQ(block.labels[0].size(), 0U);
  EXPECT_EQ(block.dense[0].size(), 10U);
  EXPECT_EQ(block.dense[1].size(), 0U);
  EXPECT_EQ(block.categorical[0].offsets.size(), 0U);
  EXPECT_EQ(block.categorical[1].ids.size(), 10U);
  expect_error(ErrorCode::kConfig, {"'C27'", "did you mean"},
               [&] { source->select(std::vector<std::string>{"C27"}); });
}

TEST(OpenSource, LimitsAndSplits) {
  const TemporaryFolder folder;
  spec::Config config = criteo_config_of({folder.write("train.txt", criteo_text(0, 100))});
  EXPECT_EQ(open_source(config, Split::kEval), nullptr);
  config.data.max_samples = 7;
  EXPECT_EQ(read_range(*open_source(config, Split::kTrain), 0, 100).size, 7);
  config.data.eval_path = {folder.write("eval.txt", criteo_text(100, 50))};
  config.data.max_eval_samples = 20;
  const auto eval = open_source(config, Split::kEval);
  const RawBlock block = read_range(*eval, 0, 100);
  EXPECT_EQ(block.size, 20);
  EXPECT_EQ(block.dense[0][0], 100.0F);
  config.data.eval_path.clear();
  config.data.eval_fraction = 0.1;
  expect_error(ErrorCode::kConfig, {"eval_fraction", "eval_path"},
               [&] { open_source(config, Split::kEval); });
}

TEST(OpenSource, FingerprintIsOfContentsNotOfNames) {
  const TemporaryFolder folder;
  const TemporaryFolder other;
  const auto fingerprint = [](const std::string& path) {
    return open_source(criteo_config_of({path}), Split::kTrain)->fingerprint();
  };
  const std::uint64_t base = fingerprint(folder.write("a.txt", criteo_text(0, 10)));
  EXPECT_EQ(fingerprint(other.write("b.txt", criteo_text(0, 10))), base);
  EXPECT_NE(fingerprint(other.write("a.txt", criteo_text(0, 11))), base);
  std::string inverted = criteo_text(0, 10);
  inverted.front() = '0';
  EXPECT_NE(fingerprint(other.write("a.txt", inverted)), base);
}

TEST(OpenSource, ContentOfTheFirstFilesIsThatOfASourceOfThem) {
  const TemporaryFolder folder;
  const std::string one = folder.write("one.txt", criteo_text(0, 10));
  const std::string two = folder.write("two.txt", criteo_text(10, 10));
  const auto both = open_source(criteo_config_of({one, two}), Split::kTrain);
  const auto first = open_source(criteo_config_of({one}), Split::kTrain);
  EXPECT_EQ(fingerprint_of(both->content(1)), fingerprint_of(first->content(9)));
  EXPECT_NE(fingerprint_of(both->content(2)), fingerprint_of(first->content(9)));
  EXPECT_EQ(both->content(9).size(), 2U);
}

/// As another user for the life of this object, where the test runs as root, who may read anything.
class WithoutRights {
 public:
  WithoutRights() : had_(geteuid()) { failed_ = had_ == 0 && seteuid(65534) != 0; }

  ~WithoutRights() { failed_ = seteuid(had_) != 0; }

  WithoutRights(const WithoutRights&) = delete;
  WithoutRights& operator=(const WithoutRights&) = delete;

  [[nodiscard]] bool failed() const { return failed_; }

 private:
  uid_t had_;
  bool failed_ = false;
};

TEST(OpenSource, AFolderThatMayNotBeReadIsNotOneWithoutAMatch) {
  const TemporaryFolder folder;
  const std::string file = folder.write("day.txt", criteo_text(0, 10));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  {
    const WithoutRights user;
    ASSERT_FALSE(user.failed());
    expect_error(ErrorCode::kData, {"cannot read a folder of", "/*.txt", "Permission denied"},
                 [&] { open_source(criteo_config_of({folder.path() + "/*.txt"}), Split::kTrain); });
    expect_error(ErrorCode::kData, {"cannot look at", "day.txt", "Permission denied"},
                 [&] { open_source(criteo_config_of({file}), Split::kTrain); });
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  expect_error(ErrorCode::kData, {"no file matches"}, [&] {
    open_source(criteo_config_of({folder.path() + "/none/*.txt"}), Split::kTrain);
  });
  expect_error(ErrorCode::kData, {"no file matches"},
               [&] { open_source(criteo_config_of({folder.path() + "/*.csv"}), Split::kTrain); });
}

TEST(CriteoSource, RealRows) {
  const std::string folder = real_data("criteo-kaggle-sample");
  if (folder.empty()) {
    GTEST_SKIP() << "no real data";
  }
  const auto source = open_source(criteo_config_of({folder + "/train.txt"}), Split::kTrain);
  const RawBlock block = read_range(*source, 0, 2000);
  ASSERT_EQ(block.size, 1000);
  float clicks = 0;
  for (const float label : block.labels[0]) {
    clicks += label;
  }
  EXPECT_EQ(clicks, 205.0F);
  EXPECT_EQ(block.dense[0][0], 1.0F);
  EXPECT_EQ(block.dense[4][0], 1382.0F);
  EXPECT_TRUE(std::isnan(block.dense[11][0]));
  EXPECT_EQ(block.categorical[0].ids[0], 0x68fd1e64);
}

}  // namespace
}  // namespace weft::data
