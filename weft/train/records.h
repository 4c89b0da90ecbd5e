/// The records of a training: what --out and --tensorboard say of it. Rank 0 writes them.
///
///   DIR/config.yaml, plan.yaml   what was asked and decided; written at the start
///   DIR/metrics.jsonl            a line per window and evaluation
///   DIR/summary.json             at the end
///   FOLDER/events.out.tfevents.* a new file per run
///
/// At the start, when nothing is lost yet, a file that cannot be written is an Error(kIo). From
/// then on it ends nothing: the reason is logged, once until the file can be written again, each
/// later record is tried anew, and what did not reach its file is counted. A training that begins
/// anew in a folder with metrics keeps the earlier run's four files under the next free number:
/// metrics.1.jsonl, config.1.yaml, ... One that is resumed goes on with metrics.jsonl, from which
/// lines beyond its step, and lines cut by a crash, are taken out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/train/event_file.h"
#include "weft/train/progress.h"
#include "weft/train/record_files.h"
#include "weft/train/summary.h"

namespace weft::train {

/// Runs a write to a file. The file system may not answer: a job watches it (comm::run_watched).
using RunWrite = std::function<void(const std::string& path, const std::function<void()>& write)>;

/// The places of a training's records and what is written there at the start.
struct RecordsOptions {
  std::string folder;                        ///< of --out; empty = none
  std::string tensorboard;                   ///< of --tensorboard; empty = none
  std::optional<std::int64_t> resumed_step;  ///< none: a training that begins anew
  std::string config_yaml;                   ///< as resolved
  std::string plan_yaml;
  RunWrite run = [](const std::string& /*path*/, const std::function<void()>& write) { write(); };
};

/// Used by one thread.
class Records {
 public:
  explicit Records(const RecordsOptions& options);

  /// Appends figures to metrics.jsonl and to the event file, where the options ask for them. An
  /// Error(kIo) is logged and counted in lost(); any other is thrown.
  void add(const WindowFigures& window);
  void add(const EvalFigures& eval);

  /// Replaces summary.json. Where that fails a warning says so.
  void write_summary(const Summary& summary);

  /// Of metrics.jsonl and events, so far.
  [[nodiscard]] const LostRecords& lost() const { return lost_; }

  /// `shown`, and what it is called with is recorded here. The records outlive it.
  ProgressSink sink(const ProgressSink& shown);

 private:
  void prepare_folder(const RecordsOptions& options) const;
  void add_line(const std::string& line);
  void add_event(std::int64_t step, const std::vector<Figure>& figures);
  void attempt(const char* what,
               const std::string& path,
               std::int64_t& lost,
               std::int64_t& lost_before,
               const std::function<void()>& write) const;

  std::string folder_;
  RunWrite run_;
  std::optional<AppendFile> metrics_;
  std::optional<EventFile> events_;
  LostRecords lost_;
  LostRecords reported_;  // of lost_, when the files could last be written
};

/// What `weft eval --out` writes: DIR/eval.json, or eval-STEP.json of a checkpoint's step, the
/// summary as JSON. Replaced as a whole; no file of a training is touched. Throws Error(kIo).
void write_evaluation(const std::string& folder, const Summary& summary);

/// Its name.
std::string evaluation_name(const Summary& summary);

}  // namespace weft::train
