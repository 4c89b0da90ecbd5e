/// The file layer: the calls by which Weft writes what must not be lost.
///
/// A FileSystem has what a file system has, and no more: whoever writes files takes one as an
/// argument, so that tests can give it one that fails (tests/io/faulty_file_system.h). Calls return
/// what went wrong and do not throw: the caller knows what the file is for and says so.
///
/// What survives a crash of the machine: the bytes of a file up to its last sync(), and the names
/// of a directory up to its last sync_directory(). What was not synced may survive in part, and in
/// any order; one rename() survives whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft::io {

/// Ways to open a file.
enum class OpenMode {
  kRead,  ///< an existing regular file
  /// The same past the page cache (O_DIRECT): offsets, lengths and addresses of reads are multiples
  /// of 4096. Where the file system cannot, as tmpfs, it is kRead.
  kReadDirect,
  kReplace,    ///< for writing: a new file, or an existing one that loses its bytes
  kExclusive,  ///< for writing: a file that must not exist yet
};

/// An open file; its destructor closes it. Used by one thread at a time; read() by any.
class File {
 public:
  File() = default;
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Appends up to `bytes`; `written` of them are, which may be fewer without an error.
  [[nodiscard]] virtual std::error_code write(const void* data,
                                              std::int64_t bytes,
                                              std::int64_t& written) = 0;

  /// Reads up to `bytes` at `offset`; `got` 0 without an error is the end of the file.
  [[nodiscard]] virtual std::error_code read(std::int64_t offset,
                                             void* data,
                                             std::int64_t bytes,
                                             std::int64_t& got) const = 0;

  /// Returns when the bytes are on the disk.
  [[nodiscard]] virtual std::error_code sync() = 0;

  /// Closes the file, which reports errors of late writing. No other call may follow.
  [[nodiscard]] virtual std::error_code close() = 0;

  /// The operating system's number of the file, for reads that go there without read(); -1 where it
  /// has none, or must not be read otherwise.
  [[nodiscard]] virtual int descriptor() const { return -1; }
};

/// Whether a mode is for reading.
constexpr bool reads(OpenMode mode) {
  return mode == OpenMode::kRead || mode == OpenMode::kReadDirect;
}

/// An open file, or the error for which there is none.
struct Opened {
  std::unique_ptr<File> file;  ///< null with an error
  std::error_code error;
};

/// The names in a directory. With an error some may be missing.
struct Listed {
  std::vector<std::string> names;  ///< sorted, without "." and ".."
  std::error_code error;
};

/// Kinds of what a path names; kOther is a device, a pipe or a socket.
enum class Kind { kMissing, kFile, kDirectory, kOther };

/// The kind and size of what a path names. With an error `kind` says nothing.
struct Status {
  Kind kind = Kind::kMissing;  ///< kMissing is no error
  std::int64_t bytes = 0;      ///< of a file
  std::error_code error;
};

/// A lock of the operating system on a file: it goes with its holder's process, whatever ends it.
class Lock {
 public:
  Lock() = default;
  virtual ~Lock() = default;  ///< releases it
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  /// Whether the path still names the locked file. Where it does not, the lock keeps nobody out.
  [[nodiscard]] virtual bool is_current() const = 0;
};

/// Outcomes of FileSystem::lock(). kBusy: another holder has the lock; kUnsupported: the file
/// system has no locks.
enum class LockOutcome { kHeld, kBusy, kUnsupported, kFailed };

/// The outcome of FileSystem::lock(), with the lock or the error.
struct Locked {
  LockOutcome outcome = LockOutcome::kFailed;
  std::unique_ptr<Lock> lock;  ///< with kHeld
  std::error_code error;       ///< with kFailed
};

/// Thread-safe. Paths are absolute, or relative to the working folder.
class FileSystem {
 public:
  FileSystem() = default;
  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  /// Reading does not wait on a pipe or a device; they are an error (EINVAL), as directories are.
  [[nodiscard]] virtual Opened open(const std::string& path, OpenMode mode) = 0;

  /// Makes the names in a directory durable.
  [[nodiscard]] virtual std::error_code sync_directory(const std::string& path) = 0;

  /// Gives `from` the name `to` at once; a file, or an empty directory, of that name goes.
  [[nodiscard]] virtual std::error_code rename(const std::string& from, const std::string& to) = 0;

  /// Swaps two names at once. EINVAL or ENOSYS where the file system cannot (NFS).
  [[nodiscard]] virtual std::error_code exchange(const std::string& a, const std::string& b) = 0;

  /// Gives the file `from` a second name, which must not exist (EEXIST).
  [[nodiscard]] virtual std::error_code link(const std::string& from, const std::string& to) = 0;

  /// Removes a file or an empty directory; one with names in it is ENOTEMPTY or EEXIST.
  [[nodiscard]] virtual std::error_code remove(const std::string& path) = 0;

  /// Makes one directory, which must not exist (EEXIST), in one that does.
  [[nodiscard]] virtual std::error_code make_directory(const std::string& path) = 0;

  /// Lists the names in a directory.
  [[nodiscard]] virtual Listed list(const std::string& path) = 0;

  /// Looks at what a path names; a link is what it names. A missing file is no error.
  [[nodiscard]] virtual Status status(const std::string& path) = 0;

  /// Makes the file where it is missing, and locks it without waiting.
  [[nodiscard]] virtual Locked lock(const std::string& path) = 0;
};

/// Returns the file system of the operating system.
FileSystem& real_file_system();

/// Returns the error of an errno.
inline std::error_code error_of(int number) {
  return {number, std::generic_category()};
}

/// Returns "parent/name".
std::string join(const std::string& parent, std::string_view name);

/// Makes a directory and those above it, as far as they are missing, and their names durable.
std::error_code make_directories(FileSystem& files, const std::string& path);

/// Removes a file, or a directory and all that is in it. Goes on after an error and returns the
/// first; what is missing is none. `on_removed`, if there is one, hears of every name that was
/// tried: large directories take long.
std::error_code remove_all(FileSystem& files,
                           const std::string& path,
                           const std::function<void()>& on_removed = {});

/// A file with this content, on the disk when it returns without an error. Its name is durable
/// with sync_directory() of its parent.
std::error_code write_file(FileSystem& files,
                           const std::string& path,
                           std::string_view content,
                           OpenMode mode = OpenMode::kReplace);

/// All of a file of at most `limit` bytes (else EFBIG).
std::error_code read_file(FileSystem& files,
                          const std::string& path,
                          std::int64_t limit,
                          std::string& content);

/// Writes all of it, in as many calls as it takes. `written` counts what was.
std::error_code write_all(File& file, const void* data, std::int64_t bytes, std::int64_t& written);

/// What an error means in words, and what to do about it when writing: "No space left on device:
/// free space there or choose another directory".
std::string describe_write_error(const std::error_code& error);

}  // namespace weft::io
