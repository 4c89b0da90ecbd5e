/// The bytes of a file, decompressed where it is compressed.
///
/// gzip (several members too, and zeros after them, as tapes and block devices leave them) and
/// Zstandard (several frames too, and skippable ones, with which pzstd begins every frame) are
/// recognised by their first bytes, and demanded where the name ends in .gz or .zst. They are
/// decompressed ahead, on a thread of the stream's own.
/// Errors: Error(kData) naming the file where it is cut, damaged or not of its name's format;
/// Error(kIo) where it cannot be read.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "weft/base/thread_pool.h"

namespace weft::data {

/// Reads a file from its beginning to its end. One thread at a time.
class ByteStream {
 public:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
  virtual ~ByteStream() = default;

  /// Up to `size` bytes into `out`; 0 only at the end. Blocking. A plain file is read by ranges on
  /// `pool` where that is given.
  virtual std::size_t read(char* out, std::size_t size, ThreadPool* pool) = 0;
};

/// Opens a file and looks at its first bytes.
std::unique_ptr<ByteStream> open_bytes(const std::string& path);

}  // namespace weft::data
