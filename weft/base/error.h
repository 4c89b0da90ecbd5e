/// Errors. One exception type with a code; thrown where the fact is known, caught at the command
/// line and at stream boundaries. A message says what was attempted, the values, where (file:line,
/// table, feature, sample, rank) and what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace weft {

/// What went wrong. The command line turns a code into its exit status (cli/exit_code.h).
enum class ErrorCode {
  kInternal,    ///< an invariant of ours; a bug
  kUsage,       ///< a flag or a call's arguments
  kConfig,      ///< a configuration value
  kData,        ///< input data
  kComm,        ///< a peer, a link, or ranks out of step
  kTimeout,     ///< a peer did not arrive in time
  kCheckpoint,  ///< a checkpoint cannot be written or read
  kLockLost,    ///< the folder for checkpoints is no longer this job's; nothing brings it back
  kNonFinite,   ///< training produced a non-finite value
  kIo,          ///< any other file
  kResource,    ///< memory or another limit of the machine
};

/// The code's name as in messages and summaries, e.g. "kData" gives "data".
std::string_view to_string(ErrorCode code);

/// The exception that Weft throws: a code, a message as described above, and the rank on which it
/// began, where that is known.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int origin_rank = -1);

  [[nodiscard]] ErrorCode code() const { return code_; }

  /// The rank on which the error began, -1 where it is not known to be a rank's.
  [[nodiscard]] int origin_rank() const { return origin_rank_; }

 private:
  ErrorCode code_;
  int origin_rank_;
};

/// Throws Error(code) with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws the Error(kInternal) of WEFT_CHECK, naming file, line and expression; called by that
/// macro alone.
[[noreturn]] void check_failed(const char* expression,
                               const char* file,
                               int line,
                               const std::string& message);

}  // namespace weft

/// Checks an invariant of ours, never input. Throws Error(kInternal) with the expression where it
/// does not hold; after the condition may stand a format string, as a literal, and its values.
#define WEFT_CHECK(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition)) [[unlikely]] {                                                       \
      ::weft::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                      \
  } while (false)
