#include "cli/output.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include "weft/base/error.h"

namespace weft::cli {
namespace {

constexpr std::string_view kClearRow = "\r\033[K";

std::mutex terminal_mutex;    // of standard error and of
std::string terminal_status;  // what its last row shows

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void open_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
      // The lowest free number, which is this one.
      [[maybe_unused]] const int opened = ::open("/dev/null", O_RDWR);
    }
  }
}

void write_error(std::string_view text) {
  const std::lock_guard lock(terminal_mutex);
  if (terminal_status.empty()) {
    put(text);
  } else {
    put(std::string(kClearRow).append(text).append(terminal_status));
  }
}

void show_status(std::string_view text) {
  const std::lock_guard lock(terminal_mutex);
  if (text != terminal_status) {
    terminal_status = text;
    put(std::string(kClearRow).append(text));
  }
}

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail(ErrorCode::kIo, "cannot write to standard output: {}", std::strerror(errno));
  }
}

std::string figure(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : std::string("-");
}

}  // namespace weft::cli
