/// What a disk can do, measured: the limits of a store of rows on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/block_reads.h"

namespace weft::bench {

/// Seconds of a clock, and of the processor over all threads of the process.
struct Spent {
  double wall_s = 0;
  double cpu_s = 0;
};

/// Time that passes from its construction on.
class Stopwatch {
 public:
  Stopwatch();

  [[nodiscard]] Spent spent() const;

 private:
  Spent begin_;
};

/// Random reads of blocks of files, past the page cache, as many in flight as `options` say: a
/// batch is begun before the one before it is waited for, so the queue is never empty.
class RandomBlocks {
 public:
  RandomBlocks(const std::vector<std::string>& paths, const io::BlockReadsOptions& options);

  /// Reads `blocks` of them.
  Spent read(std::int64_t blocks);

 private:
  struct File {
    std::int32_t number = 0;
    std::int64_t first_block = 0;  ///< of all files
  };

  struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  std::unique_ptr<std::byte, FreeMemory> memory_;  ///< of two batches
  std::unique_ptr<io::BlockReads> reads_;
  std::vector<File> files_;
  std::int64_t blocks_ = 0;
  std::uint64_t draws_ = 0;
};

/// Writes a file of `bytes` a MiB at a time, and syncs it; then removes it.
Spent write_file_once(const std::string& path, std::int64_t bytes);

}  // namespace weft::bench
