#include "weft/base/log.h"

#include <atomic>
#include <mutex>

namespace weft {
namespace {

constexpr int kOff = static_cast<int>(LogLevel::kError) + 1;

/// Where messages go is a setting of the whole process, like standard error itself. It is the one
/// global of Weft; nothing that is computed depends on it.
struct LogState {
  std::atomic<int> level = kOff;
  std::mutex mutex;
  LogSink sink;
};

LogState& log_state() {
  // Never destroyed: a thread may still log while the process ends.
  static LogState* const state = new LogState;
  return *state;
}

}  // namespace

void set_log_sink(LogSink sink, LogLevel level) {
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  state.level.store(sink ? static_cast<int>(level) : kOff, std::memory_order_relaxed);
  state.sink = std::move(sink);
}

void set_log_level(LogLevel level) {
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  if (state.sink) {
    state.level.store(static_cast<int>(level), std::memory_order_relaxed);
  }
}

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) >= log_state().level.load(std::memory_order_relaxed);
}

void log_message(LogLevel level, std::string_view message) {
  LogState& state = log_state();
  const std::lock_guard lock(state.mutex);
  if (state.sink && log_enabled(level)) {
    state.sink(level, message);
  }
}

}  // namespace weft
