#include "weft/checkpoint/file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "weft/base/error.h"
#include "weft/base/text.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kUnsyncedBytes = std::int64_t{256} << 20;

constexpr const char* kDamaged = "restore the checkpoint from a copy or resume from another one";

bool is(const std::error_code& error, int number) {
  return error == std::error_code(number, std::generic_category());
}

[[noreturn]] void fail_write(const char* what,
                             const std::string& path,
                             const std::error_code& error) {
  fail(ErrorCode::kCheckpoint, "cannot {} '{}': {}; earlier checkpoints are as they were", what,
       path, io::describe_write_error(error));
}

void check_write(const char* what, const std::string& path, const std::error_code& error) {
  if (error) {
    fail_write(what, path, error);
  }
}

}  // namespace

OutputFile::OutputFile(io::FileSystem& files, std::string path) : path_(std::move(path)) {
  io::Opened opened = files.open(path_, io::OpenMode::kReplace);
  check_write("create", path_, opened.error);
  file_ = std::move(opened.file);
}

void OutputFile::write(const void* data, std::int64_t bytes) {
  if (const auto error = io::write_all(*file_, data, bytes, bytes_)) {
    fail(ErrorCode::kCheckpoint,
         "cannot write '{}' beyond its first {}: {}; earlier checkpoints are as they were", path_,
         format_bytes(static_cast<std::uint64_t>(bytes_)), io::describe_write_error(error));
  }
  if (bytes_ - synced_ >= kUnsyncedBytes) {
    sync_data();
  }
}

/// So that finish() has little left to do: a sync shows no progress, and a rank without is given
/// up.
void OutputFile::sync_data() {
  check_write("write to disk", path_, file_->sync());
  synced_ = bytes_;
}

void OutputFile::finish() {
  check_write("write to disk", path_, file_->sync());
  check_write("close", path_, file_->close());
}

InputFile::InputFile(io::FileSystem& files, std::string path) : path_(std::move(path)) {
  const io::Status status = files.status(path_);
  if (!status.error && status.kind != io::Kind::kFile && status.kind != io::Kind::kMissing) {
    fail(ErrorCode::kCheckpoint, "'{}' is not a regular file; {}", path_, kDamaged);
  }
  io::Opened opened = files.open(path_, io::OpenMode::kRead);
  const std::error_code error = opened.error ? opened.error : status.error;
  if (error) {
    fail(ErrorCode::kCheckpoint, "cannot open '{}': {}; {}", path_, error.message(), kDamaged);
  }
  file_ = std::move(opened.file);
  bytes_ = status.bytes;
}

void InputFile::read(std::int64_t offset, void* data, std::int64_t bytes) const {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    std::int64_t got = 0;
    const std::error_code error = file_->read(offset, next, bytes, got);
    if (error || got == 0) {
      fail(ErrorCode::kCheckpoint, "cannot read {} bytes of '{}' at offset {}: {}; {}", bytes,
           path_, offset, error ? error.message() : "the file ends there", kDamaged);
    }
    next += got;
    bytes -= got;
    offset += got;
  }
}

std::string load_file(io::FileSystem& files, const std::string& path, std::int64_t limit) {
  const InputFile file(files, path);
  if (file.bytes() > limit) {
    fail(ErrorCode::kCheckpoint, "'{}' has {} bytes, more than the {} such a file may have; {}",
         path, file.bytes(), limit, kDamaged);
  }
  std::string content(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, content.data(), file.bytes());
  return content;
}

void create_file(io::FileSystem& files, const std::string& path, const std::string& content) {
  OutputFile file(files, path);
  file.write(content.data(), static_cast<std::int64_t>(content.size()));
  file.finish();
}

void create_directories(io::FileSystem& files, const std::string& path) {
  check_write("create the directory", path, io::make_directories(files, path));
}

void make_directory(io::FileSystem& files, const std::string& path) {
  check_write("create the directory", path, files.make_directory(path));
}

void sync_directory(io::FileSystem& files, const std::string& path) {
  check_write("write to disk the directory", path, files.sync_directory(path));
}

void rename_file(io::FileSystem& files, const std::string& from, const std::string& to) {
  if (const auto error = files.rename(from, to)) {
    fail(ErrorCode::kCheckpoint,
         "cannot rename '{}' to '{}': {}; earlier checkpoints are as they were", from, to,
         io::describe_write_error(error));
  }
}

std::vector<std::string> list_directory(io::FileSystem& files, const std::string& path) {
  const io::Listed listed = files.list(path);
  if (listed.error && !is(listed.error, ENOENT) && !is(listed.error, ENOTDIR)) {
    fail(ErrorCode::kCheckpoint,
         "cannot read the directory '{}': {}; which checkpoints are there is not known, so nothing "
         "is done: check the directory and its permissions",
         path, listed.error.message());
  }
  return listed.names;
}

io::Kind kind_of(io::FileSystem& files, const std::string& path) {
  const io::Status status = files.status(path);
  if (status.error) {
    fail(ErrorCode::kCheckpoint, "cannot look at '{}': {}; check the disk and the permissions",
         path, status.error.message());
  }
  return status.kind;
}

}  // namespace weft::checkpoint
