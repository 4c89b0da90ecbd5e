/// The files of a trace, read back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/trace/chrome.h"
#include "weft/trace/intervals.h"
#include "weft/trace/recorder.h"

namespace weft::trace {

/// What a stream did during one stretch of time, innermost span (segments.h). Nanoseconds since the
/// trace's time 0, by rank 0's clock.
struct Work {
  std::string name;  ///< a collective's without the prefix that readers of the file want
  Kind kind = Kind::kCompute;
  Interval time;
  int stream = 0;
  // Of collectives:
  std::string group;
  std::int64_t sequence = -1;
  std::int64_t arrived = 0;  ///< when the last peer was there
  std::int64_t bytes = 0;
  std::int64_t cross_host_bytes = 0;
  std::string part;                ///< the span around it, e.g. "output_dist"; empty: none
  std::vector<Arrival> from = {};  ///< data that took a while to come; times as above
};

/// One step of a rank; times as in Work.
struct StepTime {
  std::int64_t number = 0;
  Interval time;
};

/// One rank's file.
struct RankWork {
  int rank = 0;
  std::string host;
  std::int64_t clock_error_ns = 0;
  std::int64_t dropped = 0;
  std::vector<StepTime> steps;          ///< in order
  std::vector<Work> work;               ///< of all streams, in order of begin
  std::vector<TableReads> tables = {};  ///< in all steps
  std::string configuration = {};       ///< of rank 0: YAML; empty where the file has none
};

/// All ranks of the trace in `folder`, by rank. Throws Error(kIo) where it cannot be read and
/// Error(kData) naming the file where it is no trace of ours, a rank is missing, or ranks have
/// recorded different steps.
std::vector<RankWork> read_trace(const std::string& folder);

}  // namespace weft::trace
