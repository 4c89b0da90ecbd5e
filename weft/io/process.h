/// Who a process is, for others to find out whether it still runs; how many files it may have open;
/// and numbers nobody else has.
#pragma once

#include <cstdint>
#include <string>

namespace weft::io {

/// Names one process of all machines, for as long as it runs.
struct ProcessName {
  std::string host;
  std::string boot;   ///< id of the machine's present run, from the kernel
  std::string space;  ///< in which pid is a number: containers have their own
  std::int64_t pid = 0;
  std::int64_t start = 0;  ///< in ticks since boot: numbers of ended processes are used again

  friend bool operator==(const ProcessName&, const ProcessName&) = default;
};

/// Returns the name of the calling process, from /proc. A part that cannot be read is empty or 0.
ProcessName this_process();

/// Answers of presence_of().
enum class Presence { kRuns, kGone, kUnknown };

/// Says whether a process still runs. kUnknown where this one cannot see it: another host, another
/// run of the machine, another container.
Presence presence_of(const ProcessName& process);

/// How many files this process may have open at a time.
struct OpenFileLimits {
  std::int64_t soft = 0;  ///< that holds now
  std::int64_t hard = 0;  ///< up to which the process may raise it
};

/// Returns the limits. Without one the number is the largest there is.
OpenFileLimits open_file_limits();

/// What a process keeps of its limit for files that nobody claims: those that are open already, and
/// so many more.
inline constexpr std::int64_t kUnclaimedFiles = 128;

/// A claim of files that will stay open for long, so that the limit is raised before it is met, and
/// a limit that cannot be raised is known before the work begins. Claims of a process add up.
/// Thread-safe between claims; one claim is used by one thread at a time.
class OpenFileClaim {
 public:
  OpenFileClaim() = default;
  ~OpenFileClaim();  ///< gives the claim up, and leaves the limit as it is
  OpenFileClaim(const OpenFileClaim&) = delete;
  OpenFileClaim& operator=(const OpenFileClaim&) = delete;

  /// Claims `files` from now on, in place of what was claimed before, and raises the soft limit
  /// where it must. Returns the limit that all claims and kUnclaimedFiles need where the process
  /// cannot have it, and claims nothing more then; else 0.
  [[nodiscard]] std::int64_t set(std::int64_t files);

 private:
  std::int64_t files_ = 0;
};

/// A random number other than 0, from the operating system. Nothing that is computed depends on
/// such a number; it tells apart what must not be taken for each other.
std::uint64_t random_id();

}  // namespace weft::io
