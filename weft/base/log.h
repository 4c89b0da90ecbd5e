/// Logging. Messages go to one sink that the program sets (the command line sets standard error);
/// without one they are dropped. Thread-safe. Never per row or per sample.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace weft {

/// Levels of messages, the least important first.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink; messages below `level` are not formatted.
void set_log_sink(LogSink sink, LogLevel level = LogLevel::kInfo);

/// Changes the level alone; nothing is logged while there is no sink.
void set_log_level(LogLevel level);
/// Says whether a message of this level reaches the sink. Cost: one atomic load.
bool log_enabled(LogLevel level);
/// Gives a message to the sink, one at a time over all threads; so a sink must not log.
void log_message(LogLevel level, std::string_view message);

/// Formats a message and gives it to the sink where the level is enabled; does nothing otherwise.
template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) {
    log_message(level, fmt::format(format, std::forward<Args>(args)...));
  }
}

/// Logs at level kInfo.
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}

/// Logs at level kWarning.
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}

}  // namespace weft
