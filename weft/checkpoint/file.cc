#include "weft/checkpoint/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kUnsyncedBytes = std::int64_t{256} << 20;

constexpr const char* kDamaged = "restore the checkpoint from a copy or resume from another one";

/// What errno `number` means and what to do about it when writing.
std::string reason(int number) {
  std::string text = std::generic_category().message(number);
  switch (number) {
    case ENOSPC:
    case EDQUOT:
      return text + ": free space there or choose another directory for checkpoints";
    case EFBIG:
      return text + ": the limit on file sizes (ulimit -f) is too low for this checkpoint";
    case EACCES:
    case EPERM:
    case EROFS:
      return text + ": choose a directory that this user may write to";
    default:
      return text + ": check the disk and the directory for checkpoints";
  }
}

[[noreturn]] void fail_write(const char* what, const std::string& path, int number) {
  fail(ErrorCode::kCheckpoint, "cannot {} '{}': {}; earlier checkpoints are as they were", what,
       path, reason(number));
}

int open_for_reading(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail_write("create", path_, errno);
  }
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void OutputFile::write(const void* data, std::int64_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      const int number = written < 0 ? errno : ENOSPC;
      fail(ErrorCode::kCheckpoint,
           "cannot write '{}' beyond its first {}: {}; earlier checkpoints are as they were", path_,
           format_bytes(static_cast<std::uint64_t>(bytes_)), reason(number));
    }
    next += written;
    bytes -= written;
    bytes_ += written;
    if (bytes_ - synced_ >= kUnsyncedBytes) {
      sync_data();
    }
  }
}

/// So that finish() has little left to do: a sync shows no progress, and a rank without is given
/// up.
void OutputFile::sync_data() {
  if (::fdatasync(descriptor_) != 0) {
    fail_write("write to disk", path_, errno);
  }
  synced_ = bytes_;
}

void OutputFile::finish() {
  if (::fsync(descriptor_) != 0) {
    fail_write("write to disk", path_, errno);
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) {
    fail_write("close", path_, errno);
  }
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK the open of a FIFO waits for somebody who writes to it.
  descriptor_ = open_for_reading(path_, O_NONBLOCK);
  struct stat status{};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int number = errno;
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    fail(ErrorCode::kCheckpoint, "cannot open '{}': {}; {}", path_,
         std::generic_category().message(number), kDamaged);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(ErrorCode::kCheckpoint, "'{}' is not a regular file; {}", path_, kDamaged);
  }
  bytes_ = status.st_size;
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read(std::int64_t offset, void* data, std::int64_t bytes) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, next, static_cast<std::size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      fail(ErrorCode::kCheckpoint, "cannot read {} bytes of '{}' at offset {}: {}; {}", bytes,
           path_, offset, got < 0 ? std::generic_category().message(errno) : "the file ends there",
           kDamaged);
    }
    next += got;
    bytes -= got;
    offset += got;
  }
}

std::string read_file(const std::string& path, std::int64_t limit) {
  const InputFile file(path);
  if (file.bytes() > limit) {
    fail(ErrorCode::kCheckpoint, "'{}' has {} bytes, more than the {} such a file may have; {}",
         path, file.bytes(), limit, kDamaged);
  }
  std::string content(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, content.data(), file.bytes());
  return content;
}

void write_file(const std::string& path, const std::string& content) {
  OutputFile file(path);
  file.write(content.data(), static_cast<std::int64_t>(content.size()));
  file.finish();
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    fail_write("create the directory", path, error.value());
  }
}

void sync_directory(const std::string& path) {
  const int descriptor = open_for_reading(path, O_DIRECTORY);
  if (descriptor < 0) {
    fail_write("open the directory", path, errno);
  }
  const int result = ::fsync(descriptor);
  const int number = errno;
  ::close(descriptor);
  // Some file systems have nothing to sync in a directory and say EINVAL.
  if (result != 0 && number != EINVAL) {
    fail_write("write to disk the directory", path, number);
  }
}

void rename_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    fail(ErrorCode::kCheckpoint, "cannot rename '{}' to '{}': {}", from, to, reason(errno));
  }
}

void exchange_directory(const std::string& from, const std::string& to) {
  if (!file_exists(to)) {
    rename_file(from, to);
    return;
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    fail(ErrorCode::kCheckpoint, "cannot exchange '{}' and '{}': {}", from, to, reason(errno));
  }
  // A file system without the exchange: for an instant the old one has a third name only.
  const std::string aside = from + ".old";
  rename_file(to, aside);
  rename_file(from, to);
  rename_file(aside, from);
}

void remove_directory(const std::string& path) noexcept {
  try {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  } catch (...) {  // NOLINT(bugprone-empty-catch): what stays is removed by the next save
  }
}

bool file_exists(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace weft::checkpoint
