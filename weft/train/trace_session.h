/// A trace of some steps of a job: when it begins and ends, and its files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/trace/chrome.h"
#include "weft/trace/recorder.h"
#include "weft/train/engine.h"

namespace weft::train {

/// The folder and the steps of a trace, equal on all ranks.
struct TraceOptions {
  std::string folder;  ///< of the files; empty = no trace is made
  Range steps;         ///< of the job, [begin, end); empty: kDefaultSteps
};

/// Records some steps of this rank and writes its file. The training thread calls it. REQUIRES:
/// options.folder is not empty.
class TraceSession {
 public:
  /// Without --trace-steps: these of the run, counted from 1. The first ones are not like others.
  static constexpr Range kDefaultSteps = {11, 21};

  /// `first_step`: steps done before this run. Makes the folder; throws Error(kIo) where that or
  /// writing there fails, now and not after the steps.
  TraceSession(const TraceOptions& options, std::int64_t first_step);

  [[nodiscard]] trace::Recorder& recorder() { return recorder_; }

  /// Before step `step` of `engine`, which records here. Begins with the first one; after the
  /// last, ends it and writes. A file that cannot be written is warned of and tried again at the
  /// job's end. Collective.
  void before_step(std::int64_t step, Engine& engine);

  /// At the job's end: writes what is not written yet; warns if no step was recorded. Collective.
  void finish(Engine& engine);

  /// Whether this rank's file could not be written.
  [[nodiscard]] bool is_lost() const { return lost_; }

 private:
  void sample(Engine& engine);
  [[nodiscard]] std::vector<trace::TableReads> table_reads(const Engine& engine) const;
  void write(Engine& engine);
  void complete(Engine& engine, Context& ctx);
  void write_file(comm::Communicator& comm);

  std::string folder_;
  Range steps_;
  std::int64_t begin_ns_ = 0;
  std::int64_t last_step_ = 0;
  bool written_ = false;  // or tried
  bool lost_ = false;
  bool is_first_ = false;   // of the ranks
  trace::RankTrace trace_;  // once the steps are over
  std::vector<sharding::TableReads> reads_before_;
  trace::Recorder recorder_;
};

}  // namespace weft::train
