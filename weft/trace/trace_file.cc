#include "weft/trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/trace/chrome.h"

namespace weft::trace {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kCollectivePrefix = "ncclKernel_";
constexpr std::string_view kStepPrefix = "ProfilerStep#";

std::int64_t nanoseconds(const json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000.0);
}

Interval time_of(const json& event) {
  const std::int64_t begin = nanoseconds(event.at("ts"));
  return {begin, begin + nanoseconds(event.at("dur"))};
}

Kind kind_of(const std::string& text) {
  for (const Kind kind :
       {Kind::kStep, Kind::kCompute, Kind::kLookup, Kind::kCollective, Kind::kWait, Kind::kIo}) {
    if (to_string(kind) == text) {
      return kind;
    }
  }
  fail(ErrorCode::kData, "unknown kind of span '{}'", text);
}

Work work_of(const json& event) {
  const json& arguments = event.at("args");
  Work work{.name = event.at("name"),
            .kind = kind_of(arguments.at("kind")),
            .time = time_of(event),
            .stream = event.at("tid"),
            .group = {},
            .part = arguments.value("part", "")};
  if (work.kind == Kind::kCollective) {
    if (work.name.starts_with(kCollectivePrefix)) {
      work.name.erase(0, kCollectivePrefix.size());
    }
    work.group = arguments.at("Process Group Name");
    work.sequence = arguments.at("Seq");
    work.arrived = std::clamp(nanoseconds(arguments.at("arrived")), work.time.begin, work.time.end);
    work.bytes = arguments.at("bytes");
    work.cross_host_bytes = arguments.at("cross_host_bytes");
    for (const json& from : arguments.value("from", json::array())) {
      work.from.push_back({.rank = from.at(0),
                           .begin_ns = nanoseconds(from.at(1)),
                           .end_ns = nanoseconds(from.at(2)),
                           .bytes = from.at(3)});
    }
  }
  return work;
}

RankWork rank_of(const json& file) {
  RankWork rank{.rank = file.at("distributedInfo").at("rank"),
                .host = file.at("weft").at("host"),
                .clock_error_ns = file.at("weft").at("clock_error_ns"),
                .dropped = file.at("weft").at("dropped"),
                .steps = {},
                .work = {}};
  for (const json& table : file.at("weft").value("tables", json::array())) {
    rank.tables.push_back({table.at("table"), table.at("rows"), table.at("bytes")});
  }
  for (const json& event : file.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category == "kernel") {
      rank.work.push_back(work_of(event));
    } else if (category == "user_annotation") {
      const std::string name = event.at("name");
      if (name.starts_with(kStepPrefix)) {
        rank.steps.push_back({std::stoll(name.substr(kStepPrefix.size())), time_of(event)});
      }
    }
  }
  std::stable_sort(rank.work.begin(), rank.work.end(),
                   [](const Work& a, const Work& b) { return a.time.begin < b.time.begin; });
  return rank;
}

RankWork read_file(const fs::path& path, std::int64_t& ranks) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in.is_open() || in.bad()) {
    fail(ErrorCode::kIo, "cannot read {}", path.string());
  }
  try {
    const json file = json::parse(text.str());
    if (file.at("weft").at("version") != 1) {
      fail(ErrorCode::kData, "version {} of the format; this Weft reads version 1",
           file.at("weft").at("version").dump());
    }
    ranks = file.at("distributedInfo").at("world_size");
    return rank_of(file);
  } catch (const std::exception& error) {  // of JSON, of a number, or our own
    fail(ErrorCode::kData, "{} is no trace of Weft's: {}; record it with weft train --trace",
         path.string(), error.what());
  }
}

}  // namespace

std::vector<RankWork> read_trace(const std::string& folder) {
  std::vector<RankWork> trace;
  std::int64_t ranks = 1;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const fs::path path = fs::path(folder) / chrome_file_name(static_cast<int>(r));
    std::error_code error;
    if (!fs::exists(path, error)) {
      if (r == 0) {
        fail(ErrorCode::kIo,
             "{} holds no trace, there is no {}; name a folder of weft train --trace", folder,
             path.filename().string());
      }
      fail(ErrorCode::kIo, "{} is not there; bring the files of all {} ranks together",
           path.string(), ranks);
    }
    std::int64_t of = 0;
    trace.push_back(read_file(path, of));
    if (r == 0) {
      ranks = of;
    }
    if (of != ranks || trace.back().rank != r) {
      fail(ErrorCode::kData,
           "{} is of rank {} of {}, among those of {} ranks; record them together", path.string(),
           trace.back().rank, of, ranks);
    }
    const auto numbers = [](const RankWork& rank) {
      std::vector<std::int64_t> found;
      for (const StepTime& step : rank.steps) {
        found.push_back(step.number);
      }
      return found;
    };
    if (numbers(trace.back()) != numbers(trace.front()) || trace.front().steps.empty()) {
      fail(ErrorCode::kData, "{} has other steps than rank 0's file, or none", path.string());
    }
  }
  return trace;
}

}  // namespace weft::trace
