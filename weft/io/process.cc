#include "weft/io/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/core.h>
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

std::uint64_t random_id() {
  std::random_device source;  // getrandom() and its like
  std::uint64_t id = 0;
  while (id == 0) {
    id = (static_cast<std::uint64_t>(source()) << 32) | source();
  }
  return id;
}

}  // namespace weft::io
