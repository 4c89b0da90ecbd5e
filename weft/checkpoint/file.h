/// Private to checkpoint/: files whose every failure is an Error(kCheckpoint) that names the file,
/// what was attempted and what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/file_system.h"

namespace weft::checkpoint {

/// A new file, written from front to back.
class OutputFile {
 public:
  OutputFile(io::FileSystem& files, std::string path);

  void write(const void* data, std::int64_t bytes);

  /// Returns when the data are on the disk.
  void finish();

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void sync_data();

  std::string path_;
  std::unique_ptr<io::File> file_;
  std::int64_t bytes_ = 0;
  std::int64_t synced_ = 0;  ///< of them on the disk
};

/// An existing file, read at any place.
class InputFile {
 public:
  InputFile(io::FileSystem& files, std::string path);

  void read(std::int64_t offset, void* data, std::int64_t bytes) const;

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<io::File> file_;
  std::int64_t bytes_ = 0;
};

/// All of a file of at most `limit` bytes.
std::string load_file(io::FileSystem& files, const std::string& path, std::int64_t limit);

/// A new file with this content, on the disk when it returns.
void create_file(io::FileSystem& files, const std::string& path, const std::string& content);

/// Makes a directory and those above it, as far as they are missing.
void create_directories(io::FileSystem& files, const std::string& path);

/// Makes a directory that must not exist.
void make_directory(io::FileSystem& files, const std::string& path);

/// Makes the names in a directory durable.
void sync_directory(io::FileSystem& files, const std::string& path);

void rename_file(io::FileSystem& files, const std::string& from, const std::string& to);

/// The names in a directory; none where it does not exist.
std::vector<std::string> list_directory(io::FileSystem& files, const std::string& path);

/// What a path is; a failure is not taken for its absence.
io::Kind kind_of(io::FileSystem& files, const std::string& path);

}  // namespace weft::checkpoint
