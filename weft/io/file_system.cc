#include "weft/io/file_system.h"

#include <cerrno>

#include <fmt/core.h>

namespace weft::io {
namespace {

bool is(const std::error_code& error, int number) {
  return error == error_of(number);
}

}  // namespace

std::string join(const std::string& parent, std::string_view name) {
  return fmt::format("{}{}{}", parent, parent.ends_with('/') ? "" : "/", name);
}

std::error_code make_directories(FileSystem& files, const std::string& path) {
  const Status status = files.status(path);
  if (status.error || status.kind == Kind::kDirectory) {
    return status.error;
  }
  if (status.kind != Kind::kMissing) {
    return error_of(ENOTDIR);
  }
  const std::size_t end = path.find_last_not_of('/');
  const std::size_t cut = end == std::string::npos ? end : path.rfind('/', end);
  const std::string parent = cut == std::string::npos ? "." : path.substr(0, cut + 1);
  if (cut != std::string::npos && cut > 0) {
    if (const auto error = make_directories(files, path.substr(0, cut))) {
      return error;
    }
  }
  if (const auto error = files.make_directory(path)) {
    // Another process may have been first.
    return is(error, EEXIST) ? std::error_code() : error;
  }
  const std::error_code error = files.sync_directory(parent);
  // A parent that may be passed through and not read cannot be synced by this user.
  return is(error, EACCES) ? std::error_code() : error;
}

std::error_code remove_all(FileSystem& files,
                           const std::string& path,
                           const std::function<void()>& on_removed) {
  // First as it stands: a link to a directory goes, and what it names does not.
  std::error_code error = files.remove(path);
  if (on_removed) {
    on_removed();
  }
  if (!is(error, ENOTEMPTY) && !is(error, EEXIST)) {
    return is(error, ENOENT) ? std::error_code() : error;
  }
  const Listed listed = files.list(path);
  std::error_code first = listed.error;
  for (const std::string& name : listed.names) {
    error = remove_all(files, join(path, name), on_removed);
    first = first ? first : error;
  }
  error = files.remove(path);
  return first ? first : is(error, ENOENT) ? std::error_code() : error;
}

std::error_code write_all(File& file, const void* data, std::int64_t bytes, std::int64_t& written) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    std::int64_t count = 0;
    if (const auto error = file.write(next, bytes, count)) {
      return error;
    }
    if (count <= 0) {
      return error_of(ENOSPC);
    }
    next += count;
    bytes -= count;
    written += count;
  }
  return {};
}

std::error_code write_file(FileSystem& files,
                           const std::string& path,
                           std::string_view content,
                           OpenMode mode) {
  const Opened opened = files.open(path, mode);
  if (opened.error) {
    return opened.error;
  }
  std::int64_t written = 0;
  const auto bytes = static_cast<std::int64_t>(content.size());
  if (const auto error = write_all(*opened.file, content.data(), bytes, written)) {
    return error;
  }
  if (const auto error = opened.file->sync()) {
    return error;
  }
  return opened.file->close();
}

std::error_code read_file(FileSystem& files,
                          const std::string& path,
                          std::int64_t limit,
                          std::string& content) {
  constexpr std::int64_t kPiece = 1 << 16;
  const Opened opened = files.open(path, OpenMode::kRead);
  if (opened.error) {
    return opened.error;
  }
  content.clear();
  for (;;) {
    const std::size_t begin = content.size();
    content.resize(begin + kPiece);
    std::int64_t got = 0;
    const auto error =
        opened.file->read(static_cast<std::int64_t>(begin), content.data() + begin, kPiece, got);
    content.resize(begin + static_cast<std::size_t>(got));
    if (error || got == 0) {
      return error;
    }
    if (static_cast<std::int64_t>(content.size()) > limit) {
      return error_of(EFBIG);
    }
  }
}

std::string describe_write_error(const std::error_code& error) {
  const std::string text = error.message();
  switch (error.value()) {
    case ENOSPC:
    case EDQUOT:
      return text + ": free space there or choose another directory";
    case EFBIG:
      return text + ": the limit on file sizes (ulimit -f) is too low";
    case EACCES:
    case EPERM:
    case EROFS:
      return text + ": choose a directory that this user may write to";
    case EMFILE:
    case ENFILE:
      return text + ": raise the limit on open files (ulimit -n)";
    default:
      return text + ": check the disk and the directory";
  }
}

}  // namespace weft::io
