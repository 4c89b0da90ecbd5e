#include "weft/io/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <random>
#include <sstream>
#include <system_error>

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

namespace weft::io {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Field 22 of /proc/PID/stat; 0 where it cannot be read. The name before it may hold spaces.
std::int64_t start_of(std::int64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < 22; ++i) {
    fields >> skipped;
  }
  std::int64_t start = 0;
  fields >> start;
  return fields ? start : 0;
}

std::string process_space() {
  std::array<char, 64> text{};
  const ssize_t size = ::readlink("/proc/self/ns/pid", text.data(), text.size() - 1);
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

std::string host_name() {
  std::array<char, 256> text{};
  return ::gethostname(text.data(), text.size() - 1) == 0 ? std::string(text.data()) : "unknown";
}

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t count_of(rlim_t limit) {
  return limit == RLIM_INFINITY || limit > static_cast<rlim_t>(kUnlimited)
             ? kUnlimited
             : static_cast<std::int64_t>(limit);
}

/// Files that are open now; 0 where that cannot be read.
std::int64_t open_files() {
  std::error_code error;
  const std::filesystem::directory_iterator names("/proc/self/fd", error);
  return error ? 0 : std::distance(begin(names), end(names));
}

/// All claims of the process, since its limit is one.
struct Claims {
  std::mutex mutex;
  std::int64_t files = 0;
};

Claims& claims() {
  static Claims all;
  return all;
}

/// Raises the soft limit to `files` at least; false where it cannot.
bool raise_open_files(std::int64_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return true;  // unknown: whoever opens too many is told
  }
  if (count_of(limit.rlim_cur) >= files) {
    return true;
  }
  if (count_of(limit.rlim_max) < files) {
    return false;
  }
  limit.rlim_cur = static_cast<rlim_t>(files);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace

ProcessName this_process() {
  const auto pid = static_cast<std::int64_t>(::getpid());
  return {host_name(), first_line("/proc/sys/kernel/random/boot_id"), process_space(), pid,
          start_of(pid)};
}

Presence presence_of(const ProcessName& process) {
  const ProcessName own = this_process();
  const bool visible = !own.boot.empty() && !own.space.empty() && process.host == own.host &&
                       process.boot == own.boot && process.space == own.space && process.pid > 0;
  if (!visible) {
    return Presence::kUnknown;
  }
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) {
    return Presence::kGone;
  }
  const std::int64_t start = start_of(process.pid);
  if (start == 0 || process.start == 0) {
    return Presence::kUnknown;
  }
  return start == process.start ? Presence::kRuns : Presence::kGone;
}

OpenFileLimits open_file_limits() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return {kUnlimited, kUnlimited};
  }
  return {count_of(limit.rlim_cur), count_of(limit.rlim_max)};
}

OpenFileClaim::~OpenFileClaim() {
  const std::scoped_lock lock(claims().mutex);
  claims().files -= files_;
}

/// Files of claims that are open already count twice, which leaves room.
std::int64_t OpenFileClaim::set(std::int64_t files) {
  Claims& all = claims();
  const std::scoped_lock lock(all.mutex);
  const std::int64_t claimed = all.files - files_ + files;
  const std::int64_t needed = claimed + open_files() + kUnclaimedFiles;
  if (files > files_ && !raise_open_files(needed)) {
    return needed;
  }
  all.files = claimed;
  files_ = files;
  return 0;
}

std::uint64_t random_id() {
  std::random_device source;  // getrandom() and its like
  std::uint64_t id = 0;
  while (id == 0) {
    id = (static_cast<std::uint64_t>(source()) << 32) | source();
  }
  return id;
}

}  // namespace weft::io
