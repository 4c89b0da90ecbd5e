#include "weft/storage/store_directories.h"

#include <algorithm>
#include <cerrno>

#include <fmt/core.h>

#include "weft/base/error.h"
#include "weft/io/process.h"
#include "weft/storage/segment_store.h"

namespace weft::storage {
namespace {

constexpr std::string_view kLockName = "rows.lock";
constexpr std::string_view kSegmentPrefix = "rows-";
constexpr std::string_view kSegmentSuffix = ".seg";
constexpr std::size_t kNonceDigits = 16;

bool are_digits(std::string_view text, std::string_view digits) {
  return text.find_first_not_of(digits) == std::string_view::npos;
}

[[noreturn]] void fail_taken(const std::string& directory, const io::Holder& holder) {
  const std::string who = holder.nonce == 0
                              ? std::string("its lock cannot be read")
                              : fmt::format("process {} on host '{}' ({})", holder.process.pid,
                                            holder.process.host, holder.label);
  fail(ErrorCode::kIo,
       "another job keeps rows in '{}': {}; wait until it has ended, or end it, or give another "
       "directory. The lock goes with its process: no file has to be removed",
       directory, who);
}

/// Removes the segments in a directory whose lock is held.
void remove_segments(io::FileSystem& files, const std::string& directory) {
  const io::Listed listed = files.list(directory);
  if (listed.error) {
    fail(ErrorCode::kIo, "cannot list the directory for rows '{}': {}: check it", directory,
         listed.error.message());
  }
  for (const std::string& name : listed.names) {
    if (!is_segment_name(name)) {
      continue;
    }
    const std::string path = io::join(directory, name);
    const auto error = files.remove(path);
    if (error && error != io::error_of(ENOENT)) {
      fail(ErrorCode::kIo, "cannot remove '{}', which an earlier job has left: {}", path,
           io::describe_write_error(error));
    }
  }
}

}  // namespace

bool is_segment_name(std::string_view name) {
  if (!name.starts_with(kSegmentPrefix) || !name.ends_with(kSegmentSuffix)) {
    return false;
  }
  name.remove_prefix(kSegmentPrefix.size());
  name.remove_suffix(std::min(name.size(), kSegmentSuffix.size()));
  return name.size() > kNonceDigits + 1 && name[kNonceDigits] == '-' &&
         are_digits(name.substr(0, kNonceDigits), "0123456789abcdef") &&
         are_digits(name.substr(kNonceDigits + 1), "0123456789");
}

StoreDirectories::StoreDirectories(io::FileSystem& files, const SegmentStoreOptions& options)
    : files_(files), nonce_(io::random_id()) {
  WEFT_CHECK(!options.directories.empty());
  for (const std::string& path : options.directories) {
    if (const auto error = io::make_directories(files_, path)) {
      fail(ErrorCode::kIo, "cannot make the directory for rows '{}': {}", path,
           io::describe_write_error(error));
    }
    io::TakenLock taken =
        io::LockFile::take(files_, {io::join(path, kLockName), options.lock_timeout_s});
    if (taken.error == io::error_of(EAGAIN)) {
      fail_taken(path, taken.holder);
    }
    if (taken.error) {
      fail(ErrorCode::kIo, "cannot lock the directory for rows '{}': {}", path,
           io::describe_write_error(taken.error));
    }
    taken.lock->set_label(options.label);
    directories_.push_back({path, std::move(taken.lock)});
  }
  for (const Directory& directory : directories_) {
    remove_segments(files_, directory.path);
  }
}

std::string StoreDirectories::next_path() {
  const Directory& directory = directories_[names_ % directories_.size()];
  if (directory.lock->hold() == io::Hold::kLost) {
    fail(ErrorCode::kIo,
         "the lock on '{}' is lost: a person has removed it, or another job has taken the "
         "directory for rows over; give each job a directory of its own",
         directory.path);
  }
  return io::join(directory.path, fmt::format("{}{:016x}-{:08}{}", kSegmentPrefix, nonce_, names_++,
                                              kSegmentSuffix));
}

bool remove_dead_store(io::FileSystem& files, const std::string& directory) {
  {
    const io::TakenLock taken = io::LockFile::take(
        files, {.path = io::join(directory, kLockName), .patience = io::Patience::kTakeItToRun});
    if (taken.error == io::error_of(EAGAIN)) {
      return false;
    }
    if (taken.error) {
      fail(ErrorCode::kIo, "cannot lock '{}', which an earlier job has left: {}", directory,
           io::describe_write_error(taken.error));
    }
    taken.lock->set_label("removing what an earlier job has left");
    remove_segments(files, directory);
  }
  const auto error = files.remove(directory);
  if (error && error != io::error_of(ENOENT) && error != io::error_of(ENOTEMPTY) &&
      error != io::error_of(EEXIST)) {
    fail(ErrorCode::kIo, "cannot remove '{}', which an earlier job has left: {}", directory,
         io::describe_write_error(error));
  }
  return !error;
}

void StoreDirectories::sync() {
  for (const Directory& directory : directories_) {
    if (const auto error = files_.sync_directory(directory.path)) {
      fail(ErrorCode::kIo, "cannot write the names in '{}' to the disk: {}", directory.path,
           io::describe_write_error(error));
    }
  }
}

}  // namespace weft::storage
