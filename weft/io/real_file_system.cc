// The file system of the operating system.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/io/file_system.h"

namespace weft::io {
namespace {

/// What a call that returned `result` says.
std::error_code check(int result) {
  return result == 0 ? std::error_code() : error_of(errno);
}

int open_descriptor(const std::string& path, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

int flags_of(OpenMode mode) {
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY | O_NONBLOCK;
    case OpenMode::kReadDirect:
      return O_RDONLY | O_NONBLOCK | O_DIRECT;
    case OpenMode::kReplace:
      return O_WRONLY | O_CREAT | O_TRUNC;
    default:
      return O_WRONLY | O_CREAT | O_EXCL;
  }
}

class RealFile : public File {
 public:
  explicit RealFile(int descriptor) : descriptor_(descriptor) {}

  ~RealFile() override {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }

  std::error_code write(const void* data, std::int64_t bytes, std::int64_t& written) override {
    ssize_t count = -1;
    do {
      count = ::write(descriptor_, data, static_cast<std::size_t>(bytes));
    } while (count < 0 && errno == EINTR);
    written = std::max<std::int64_t>(count, 0);
    return count < 0 ? error_of(errno) : std::error_code();
  }

  std::error_code read(std::int64_t offset,
                       void* data,
                       std::int64_t bytes,
                       std::int64_t& got) const override {
    ssize_t count = -1;
    do {
      count = ::pread(descriptor_, data, static_cast<std::size_t>(bytes), offset);
    } while (count < 0 && errno == EINTR);
    got = std::max<std::int64_t>(count, 0);
    return count < 0 ? error_of(errno) : std::error_code();
  }

  std::error_code sync() override { return check(::fsync(descriptor_)); }

  std::error_code close() override { return check(::close(std::exchange(descriptor_, -1))); }

  [[nodiscard]] int descriptor() const override { return descriptor_; }

 private:
  int descriptor_;
};

/// A lock of an open file description (F_OFD_SETLK): NFS passes it on to its server, and other
/// threads of this process are kept out too.
class RealLock : public Lock {
 public:
  RealLock(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  ~RealLock() override { ::close(descriptor_); }

  [[nodiscard]] bool is_current() const override {
    struct stat own{};
    struct stat named{};
    return ::fstat(descriptor_, &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
  }

 private:
  int descriptor_;
  std::string path_;
};

LockOutcome outcome_of(int number) {
  switch (number) {
    case EAGAIN:
    case EACCES:
      return LockOutcome::kBusy;
    case ENOLCK:
    case ENOSYS:
    case EOPNOTSUPP:
    case EINVAL:
      return LockOutcome::kUnsupported;
    default:
      return LockOutcome::kFailed;
  }
}

class RealFileSystem : public FileSystem {
 public:
  Opened open(const std::string& path, OpenMode mode) override {
    int descriptor = open_descriptor(path, flags_of(mode));
    if (descriptor < 0 && errno == EINVAL && mode == OpenMode::kReadDirect) {
      mode = OpenMode::kRead;
      descriptor = open_descriptor(path, flags_of(mode));
    }
    if (descriptor < 0) {
      return {nullptr, error_of(errno)};
    }
    auto file = std::make_unique<RealFile>(descriptor);
    struct stat status{};
    if (reads(mode) && ::fstat(descriptor, &status) != 0) {
      return {nullptr, error_of(errno)};
    }
    if (reads(mode) && !S_ISREG(status.st_mode)) {
      return {nullptr, error_of(EINVAL)};
    }
    return {std::move(file), {}};
  }

  std::error_code sync_directory(const std::string& path) override {
    const int descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
    if (descriptor < 0) {
      return error_of(errno);
    }
    std::error_code error = check(::fsync(descriptor));
    ::close(descriptor);
    // Some file systems have nothing to sync in a directory and say EINVAL.
    return error == error_of(EINVAL) ? std::error_code() : error;
  }

  std::error_code rename(const std::string& from, const std::string& to) override {
    return check(std::rename(from.c_str(), to.c_str()));
  }

  std::error_code exchange(const std::string& a, const std::string& b) override {
    return check(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
  }

  std::error_code link(const std::string& from, const std::string& to) override {
    return check(::link(from.c_str(), to.c_str()));
  }

  std::error_code remove(const std::string& path) override {
    return check(std::remove(path.c_str()));
  }

  std::error_code make_directory(const std::string& path) override {
    return check(::mkdir(path.c_str(), 0777));
  }

  Listed list(const std::string& path) override {
    Listed out;
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) {
      out.error = error_of(errno);
      return out;
    }
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        out.names.push_back(name);
      }
      errno = 0;
    }
    out.error = errno != 0 ? error_of(errno) : std::error_code();
    ::closedir(directory);
    std::sort(out.names.begin(), out.names.end());
    return out;
  }

  Status status(const std::string& path) override {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) {
      const bool missing = errno == ENOENT || errno == ENOTDIR;
      return {Kind::kMissing, 0, missing ? std::error_code() : error_of(errno)};
    }
    const Kind kind = S_ISREG(status.st_mode)   ? Kind::kFile
                      : S_ISDIR(status.st_mode) ? Kind::kDirectory
                                                : Kind::kOther;
    return {kind, status.st_size, {}};
  }

  Locked lock(const std::string& path) override {
    // Who held it may have removed the file since it was opened here; then there is a new one.
    constexpr int kAttempts = 100;
    for (int i = 0; i < kAttempts; ++i) {
      const int descriptor = open_descriptor(path, O_RDWR | O_CREAT);
      if (descriptor < 0) {
        return {LockOutcome::kFailed, nullptr, error_of(errno)};
      }
      auto lock = std::make_unique<RealLock>(descriptor, path);
      struct flock whole{};
      whole.l_type = F_WRLCK;
      whole.l_whence = SEEK_SET;
      if (::fcntl(descriptor, F_OFD_SETLK, &whole) != 0) {
        const int number = errno;
        struct stat status{};
        if (outcome_of(number) == LockOutcome::kUnsupported && ::fstat(descriptor, &status) == 0 &&
            status.st_size == 0) {
          ::unlink(path.c_str());  // it was made for nothing
        }
        return {outcome_of(number), nullptr, error_of(number)};
      }
      if (lock->is_current()) {
        return {LockOutcome::kHeld, std::move(lock), {}};
      }
    }
    return {LockOutcome::kBusy, nullptr, error_of(EAGAIN)};
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem files;
  return files;
}

}  // namespace weft::io
