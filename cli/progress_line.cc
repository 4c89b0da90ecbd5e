#include "cli/progress_line.h"

#include <cmath>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/output.h"
#include "weft/base/text.h"

namespace weft::cli {
namespace {

using train::Phase;

constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::seconds kPlainPause{30};   // without a line where there is no terminal
constexpr std::chrono::milliseconds kPause{100};  // between two windows that are both drawn

/// Columns of the terminal that a line may use: the last stays free, for a terminal that wraps when
/// it is written.
std::size_t columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 79;
  }
  return size.ws_col - std::size_t{1};
}

std::string eta_text(double seconds) {
  return "ETA " + (seconds < 100 ? fmt::format("{:.0f} s", seconds) : clock_text(seconds));
}

std::string step_text(const train::Activity& trained) {
  return fmt::format("step {}{}", trained.done,
                     trained.total > 0 ? fmt::format("/{}", trained.total) : "");
}

/// What is not training, and how far it is.
std::string phase_text(const train::Activity& now) {
  std::string text(to_string(now.phase));
  if (now.done > 0) {
    text += " " + format_count(now.done);
    text += now.total > 0 ? " of " + format_count(now.total) : "";
    text += " samples";
  }
  return text;
}

void add_window(const train::WindowFigures& window, std::vector<std::string>& pieces) {
  const train::TaskFigures& task = window.tasks.front();
  pieces.push_back("NE " + figure(task.ne, 5));
  pieces.push_back(format_count(std::llround(window.samples_per_s)) + " samples/s");
  if (window.eta_s >= 0) {
    pieces.push_back(eta_text(window.eta_s));
  }
  pieces.push_back("loss " + figure(task.loss, 5));
  pieces.push_back("run NE " + figure(window.lifetime_ne.front(), 5));
  pieces.push_back(window.breakdown.text());
}

/// Starts a thread that takes no signal: stop requests are for the one that waits for them.
template <typename Body>
std::thread thread_without_signals(const Body& body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(body);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(seconds);
  const std::int64_t hours = all / 3600;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, all / 60 % 60, all % 60)
                   : fmt::format("{}:{:02}", all / 60, all % 60);
}

std::vector<std::string> progress_pieces(const ProgressState& state) {
  std::vector<std::string> pieces;
  if (state.trained) {
    pieces.push_back(step_text(*state.trained));
  }
  if (state.now.phase != Phase::kTraining) {
    pieces.push_back(phase_text(state.now));
    pieces.push_back(clock_text(state.now_s));
  } else if (state.window) {
    add_window(*state.window, pieces);
  } else {
    if (const std::int64_t samples = state.now.samples - state.samples_before;
        samples > 0 && state.now_s >= 1) {
      const double rate = static_cast<double>(samples) / state.now_s;
      pieces.push_back(format_count(std::llround(rate)) + " samples/s");
    }
    pieces.push_back(clock_text(state.now_s));
  }
  pieces.front().insert(0, state.mark);
  return pieces;
}

std::string fitted(std::span<const std::string> pieces, std::size_t columns) {
  std::string text = pieces.front().substr(0, columns);
  for (const std::string& piece : pieces.subspan(1)) {
    if (text.size() + 2 + piece.size() > columns) {
      break;
    }
    text += "  " + piece;
  }
  return text;
}

ProgressLine::ProgressLine(std::string mark) : terminal_(isatty(STDERR_FILENO) == 1) {
  state_.mark = std::move(mark);
  thread_ = thread_without_signals([this] { tick(); });
}

ProgressLine::~ProgressLine() {
  close();
  thread_.join();
}

train::ProgressSink ProgressLine::sink() {
  return {.on_activity = [this](const train::Activity& activity) { note(activity); },
          .on_window = [this](const train::WindowFigures& window) { note(window); },
          .on_eval = [this](const train::EvalFigures& eval) { show(eval); },
          .on_note =
              [this](const std::string& text) {
                const std::lock_guard lock(mutex_);
                line(text);
              }};
}

void ProgressLine::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    return;
  }
  closed_ = true;
  ended_.notify_all();
  if (!terminal_) {
    return;
  }
  show_status("");
  if (state_.trained) {
    state_.now = *state_.trained;
    write_error(fitted(progress_pieces(state_), columns()) + "\n");
  }
}

void ProgressLine::note(const train::Activity& activity) {
  const std::lock_guard lock(mutex_);
  const bool other = !std::exchange(began_, true) || activity.phase != state_.now.phase;
  state_.now = activity;
  if (activity.phase == Phase::kTraining) {
    state_.trained = activity;
  }
  if (other) {
    phase_begin_ = Clock::now();
    state_.samples_before = activity.samples;
    if (terminal_) {
      draw();
    }
  }
}

void ProgressLine::note(const train::WindowFigures& window) {
  const std::lock_guard lock(mutex_);
  state_.window = window;
  if (!terminal_) {
    train::Activity at = state_.now;
    at.done = window.step;
    at.total = window.total_steps;
    std::vector<std::string> pieces = {state_.mark + step_text(at)};
    add_window(window, pieces);
    line(fmt::format("{}", fmt::join(pieces, "  ")));
  } else if (Clock::now() >= shown_ + kPause) {
    draw();
  }
}

void ProgressLine::show(const train::EvalFigures& eval) {
  const std::lock_guard lock(mutex_);
  for (const train::TaskFigures& task : eval.tasks) {
    line(fmt::format("evaluation at step {}, {}: NE {}  AUC {}  calibration {}  {} samples",
                     eval.step, task.task, figure(task.ne, 5), figure(task.auc, 5),
                     figure(task.calibration, 4), format_count(task.samples)));
  }
}

/// One that stays. The caller holds the mutex.
void ProgressLine::line(const std::string& text) {
  write_error(text + "\n");
  shown_ = Clock::now();
}

/// The line as it is now. The caller holds the mutex.
void ProgressLine::draw() {
  shown_ = Clock::now();
  state_.now_s = std::chrono::duration<double>(shown_ - phase_begin_).count();
  const std::vector<std::string> pieces = progress_pieces(state_);
  if (terminal_) {
    show_status(fitted(pieces, columns()));
  } else {
    write_error(fmt::format("{}\n", fmt::join(pieces, "  ")));
  }
}

void ProgressLine::tick() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kTick, [this] { return closed_; })) {
    if (began_ && (terminal_ || Clock::now() >= shown_ + kPlainPause)) {
      draw();
    }
  }
}

}  // namespace weft::cli
