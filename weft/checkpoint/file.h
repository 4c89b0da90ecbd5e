/// Private to checkpoint/: files whose every failure is an Error(kCheckpoint) that names the file,
/// what was attempted and what to do.
#pragma once

#include <cstdint>
#include <string>

namespace weft::checkpoint {

/// A new file, written from front to back.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::int64_t bytes);

  /// Returns when the data are on the disk.
  void finish();

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void sync_data();

  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::int64_t synced_ = 0;  ///< of them on the disk
};

/// An existing file, read at any place.
class InputFile {
 public:
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void read(std::int64_t offset, void* data, std::int64_t bytes) const;

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

/// All of a file of at most `limit` bytes.
std::string read_file(const std::string& path, std::int64_t limit);

/// A new file with this content, on the disk when it returns.
void write_file(const std::string& path, const std::string& content);

void make_directories(const std::string& path);

/// Makes the names in a directory durable.
void sync_directory(const std::string& path);

void rename_file(const std::string& from, const std::string& to);

/// Gives the directory `from` the name `to`. A directory that has this name already gets the name
/// `from`, in the same instant where the file system can.
void exchange_directory(const std::string& from, const std::string& to);

/// Removes a directory and what is in it, or a file, as far as possible; never throws.
void remove_directory(const std::string& path) noexcept;

bool file_exists(const std::string& path);

}  // namespace weft::checkpoint
