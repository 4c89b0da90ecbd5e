// Errors, hashes, logging and text.
#include <algorithm>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"
#include "weft/base/hash_stream.h"
#include "weft/base/log.h"
#include "weft/base/text.h"

namespace weft {
namespace {

TEST(Error, CarriesCodeMessageAndOrigin) {
  try {
    fail(ErrorCode::kData, "line {}: {} columns", 7, 39);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kData);
    EXPECT_STREQ(error.what(), "line 7: 39 columns");
    EXPECT_EQ(error.origin_rank(), -1);
  }
  EXPECT_EQ(Error(ErrorCode::kComm, "x", 3).origin_rank(), 3);
  EXPECT_EQ(to_string(ErrorCode::kNonFinite), "non_finite");
}

TEST(Error, CheckNamesTheExpression) {
  EXPECT_NO_THROW(WEFT_CHECK(1 + 1 == 2));
  const int rows = -4;
  try {
    WEFT_CHECK(rows >= 0, "rows is {}", rows);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    const std::string what = error.what();
    EXPECT_NE(what.find("'rows >= 0'"), std::string::npos) << what;
    EXPECT_NE(what.find("rows is -4"), std::string::npos) << what;
    EXPECT_NE(what.find("base_test.cc"), std::string::npos) << what;
  }
}

TEST(Hash, IsXxh3) {
  // The published value for no input and seed 0.
  EXPECT_EQ(hash_string(""), 0x2d06800538d394c2ULL);
  const std::string text = "embedding";
  EXPECT_EQ(hash_string(text), hash_bytes(std::as_bytes(std::span(text))));
  EXPECT_NE(hash_string("a"), hash_string("b"));
  EXPECT_NE(hash_combine(1, 2), hash_combine(2, 1));
}

TEST(Hash, OfPiecesIsThatOfTheWhole) {
  std::vector<std::byte> bytes(3000);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(mix64(i));
  }
  HashStream stream;
  EXPECT_EQ(stream.value(), hash_string(""));
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{256}, bytes.size()}) {
    stream.reset();
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      EXPECT_EQ(stream.value(), hash_bytes(std::span(bytes).first(at)));
      stream.add(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    }
    EXPECT_EQ(stream.value(), hash_bytes(bytes)) << piece;
  }
}

TEST(Log, GoesToTheSinkFromTheLevelOn) {
  std::vector<std::string> seen;
  log_info("nobody listens");
  set_log_sink([&](LogLevel, std::string_view message) { seen.emplace_back(message); },
               LogLevel::kWarning);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  log_info("too low");
  log_warning("rank {} is late", 3);
  EXPECT_EQ(seen, std::vector<std::string>{"rank 3 is late"});
  set_log_sink({});
  EXPECT_FALSE(log_enabled(LogLevel::kError));
  log_warning("nobody listens");
  EXPECT_EQ(seen.size(), 1U);
}

TEST(Log, TakesMessagesFromSeveralThreads) {
  std::vector<std::string> seen;
  set_log_sink([&](LogLevel, std::string_view message) { seen.emplace_back(message); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 50; ++i) {
        log_info("{} {}", t, i);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  set_log_sink({});
  EXPECT_EQ(seen.size(), 200U);
}

TEST(Text, NearestTakesTheSmallestDistanceThatIsSmallEnough) {
  const std::vector<std::string> names = {"table_wise", "row_wise", "column_wise", "data_parallel"};
  EXPECT_EQ(nearest("row_wize", names), "row_wise");
  EXPECT_EQ(nearest("tablewise", names), "table_wise");
  EXPECT_EQ(nearest("row_wise", names), "row_wise");
  EXPECT_EQ(nearest("xyz", names), "");
  EXPECT_EQ(nearest("a", {}), "");
  const std::vector<std::string> shorts = {"lr", "eps"};
  EXPECT_EQ(nearest("l", shorts), "lr");  // one edit is always near
  EXPECT_EQ(nearest("epsi", shorts), "eps");
  EXPECT_EQ(nearest("ab", shorts), "");  // two edits of two letters are not
}

TEST(Text, SuggestionNamesOneOrAll) {
  const std::vector<std::string> names = {"cpu", "check", "cuda"};
  EXPECT_EQ(suggestion("cdua", std::vector<std::string>{"abcdefg"}), "known: abcdefg");
  EXPECT_EQ(suggestion("chek", names), "did you mean 'check'?");
  EXPECT_EQ(suggestion("tpu-v4", names), "known: cpu, check, cuda");
}

TEST(Text, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
}

TEST(Text, CountedKnowsOne) {
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(64, "thread"), "64 threads");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(2, "entry", "entries"), "2 entries");
}

TEST(Text, FormatCount) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(INT64_MIN), "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace weft
