/// Reads of blocks of files with many in flight: what a store of rows on a disk reads by.
///
/// A BlockReads has the files and a queue; a ReadBatch collects the reads of one caller and waits
/// for them. Reads go through io_uring where the system allows it, else through threads that call
/// File::read(): bits are the same, only the rate differs. With io_uring a file without a
/// descriptor (File::descriptor()) is read by begin() itself.
///
/// Files     Offsets, lengths and addresses of reads are multiples of kBlockAlignment.
/// Threads   add(), remove() and batches may be used from any thread at the same time; one batch by
///           one thread at a time. A thread that waits blocks, and nothing spins.
/// Errors    a read that fails, or meets the end of the file, is remembered with its file and
///           offset, and thrown by ReadBatch::wait() as an Error(kIo) that names both.
/// Cost      no allocation per read. With io_uring a caller that waits takes the completions of all
///           callers; there is no thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/io/file_system.h"

namespace weft::io {

/// The multiple of offsets, lengths and addresses of reads, in bytes.
inline constexpr std::int64_t kBlockAlignment = 4096;

/// Ways to have reads in flight. kAuto: io_uring where it works, else threads.
enum class ReadMethod : std::uint8_t { kAuto, kRing, kThreads };

/// Options of BlockReads.
struct BlockReadsOptions {
  ReadMethod method = ReadMethod::kAuto;
  int depth = 128;  ///< reads in flight at most, of all batches
  int threads = 8;  ///< of kThreads
};

/// One read: `bytes` from `offset` of a file to `data`.
struct BlockRead {
  std::int32_t file = 0;  ///< as BlockReads::add() has numbered it
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  void* data = nullptr;
};

/// The reads of one caller.
class ReadBatch {
 public:
  /// Waits for what is in flight, and drops errors.
  virtual ~ReadBatch() = default;

  /// Begins to read; `reads` may go when it returns, the memory that is read to may not before
  /// wait(). May block while the queue is full.
  virtual void begin(std::span<const BlockRead> reads) = 0;

  /// Returns when all reads that were begun have ended. Throws the first error in their order.
  virtual void wait() = 0;
};

/// The files that are read from, and what reads them.
class BlockReads {
 public:
  virtual ~BlockReads() = default;

  /// Opens a file as OpenMode::kReadDirect or kRead, and gives it a number. Throws Error(kIo)
  /// naming it, or Error(kResource) where too many files are open.
  virtual std::int32_t add(const std::string& path, OpenMode mode) = 0;

  /// Closes a file, of which no read is in flight. Its number may be given again.
  virtual void remove(std::int32_t file) = 0;

  /// Returns memory for one caller. The batch must not outlive this.
  virtual std::unique_ptr<ReadBatch> make_batch() = 0;

  /// What reads in fact: kRing or kThreads.
  [[nodiscard]] virtual ReadMethod method() const = 0;
};

/// Makes one. Throws Error(kIo) where kRing is asked for and the system refuses it, with its
/// reason.
std::unique_ptr<BlockReads> make_block_reads(FileSystem& files,
                                             const BlockReadsOptions& options = {});

}  // namespace weft::io
