/// Private to data/: a file's bytes, mapped read-only, also where the file changes under it.
///
/// A file that is cut while it is mapped loses pages, and reading one of these is the signal
/// SIGBUS, which would end the process without a word. A handler puts pages of zeros in their place
/// and notes the file, so that reading goes on, and whoever reads asks check() after it. What
/// bytes() shows may therefore change at any time, as it does when a file is written over in place:
/// it must be used within bounds whatever it is. Why not read() into buffers: a shuffled sample has
/// some forty values, each elsewhere, and a system call for each costs several times what mapping
/// them does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include <sys/types.h>

namespace weft::data {

class MappedFile {
 public:
  /// Throws Error(kData) where the file cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Throws Error(kData) with the file's name where pages of it were gone when they were read.
  void check() const;

  /// How often pages were found gone, of all files of the process: while it stays, so does every
  /// check(). From any thread.
  static std::uint64_t lost_pages();

  enum class Change {
    kNone,
    kWritten,   ///< the file that is mapped has another time of change or size
    kReplaced,  ///< the name is another file's by now, or nobody's; what is mapped stays
  };

  /// Since it was opened, or since the last kWritten. Throws Error(kData) where the file has become
  /// shorter.
  Change find_change();

 private:
  struct Range;

  std::string path_;
  std::span<const std::byte> bytes_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  off_t size_ = 0;
  timespec changed_{};
  Range* range_ = nullptr;  // what the handler knows of it; of an empty file null

  friend class BusErrors;
};

}  // namespace weft::data
