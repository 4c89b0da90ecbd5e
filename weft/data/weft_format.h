/// The weft format: a click log as blocked columns in one memory-mapped file, ids as they came,
/// before hashing or vocabulary, so that one file serves every model. docs/weft_format.md has it
/// byte by byte.
///
/// A file is a header with the schema, blocks of samples column by column, a footer with the place
/// and checksum of every column of every block, and a trailer that finds the footer. Everything is
/// under an XXH3 checksum: header and footer are verified when a file is opened, a column of a
/// block when it is first read. Columns that are not selected are never touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/data/source.h"

namespace weft::data {

class WeftOutput;

namespace layout {
struct EncodedBlock;
}

/// Opens files as one random-access source, in the order given; their schemas must be equal. The
/// files should not change while they are open: what is found changed, or cut, is an error, and
/// what is not is read within its bounds. bayes_ne() is that of a single file which has it.
/// Throws Error(kData) naming file, block, column and what to do: at opening for a missing, empty,
/// cut or foreign file, another version, a damaged header or footer; in read() for a damaged block.
std::unique_ptr<Source> open_weft(const std::vector<std::string>& files);

/// The same over one file's bytes, which must outlive the source; `name` is for messages.
std::unique_ptr<Source> open_weft_bytes(std::span<const std::byte> bytes, const std::string& name);

/// Options of WeftWriter, whose constructor throws Error(kUsage) for other sizes of blocks.
struct WeftWriterOptions {
  std::int64_t block_samples = 16384;           ///< 1 .. 2^20 samples per block
  std::map<std::string, std::string> metadata;  ///< e.g. "bayes_ne", "source"; free text
};

/// Writes one file: beside its place, synchronised, then renamed, so that `path` is either absent
/// (or what it was) or complete. Without finish() nothing is left. Not thread-safe.
/// Throws Error(kIo) where the file cannot be written. Memory: one block.
class WeftWriter {
 public:
  WeftWriter(std::string path, Schema schema, WeftWriterOptions options = {});
  ~WeftWriter();
  WeftWriter(const WeftWriter&) = delete;
  WeftWriter& operator=(const WeftWriter&) = delete;

  /// Adds samples, all columns of the schema filled. The size of `block` is free.
  void append(const RawBlock& block);

  /// Writes what is pending, footer and trailer, and gives the file its name.
  void finish();

 private:
  void take(const RawBlock& block, std::int64_t first, std::int64_t count);
  void write_pending();

  Schema schema_;
  std::int64_t block_samples_;
  std::unique_ptr<WeftOutput> output_;
  RawBlock pending_;
  std::unique_ptr<layout::EncodedBlock> encoded_;
};

/// Called now and then with the samples done so far and in all (-1 where that is not known).
using ProgressCallback = std::function<void(std::int64_t done, std::int64_t total)>;

/// Options of write_weft().
struct CopyOptions {
  std::int64_t samples = -1;   ///< at most so many; -1 = all
  ThreadPool* pool = nullptr;  ///< decodes and encodes; null: the calling thread does
  ProgressCallback progress;   ///< on the calling thread; may be empty
};

/// Copies a source, all columns, to a new file in blocks of 16384 samples; its bayes_ne is kept as
/// metadata where all samples are copied. Returns the number of samples. The file does not depend
/// on the pool. Memory: per thread about 64 MiB of a Criteo log.
std::int64_t write_weft(Source& source, const std::string& path, const CopyOptions& options = {});

}  // namespace weft::data
