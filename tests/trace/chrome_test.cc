#include "weft/trace/chrome.h"

#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace weft::trace {
namespace {

using nlohmann::json;

// A stream with a step, a lookup, and a dist around an exchange; and a reader.
void fill(Recorder& recorder, const std::string& group) {
  recorder.start();
  Track& stream = recorder.make_track("compute", TrackKind::kStream);
  stream.add({.name = "lookup", .begin_ns = 1000, .end_ns = 3000, .kind = Kind::kLookup});
  stream.add({.name = "all_to_all", .begin_ns = 3500, .end_ns = 5000, .kind = Kind::kCollective},
             {.group = &group,
              .sequence = 41,
              .ranks = 4,
              .arrived_ns = 4500,
              .bytes = 4096,
              .cross_host_bytes = 1024,
              .messages = 3,
              .cross_host_messages = 2});
  stream.add({.name = "output_dist", .begin_ns = 3000, .end_ns = 5500, .kind = Kind::kCompute});
  stream.add({.name = "wait", .begin_ns = 5500, .end_ns = 6000, .kind = Kind::kWait});
  Track& host = recorder.make_track("trainer \"main\"", TrackKind::kThread);
  host.add({.name = "step", .begin_ns = 900, .end_ns = 6000, .number = 12, .kind = Kind::kStep});
  recorder.stop();
}

json parse(const RankTrace& trace) {
  Recorder recorder;
  const std::string group = "world";
  fill(recorder, group);
  return json::parse(to_chrome_json(recorder, trace));
}

const RankTrace kTrace = {.rank = 3,
                          .ranks = 4,
                          .host = "node\\1",
                          .backend = "mpi",
                          .steps = {12, 13},
                          .base_ns = 500,
                          .clock_offset_ns = 100,
                          .clock_error_ns = 20};

TEST(ChromeTrace, SaysWhoseItIs) {
  const json trace = parse(kTrace);
  EXPECT_EQ(trace["distributedInfo"]["rank"], 3);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 4);
  EXPECT_EQ(trace["weft"]["host"], "node\\1");
  EXPECT_EQ(trace["weft"]["clock_offset_ns"], 100);
  EXPECT_EQ(trace["weft"]["dropped"], 0);
  Recorder recorder;
  const std::string text = to_chrome_json(recorder, kTrace);
  EXPECT_NE(text.find("\"rank\": 3"), text.npos) << "with the space that HTA looks for";
  EXPECT_EQ(chrome_file_name(3), "trace-00003.json");
}

TEST(ChromeTrace, HasSpansAsTheyNestAndWhatAStreamDid) {
  const json trace = parse(kTrace);
  std::map<std::string, json> by_name;  // category and name
  std::map<int, std::string> rows;
  for (const json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") {
        rows[event["tid"]] = event["args"]["name"];
      }
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    by_name[event["cat"].get<std::string>() + " " + event["name"].get<std::string>()] = event;
  }
  EXPECT_EQ(rows, (std::map<int, std::string>{
                      {1, "compute"}, {101, "compute, innermost"}, {2, "trainer \"main\""}}));

  const json& lookup = by_name.at("cpu_op lookup");
  EXPECT_DOUBLE_EQ(lookup["ts"], 0.4) << "1000 ns, on a clock 100 ahead, from time 500";
  EXPECT_DOUBLE_EQ(lookup["dur"], 2.0);
  EXPECT_EQ(lookup["tid"], 1);
  EXPECT_EQ(lookup["args"]["kind"], "lookup");

  const json& step = by_name.at("user_annotation ProfilerStep#12");
  EXPECT_DOUBLE_EQ(step["dur"], 5.1);

  const json& exchange = by_name.at("kernel ncclKernel_all_to_all");
  EXPECT_DOUBLE_EQ(exchange["ts"], 2.9);
  EXPECT_DOUBLE_EQ(exchange["dur"], 1.5);
  EXPECT_EQ(exchange["tid"], 101);
  EXPECT_GT(exchange["args"]["stream"], 0);
  EXPECT_EQ(exchange["args"]["part"], "output_dist");
  EXPECT_EQ(exchange["args"]["Process Group Name"], "world");
  EXPECT_EQ(exchange["args"]["Seq"], 41);
  EXPECT_EQ(exchange["args"]["Group size"], 4);
  EXPECT_EQ(exchange["args"]["bytes"], 4096);
  EXPECT_EQ(exchange["args"]["cross_host_bytes"], 1024);
  EXPECT_EQ(exchange["args"]["in_host_bytes"], 3072);
  EXPECT_EQ(exchange["args"]["logical_bytes"], 4096);
  EXPECT_EQ(exchange["args"]["messages"], 3);
  EXPECT_EQ(exchange["args"]["cross_host_messages"], 2);
  EXPECT_DOUBLE_EQ(exchange["args"]["arrived"], 3.9);
  EXPECT_EQ(by_name.at("cpu_op all_to_all")["args"]["Seq"], 41);
  EXPECT_EQ(by_name.at("cpu_op all_to_all")["args"]["correlation"], exchange["args"]["correlation"])
      << "joins them";
  EXPECT_NE(lookup["args"]["correlation"], exchange["args"]["correlation"]);

  // The dist keeps what the exchange leaves it; a wait is no work.
  const json& rest = by_name.at("kernel output_dist");
  EXPECT_DOUBLE_EQ(rest["ts"], 4.4);
  EXPECT_DOUBLE_EQ(rest["dur"], 0.5);
  EXPECT_EQ(by_name.count("kernel wait"), 0U);
  EXPECT_EQ(by_name.count("cpu_op wait"), 1U);
}

TEST(ChromeTrace, NamesTheStepOfWhatRunsBesideAnother) {
  Recorder recorder;
  recorder.start();
  Track& stream = recorder.make_track("sync", TrackKind::kStream);
  stream.add({.name = "sync_replicas", .begin_ns = 1000, .end_ns = 3000, .number = 12});
  stream.add({.name = "lookup", .begin_ns = 3000, .end_ns = 4000});
  recorder.stop();
  const json trace = json::parse(to_chrome_json(recorder, kTrace));
  std::int64_t spans = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "sync_replicas") {
      EXPECT_EQ(event["args"]["step"], 12);
      ++spans;
    } else if (event["name"] == "lookup") {
      EXPECT_FALSE(event["args"].contains("step"));
    }
  }
  EXPECT_EQ(spans, 2) << "as it nests, and what the stream did";
}

}  // namespace
}  // namespace weft::trace
