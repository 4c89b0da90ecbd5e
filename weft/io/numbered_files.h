// Private to io/: what the forms of BlockReads share: files by numbers, one read from end to end,
// and the first fault of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "weft/io/block_reads.h"
#include "weft/io/file_system.h"

namespace weft::io {

struct NumberedFile {
  std::string path;
  std::unique_ptr<File> file;
};

/// Open files by their numbers, which are given again. Thread-safe.
class NumberedFiles {
 public:
  explicit NumberedFiles(FileSystem& files) : files_(files) {}

  std::int32_t add(const std::string& path, OpenMode mode);
  void remove(std::int32_t number);

  /// Valid until the file is removed.
  [[nodiscard]] const NumberedFile& get(std::int32_t number) const;

 private:
  FileSystem& files_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<NumberedFile>> slots_;
  std::vector<std::int32_t> free_;
};

/// How a read has ended.
struct ReadEnd {
  std::error_code error = {};
  bool met_end = false;  ///< of the file, before its last byte

  [[nodiscard]] bool failed() const { return met_end || error; }
};

/// Reads what is missing behind the first `got` bytes by File::read().
ReadEnd read_rest(const NumberedFile& file, const BlockRead& read, std::int64_t got);

/// Of the reads of a batch that have failed, the first.
class FirstFault {
 public:
  void note(std::int64_t order,
            const NumberedFile& file,
            const BlockRead& read,
            const ReadEnd& end);

  /// Throws the error, if there is one, and forgets it.
  void throw_and_forget();

 private:
  std::int64_t order_ = 0;
  std::string message_;  ///< empty: none
};

/// Fails unless offset, length and address are multiples of kBlockAlignment.
void check_aligned(const BlockRead& read);

std::unique_ptr<BlockReads> make_threaded_reads(FileSystem& files,
                                                const BlockReadsOptions& options);

/// Null where io_uring cannot be used; `why` then says it. In no_ring_reads.cc where the library is
/// missing.
std::unique_ptr<BlockReads> make_ring_reads(FileSystem& files,
                                            const BlockReadsOptions& options,
                                            std::string& why);

}  // namespace weft::io
