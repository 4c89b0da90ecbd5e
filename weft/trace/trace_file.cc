#include "weft/trace/trace_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/trace/chrome.h"

namespace weft::trace {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kCollectivePrefix = "ncclKernel_";
constexpr std::string_view kStepPrefix = "ProfilerStep#";

// So that sums and differences of a file's numbers fit 64 bits: 71 years as microseconds, 64 TiB.
constexpr double kMaxMicroseconds = 0x1.0p51;
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 46;
constexpr std::int64_t kMaxRanks = 65536;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

[[noreturn]] void refuse(std::string_view what, const json& value, std::string_view wanted) {
  // Not the value's text where it may be long, or nested without end.
  fail(ErrorCode::kData, "{} is {}, not {}", what,
       value.is_number() ? value.dump() : std::string(value.type_name()), wanted);
}

/// From `low` to `high`.
std::int64_t whole(const json& value, std::string_view what, std::int64_t low, std::int64_t high) {
  const bool fits =
      value.is_number_integer() && (!value.is_number_unsigned() ||
                                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high));
  if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    refuse(what, value, fmt::format("a whole number from {} to {}", low, high));
  }
  return value.get<std::int64_t>();
}

std::int64_t count_of(const json& object, const char* key) {
  return whole(object.at(key), key, 0, kMaxNumber);
}

/// Microseconds in the file.
std::int64_t nanoseconds(const json& value, std::string_view what, double low) {
  const double time = value.is_number() ? value.get<double>() : low - 1;
  if (!(time >= low && time <= kMaxMicroseconds)) {
    refuse(what, value, fmt::format("microseconds from {} to {}", low, kMaxMicroseconds));
  }
  return std::llround(time * 1000.0);
}

std::int64_t moment(const json& value, std::string_view what) {
  return nanoseconds(value, what, -kMaxMicroseconds);
}

Interval time_of(const json& event) {
  const std::int64_t begin = moment(event.at("ts"), "ts");
  return {begin, begin + nanoseconds(event.at("dur"), "dur", 0.0)};
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

/// The list at a key, empty where there is none. A reference: a copy of what is nested without end
/// would overflow the stack.
const json& list_at(const json& object, const char* key) {
  static const json kNone = json::array();
  const auto found = object.find(key);
  if (found == object.end()) {
    return kNone;
  }
  if (!found->is_array()) {
    refuse(key, *found, "a list");
  }
  return *found;
}

/// [rank, begin, end, bytes]
Arrival arrival_of(const json& entry, std::int64_t ranks) {
  const Arrival from{.rank = static_cast<int>(whole(entry.at(0), "a rank of from", 0, ranks - 1)),
                     .begin_ns = moment(entry.at(1), "a beginning of from"),
                     .end_ns = moment(entry.at(2), "an end of from"),
                     .bytes = whole(entry.at(3), "the bytes of from", 0, kMaxNumber)};
  if (from.end_ns < from.begin_ns) {
    fail(ErrorCode::kData, "data from rank {} ends before it begins", from.rank);
  }
  return from;
}

Work work_of(const json& event, std::int64_t ranks) {
  const json& arguments = event.at("args");
  Work work{.name = event.at("name"),
            .kind = kind_of(arguments.at("kind")),
            .time = time_of(event),
            .stream = static_cast<int>(whole(event.at("tid"), "tid", 0, kMaxInt)),
            .group = {},
            .part = arguments.value("part", "")};
  if (work.kind == Kind::kCollective) {
    if (work.name.starts_with(kCollectivePrefix)) {
      work.name.erase(0, kCollectivePrefix.size());
    }
    work.group = arguments.at("Process Group Name");
    work.sequence = count_of(arguments, "Seq");
    work.arrived =
        std::clamp(moment(arguments.at("arrived"), "arrived"), work.time.begin, work.time.end);
    work.bytes = count_of(arguments, "bytes");
    work.cross_host_bytes = count_of(arguments, "cross_host_bytes");
    for (const json& entry : list_at(arguments, "from")) {
      work.from.push_back(arrival_of(entry, ranks));
    }
  }
  return work;
}

/// The number after "ProfilerStep#".
std::int64_t step_number(std::string_view name) {
  const std::string_view digits = name.substr(kStepPrefix.size());
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || stop != digits.data() + digits.size() || number < 0) {
    fail(ErrorCode::kData, "'{}' is no step", name);
  }
  return number;
}

void add_event(const json& event, std::int64_t ranks, RankWork& rank) {
  const std::string category = event.value("cat", "");
  if (category == "kernel") {
    rank.work.push_back(work_of(event, ranks));
  } else if (category == "user_annotation") {
    const std::string name = event.at("name");
    if (name.starts_with(kStepPrefix)) {
      rank.steps.push_back({step_number(name), time_of(event)});
    }
  }
}

RankWork rank_of(const json& file, std::int64_t ranks) {
  const json& weft = file.at("weft");
  RankWork rank{
      .rank = static_cast<int>(whole(file.at("distributedInfo").at("rank"), "rank", 0, ranks - 1)),
      .host = weft.at("host"),
      .clock_error_ns = count_of(weft, "clock_error_ns"),
      .dropped = count_of(weft, "dropped"),
      .steps = {},
      .work = {}};
  rank.configuration = weft.value("configuration", std::string());
  for (const json& table : list_at(weft, "tables")) {
    rank.tables.push_back({table.at("table"), count_of(table, "rows"), count_of(table, "bytes")});
  }
  std::size_t index = 0;
  for (const json& event : list_at(file, "traceEvents")) {
    try {
      add_event(event, ranks, rank);
    } catch (const std::exception& error) {
      fail(ErrorCode::kData, "traceEvents[{}]: {}", index, error.what());
    }
    ++index;
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
    if (const json& version = file.at("weft").at("version"); version != 1) {
      refuse("the version of the format", version, "1, which this Weft reads");
    }
    ranks = whole(file.at("distributedInfo").at("world_size"), "world_size", 1, kMaxRanks);
    return rank_of(file, ranks);
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
