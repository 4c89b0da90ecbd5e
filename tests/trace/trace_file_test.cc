#include "weft/trace/trace_file.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/trace/chrome.h"

namespace weft::trace {
namespace {

namespace fs = std::filesystem;

class TraceFiles : public ::testing::Test {
 protected:
  TraceFiles() { fs::create_directories(folder_); }

  ~TraceFiles() override {
    std::error_code error;
    fs::remove_all(folder_, error);
  }

  void write(int rank, const std::string& text) {
    std::ofstream(folder_ / chrome_file_name(rank)) << text;
  }

  /// A file of one step with a lookup and an exchange inside an output_dist.
  static std::string file_of(int rank, int ranks, std::int64_t step = 11) {
    Recorder recorder;
    recorder.start();
    static const std::string kGroup = "world";
    Track& stream = recorder.make_track("compute", TrackKind::kStream);
    stream.add({.name = "lookup", .begin_ns = 1001, .end_ns = 3000, .kind = Kind::kLookup});
    stream.add({.name = "all_to_all", .begin_ns = 3500, .end_ns = 5000, .kind = Kind::kCollective},
               {.group = &kGroup,
                .sequence = 41,
                .ranks = ranks,
                .arrived_ns = 4500,
                .bytes = 4096,
                .cross_host_bytes = 1024},
               std::array{Arrival{.rank = 1, .begin_ns = 3600, .end_ns = 4100, .bytes = 4000},
                          Arrival{.rank = 2, .begin_ns = 4500, .end_ns = 4500, .bytes = 96}});
    stream.sample("rows read", 7);
    stream.add({.name = "output_dist", .begin_ns = 3000, .end_ns = 5500});
    Track& thread = recorder.make_track("trainer", TrackKind::kThread);
    thread.add(
        {.name = "step", .begin_ns = 1000, .end_ns = 6000, .number = step, .kind = Kind::kStep});
    return to_chrome_json(recorder, {.rank = rank,
                                     .ranks = ranks,
                                     .host = "h",
                                     .backend = "mpi",
                                     .steps = {},
                                     .tables = {{"a", 12, 768}, {"\"b\"", 3, 192}}});
  }

  void expect_error(ErrorCode code, const std::string& says) {
    try {
      read_trace(folder_.string());
      ADD_FAILURE() << "no error that says: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }

  fs::path folder_ = fs::temp_directory_path() / ("weft_trace_files_" + std::to_string(getpid()));
};

TEST_F(TraceFiles, ComeBackAsTheyWereRecorded) {
  write(0, file_of(0, 2));
  write(1, file_of(1, 2));
  const auto trace = read_trace(folder_.string());
  ASSERT_EQ(trace.size(), 2U);
  EXPECT_EQ(trace[1].rank, 1);
  EXPECT_EQ(trace[1].host, "h");
  ASSERT_EQ(trace[1].steps.size(), 1U);
  EXPECT_EQ(trace[1].steps[0].number, 11);
  EXPECT_EQ(trace[1].steps[0].time, (Interval{1000, 6000}));
  ASSERT_EQ(trace[1].work.size(), 4U) << "lookup, dist before, exchange, dist behind";
  EXPECT_EQ(trace[1].work[0].name, "lookup");
  EXPECT_EQ(trace[1].work[0].kind, Kind::kLookup);
  EXPECT_EQ(trace[1].work[0].time, (Interval{1001, 3000})) << "to the nanosecond";
  const Work& exchange = trace[1].work[2];
  EXPECT_EQ(exchange.name, "all_to_all");
  EXPECT_EQ(exchange.part, "output_dist");
  EXPECT_EQ(exchange.group, "world");
  EXPECT_EQ(exchange.sequence, 41);
  EXPECT_EQ(exchange.arrived, 4500);
  EXPECT_EQ(exchange.bytes, 4096);
  EXPECT_EQ(exchange.cross_host_bytes, 1024);
  ASSERT_EQ(exchange.from.size(), 1U) << "what came with its peer took no time";
  EXPECT_EQ(exchange.from[0].rank, 1);
  EXPECT_EQ(exchange.from[0].begin_ns, 3600);
  EXPECT_EQ(exchange.from[0].end_ns, 4100);
  EXPECT_EQ(exchange.from[0].bytes, 4000);
  ASSERT_EQ(trace[1].tables.size(), 2U);
  EXPECT_EQ(trace[1].tables[1].table, "\"b\"");
  EXPECT_EQ(trace[1].tables[1].rows, 3);
  EXPECT_EQ(trace[1].tables[1].bytes, 192);
}

TEST_F(TraceFiles, ErrorsNameTheFile) {
  expect_error(ErrorCode::kIo, "holds no trace");
  write(0, file_of(0, 3));
  expect_error(ErrorCode::kIo, "trace-00001.json is not there; bring the files of all 3 ranks");
  write(1, file_of(1, 3, 12));
  expect_error(ErrorCode::kData, "trace-00001.json has other steps");
  write(1, file_of(1, 2));
  expect_error(ErrorCode::kData, "trace-00001.json is of rank 1 of 2");
  write(1, file_of(1, 3).substr(0, 700));
  expect_error(ErrorCode::kData, "trace-00001.json is no trace of Weft's");
  write(1, "{\"traceEvents\": []}");
  expect_error(ErrorCode::kData, "trace-00001.json is no trace of Weft's");
  write(1, "[1, 2]");
  expect_error(ErrorCode::kData, "trace-00001.json is no trace of Weft's");
}

/// Every number that the report adds up, subtracts or takes as an index.
TEST_F(TraceFiles, StrangeValuesAreNamed) {
  const std::string good = file_of(0, 3);
  const auto refused = [&](const std::string& key, const std::string& value) {
    // Of the exchange, which comes twice: as its thread saw it, and as a kernel, which is read.
    const bool of_event =
        std::set<std::string>{"ts", "dur", "arrived", "Seq", "cross_host_bytes"}.contains(key);
    const std::size_t at =
        good.find("\"" + key + "\": ", of_event ? good.find("ncclKernel_all_to_all") : 0);
    ASSERT_NE(at, std::string::npos) << key;
    SCOPED_TRACE(key + ": " + value.substr(0, 40));
    const std::size_t begin = at + key.size() + 4;
    const std::size_t end = good.find_first_of(",}", begin);
    write(0, std::string(good).replace(begin, end - begin, value));
    expect_error(ErrorCode::kData, "trace-00000.json is no trace of Weft's");
    expect_error(ErrorCode::kData, key);
  };
  for (const char* key : {"ts", "dur", "arrived"}) {
    for (const char* value : {"1e300", "-1e300", "9e15", "\"1\"", "null", "[]"}) {
      refused(key, value);
    }
  }
  refused("dur", "-1");
  for (const char* key : {"world_size", "rank", "bytes", "cross_host_bytes", "Seq", "rows",
                          "dropped", "clock_error_ns"}) {
    for (const char* value : {"-1", "1.5", "1e300", "9223372036854775808", "\"1\"", "null"}) {
      refused(key, value);
    }
  }
  refused("world_size", "0");
  refused("version", "2");
  refused("version", std::string(300000, '[') + std::string(300000, ']'));
  write(0, good.substr(0, good.find("\"traceEvents\": ")) + "\"traceEvents\": 7}");
  expect_error(ErrorCode::kData, "traceEvents is 7, not a list");
}

TEST_F(TraceFiles, StrangeArrivalsAreNamed) {
  const std::string good = file_of(0, 2);
  const std::size_t begin = good.find("\"from\": ") + 8;
  const std::size_t end = good.find("]]", begin) + 2;
  ASSERT_LT(end, good.size());
  for (const std::string bad :
       {"[[2, 0, 1, 5]]", "[[-1, 0, 1, 5]]", "[[1, 5, 1, 5]]", "[[1, 0, 1, -5]]", "[[1, 0, 1]]",
        "[[1, 0, 1e300, 5]]", "[7]", "7", "{}"}) {
    write(0, std::string(good).replace(begin, end - begin, bad));
    expect_error(ErrorCode::kData, "trace-00000.json is no trace of Weft's: traceEvents[");
  }
  write(0, std::string(good).replace(begin, end - begin,
                                     std::string(300000, '[') + std::string(300000, ']')));
  expect_error(ErrorCode::kData, "trace-00000.json");
}

}  // namespace
}  // namespace weft::trace
