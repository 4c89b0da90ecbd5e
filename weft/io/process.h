/// Who a process is, for others to find out whether it still runs; and numbers nobody else has.
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

/// A random number other than 0, from the operating system. Nothing that is computed depends on
/// such a number; it tells apart what must not be taken for each other.
std::uint64_t random_id();

}  // namespace weft::io
