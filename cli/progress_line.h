/// What a job shows on standard error while it runs.
///
/// On a terminal one line at the bottom that is rewritten: at a new phase, at a window's end, and
/// every second. It is never wider than the terminal. Elsewhere a line per window, and one after 30
/// s in which there was none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weft/train/progress.h"

namespace weft::cli {

/// Everything the line is made of.
struct ProgressState {
  std::string mark;                            ///< what every line begins with; may be empty
  train::Activity now;                         ///< what the job does
  double now_s = 0;                            ///< seconds since that phase began
  std::int64_t samples_before = 0;             ///< trained on when it began
  std::optional<train::Activity> trained;      ///< the last of kTraining
  std::optional<train::WindowFigures> window;  ///< the last complete one
};

/// Pieces of the line, those that matter most first: "step 120/500", "NE 0.79120", ...
std::vector<std::string> progress_pieces(const ProgressState& state);

/// As many pieces, from the first on, as `columns` bytes hold with two spaces between them; a first
/// piece that is longer is cut.
std::string fitted(std::span<const std::string> pieces, std::size_t columns);

/// Seconds as "0:07", "12:30" or "3:04:05".
std::string clock_text(double seconds);

/// Shows a job's progress. The sink's functions may be called from one thread at a time, until
/// close(); a thread of its own sees to the seconds.
class ProgressLine {
 public:
  explicit ProgressLine(std::string mark);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  train::ProgressSink sink();

  /// Ends the line that was being rewritten; the last figures of training stay to be read.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  void note(const train::Activity& activity);
  void note(const train::WindowFigures& window);
  void show(const train::EvalFigures& eval);
  void line(const std::string& text);
  void tick();
  void draw();

  const bool terminal_;
  std::mutex mutex_;  // of the rest
  std::condition_variable ended_;
  bool began_ = false;  // something has been noted
  bool closed_ = false;
  ProgressState state_;
  Clock::time_point phase_begin_ = Clock::now();
  Clock::time_point shown_ = Clock::now();  // when something was, last
  std::thread thread_;
};

}  // namespace weft::cli
